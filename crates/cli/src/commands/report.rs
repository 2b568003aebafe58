//! `mae report`: training runs side by side.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mae_data::files;
use mae_study::figures::chart::draw;
use mae_study::figures::curves::{Against, Curve};
use mae_train::Error;
use mae_train::history::{History, HistoryError, Summary, read_all};
use mae_train::keys::{Change, changes};
use serde::Serialize;

use crate::columns::{duration, print_columns};
use crate::exit::ExitCode;
use crate::outputs::{check_place, unless_nobody_reads};
use crate::page::charts::PageChart;
use crate::page::{self, page};

const EXAMPLES: &str = "\
Examples:
  Compare two runs and write a page:
    mae report runs/base runs/mae7 --html runs.html

  Draw the development loss of all runs from epoch 20 on:
    mae report runs/* --svg loss.svg --curve dev-loss --against epochs --from 20

The page is a single file that works offline; it shows every curve against updates, epochs and time.";

/// Compare training runs: losses, BLEU, gate entropy, speed, and differences of their configurations.
///
/// Reads log.jsonl and run.toml from the folder of each run, also while it is training. Runs that cannot be read, or
/// have logged nothing yet, are left out with a note.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folders of runs (--save-dir of `mae train`).
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Write an HTML page; the file appears when it is complete.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write one chart as SVG; the file appears when it is complete.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Curve of the chart.
    #[arg(long, value_parser = choice(&Curve::ALL, Curve::name, Curve::label), default_value = "loss", requires = "svg")]
    curve: Curve,
    /// Horizontal axis of the chart.
    #[arg(long, value_parser = choice(&Against::ALL, Against::name, Against::label), default_value = "updates", requires = "svg")]
    against: Against,
    /// Start of the chart, in updates, epochs or minutes: the first part often hides later differences.
    #[arg(long, value_name = "X", default_value_t = 0.0, requires = "svg", value_parser = place)]
    from: f64,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
}

/// Parser of a value that has a name and a description.
fn choice<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    label: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = all.iter().map(move |value| PossibleValue::new(name(*value)).help(label(*value)));
    let find = move |given: String| all.iter().copied().find(|value| name(*value) == given);
    PossibleValuesParser::new(values).map(move |given| find(given).expect("a possible value"))
}

fn place(text: &str) -> Result<f64, String> {
    let from = text.parse().ok().filter(|from: &f64| from.is_finite() && *from >= 0.0);
    from.ok_or_else(|| "not a number of 0 or more".into())
}

/// Output with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    runs: &'a [Summary],
    changes: &'a [Change],
}

/// Contents of the page.
#[derive(Serialize)]
struct PageData<'a> {
    runs: Vec<Named<'a>>,
    note: &'static str,
    summary: Table,
    changes: &'a [Change],
    charts: Vec<PageChart>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

const NOTE: &str = "Losses in bits per target token, label smoothing included; training loss of the last logged updates. \
                    Time is that of training; validating and saving are not counted.";

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    args.check_places()?;
    let runs = args.read_runs()?;
    let summaries: Vec<Summary> = runs.iter().map(History::summary).collect();
    let changes = changes(&runs.iter().map(|run| &run.config).collect::<Vec<_>>());
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer(&mut text, &Report { runs: &summaries, changes: &changes })?;
        text.push(b'\n');
    } else {
        print(&mut text, &runs, &table(&summaries), &changes)?;
    }
    let printed = std::io::stdout().write_all(&text);
    // Each on its own: what cannot be written keeps nothing else from being written.
    let chart = args.svg.as_deref().map(|path| args.write_chart(path, &runs));
    let page = args.html.as_deref().map(|path| write_page(path, &page_data(&runs, &summaries, &changes)));
    let faults: Vec<String> =
        chart.into_iter().chain(page).filter_map(Result::err).map(|fault| format!("{fault:#}")).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    unless_nobody_reads(printed.context("cannot write to standard output"))
}

impl Args {
    /// An error where files cannot be written because of their paths.
    fn check_places(&self) -> Result<()> {
        let is_svg =
            |path: &PathBuf| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        if let Some(path) = self.svg.as_ref().filter(|path| !is_svg(path)) {
            bail!(
                "--svg {}: charts are written as SVG, in files that end in .svg; for PNG, `Save as PNG` on the page of --html",
                path.display()
            );
        }
        check_place(self.svg.as_deref())?;
        check_place(self.html.as_deref())
    }

    /// Reads the runs; those that cannot be read are reported.
    fn read_runs(&self) -> Result<Vec<History>> {
        let (runs, unread) = read_all(&self.runs);
        let unread: Vec<String> = unread.iter().map(why_unread).collect();
        ensure!(!runs.is_empty(), "{}", unread.join("\n"));
        unread.iter().for_each(|why| eprintln!("mae: a run is left out: {why}"));
        Ok(runs)
    }

    fn write_chart(&self, path: &Path, runs: &[History]) -> Result<()> {
        let mut series = self.curve.series(runs, self.against);
        let (curve, against) = (self.curve.label(), self.against.label());
        ensure!(!series.is_empty(), "no run has logged {curve}; nothing to draw");
        for line in &mut series {
            line.points.retain(|(x, _)| *x >= self.from);
        }
        series.retain(|line| !line.points.is_empty());
        let chart = draw(&series, against, curve, self.from)
            .with_context(|| format!("--from {}: no run has come so far ({against})", self.from))?;
        files::write(path, chart.as_bytes())?;
        eprintln!("the chart is in {}", path.display());
        Ok(())
    }
}

/// Why a run cannot be read, and the flag that leads to one that can.
fn why_unread(error: &Error) -> String {
    match error {
        Error::History(HistoryError::NoLog { .. }) => format!("{error} (--save-dir of `mae train`)"),
        error => error.to_string(),
    }
}

fn write_page(path: &Path, data: &PageData<'_>) -> Result<()> {
    files::write(path, page("Training runs", page::REPORT, data)?.as_bytes())?;
    eprintln!("the page is in {}", path.display());
    Ok(())
}

fn page_data<'a>(runs: &'a [History], summaries: &[Summary], changes: &'a [Change]) -> PageData<'a> {
    let mut charts = Vec::new();
    for curve in Curve::ALL {
        for against in Against::ALL {
            charts.extend(PageChart::of(curve.label(), against, curve.series(runs, against)));
        }
    }
    let runs = runs.iter().map(|run| Named { name: &run.name, note: run.note.as_deref() }).collect();
    PageData { runs, note: NOTE, summary: table(summaries), changes, charts }
}

/// The figures as text, with their units in the headings.
fn table(summaries: &[Summary]) -> Table {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let row = |s: &Summary| {
        vec![
            s.run.clone(),
            s.updates.to_string(),
            format!("{:.2}", s.epochs),
            or_none((s.seconds > 0.0).then(|| duration(s.seconds))),
            or_none(s.train_loss.map(|loss| format!("{loss:.3}"))),
            or_none(s.best_dev_loss.zip(s.best_dev_update).map(|(loss, at)| format!("{loss:.3} at {at}"))),
            or_none(s.best_bleu.map(|bleu| format!("{bleu:.2}"))),
            or_none(s.gate_entropy.map(|entropy| format!("{entropy:.3}"))),
            or_none(s.tokens_per_second.map(|rate| format!("{rate:.0}"))),
            or_none(s.update_ms.map(|ms| format!("{ms:.1}"))),
        ]
    };
    let headings = vec![
        "run",
        "updates",
        "epochs",
        "time",
        "train loss",
        "best dev loss",
        "best BLEU",
        "entropy (nats)",
        "tokens/s",
        "ms/update",
    ];
    Table { headings, rows: summaries.iter().map(row).collect() }
}

fn print(out: &mut impl Write, runs: &[History], table: &Table, changes: &[Change]) -> io::Result<()> {
    writeln!(out, "{NOTE}\n")?;
    let headings: Vec<String> = table.headings.iter().map(ToString::to_string).collect();
    print_columns(out, std::iter::once(&headings).chain(&table.rows))?;
    if runs.len() > 1 {
        writeln!(out, "\nwhat the configurations differ in:")?;
        if changes.is_empty() {
            writeln!(out, "  nothing that is known")?;
        } else {
            let names = std::iter::once("key".to_owned()).chain(runs.iter().map(|run| run.name.clone()));
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
            let rows = changes
                .iter()
                .map(|c| std::iter::once(c.key.clone()).chain(c.values.iter().map(value)).collect());
            let rows: Vec<Vec<String>> = std::iter::once(names.collect()).chain(rows).collect();
            print_columns(out, rows.iter())?;
        }
    }
    for run in runs {
        if let Some(note) = &run.note {
            writeln!(out, "{}: {note}", run.name)?;
        }
    }
    Ok(())
}
