//! `mae reproduce`: a table of the paper, or a study of one's own, from training to significance.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PathBufValueParser, TypedValueParser};
use mae_data::files::{self, FolderLock};
use mae_study::agreement::{as_measured, remarks};
use mae_study::compare::{Comparison, compare};
use mae_study::folder::gather;
use mae_study::job::folder_name;
use mae_study::keys::{Owned, each_once};
use mae_study::{RunResult, Study, study};
use serde::Serialize;

use crate::data_arg::data_bin;
use crate::exit::ExitCode;
use crate::studies::faults::name_flags;
use crate::studies::record::Origin;
use crate::studies::session::{self, Ending, SessionArgs};
use crate::studies::{figures, page, table};

/// Keys that --set cannot change in a study, and the flags that do.
const OWNED: &[Owned] = &[("seed", "--seeds"), ("max_epoch", "--max-epoch"), ("max_update", "--max-update")];

const EXAMPLES: &str = "\
Examples:
  List the studies, and run one:
    mae reproduce --list
    mae reproduce iwslt14 --data iwslt14/data-bin --out studies/iwslt14

  Run a study that makes its corpus and needs a few minutes on a CPU:
    mae reproduce two-tasks --out studies/two-tasks

  Run a part of a study for 25 minutes:
    mae reproduce europarl160k --data ep160/data-bin --out studies/ep160 \\
        --only base,mae7 \\
        --seeds 1 --stop-after 25

  Print the tables of the results so far, and write the figures:
    mae reproduce europarl160k --out studies/ep160 --table --svg figures

  Run a study of your own and print JSON:
    mae reproduce my-study.toml --data data-bin --out studies/mine --json \\
        > study.json

The folder gets study.json and study.html, a page with the tables, a figure and learning curves.
Several processes can work on one study with different --only or --seeds. docs/studies.md explains
the measurements and how to write a study.";

/// Run a table of the paper or a study of your own: train every system with every seed, measure, compare.
///
/// Only missing runs are done: the study can be stopped or killed at any time, and the same command continues it. A run
/// with a result.json is complete, even if other files of it were deleted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Study: a name (see --list) or a .toml file.
    #[arg(required_unless_present = "list")]
    study: Option<String>,
    /// Print the names of all studies and exit.
    #[arg(long)]
    list: bool,
    /// Folder written by `mae prepare` or `mae preprocess`; not needed for studies that make their corpus.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().map(|folder| data_bin(&folder)))]
    data: Option<PathBuf>,
    /// Folder for runs and results.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Systems to run, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Seeds, separated by commas [default: the study's].
    #[arg(long, value_delimiter = ',', value_name = "N")]
    seeds: Vec<u64>,
    /// Epochs of every run [default: the study's].
    #[arg(long, value_name = "N")]
    max_epoch: Option<u64>,
    /// Updates of every run [default: the study's].
    #[arg(long, value_name = "N")]
    max_update: Option<u64>,
    /// References of the test set as plain text [default: the study's].
    #[arg(long, value_name = "FILE")]
    reference: Option<String>,
    /// Skip sacreBLEU, which needs references as plain text.
    #[arg(long, conflicts_with = "reference")]
    tokenised_only: bool,
    /// Write the figures as SVG into a folder: scores, scores against what the gates have learned, learning curves.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
}

/// Contents of study.json, and of the output with `--json`.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    origin: Origin,
    study: &'a Study,
    comparison: &'a Comparison,
    missing: &'a [String],
    runs: &'a [RunResult],
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.list {
        study::list().iter().for_each(|(name, title)| println!("{name:<16}{title}"));
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(name), Some(out)) = (&args.study, &args.out) else { bail!("a study and --out are needed") };
    let study = args.study(name)?;
    let mut chosen = study.clone();
    chosen.keep_only(&args.only).with_context(|| format!("--only {}", args.only.join(",")))?;
    if !args.seeds.is_empty() {
        chosen.seeds = each_once(&args.seeds);
    }
    let ending = if args.session.table { Ending::default() } else { args.run(&chosen, out)? };
    // The table is that of all that is there, whoever made it.
    let (mut runs, mut missing) = gather(&study, out).map_err(name_flags)?;
    let is_chosen = |name: &str| chosen.systems.iter().any(|system| system.name == name);
    if args.session.table {
        let has_seed = |seed: u64| args.seeds.is_empty() || args.seeds.contains(&seed);
        runs.retain(|run| has_seed(run.seed));
        missing.retain(|(system, seed)| is_chosen(system) && has_seed(*seed));
    }
    let missing: Vec<String> = missing.iter().map(|(system, seed)| folder_name(system, *seed)).collect();
    let remarks = remarks(&study.test()?, runs.iter().map(|run| (folder_name(&run.system, run.seed), run)));
    // Captions describe how the numbers were measured.
    let study = study.with_test(as_measured(&study.test()?, runs.iter())?);
    let mut comparison = Comparison { remarks, ..compare(&study, out, &runs)? };
    if args.session.table {
        // Fewer rows, but the same baseline.
        comparison.rows.retain(|row| is_chosen(&row.system));
        runs.retain(|run| is_chosen(&run.system));
    }
    let record = Record {
        origin: Origin::here(),
        study: &study,
        comparison: &comparison,
        missing: &missing,
        runs: &runs,
    };
    let json = serde_json::to_string_pretty(&record)?;
    if !args.session.table && !runs.is_empty() {
        let html = page::of_study((&study, out), &comparison, (&runs, &missing))?;
        let _lock = FolderLock::wait(out)?;
        files::write(out.join("study.json"), json.as_bytes())?;
        files::write(out.join("study.html"), html.as_bytes())?;
    }
    if let Some(folder) = &args.svg {
        figures::write(folder, (&study, out), comparison.score, &runs)?;
    }
    let mut text = Vec::new();
    if args.session.json {
        writeln!(text, "{json}")?;
    } else {
        table::print(&mut text, &study, &comparison, &missing)?;
    }
    let printed = std::io::stdout().write_all(&text);
    ending.exit(printed)
}

impl Args {
    /// The study, as the flags change it.
    fn study(&self, name: &str) -> Result<Study> {
        let mut study = Study::load(name)?;
        study.max_epoch = self.max_epoch.unwrap_or(study.max_epoch);
        study.max_update = self.max_update.unwrap_or(study.max_update);
        if let Some(test) = &mut study.translation {
            if let Some(reference) = &self.reference {
                ensure!(
                    !test.language.is_empty(),
                    "--reference: the study has no translation.language, whose rules join tokens to plain text"
                );
                test.reference.clone_from(reference);
            }
            if self.tokenised_only {
                (test.reference, test.language) = (String::new(), String::new());
            }
        }
        Ok(study)
    }

    /// Does what is missing.
    fn run(&self, study: &Study, out: &Path) -> Result<Ending> {
        let made = match (&self.data, study.corpus) {
            (None, Some(corpus)) => Some(corpus.make(out)?),
            _ => None,
        };
        let Some(data) = self.data.as_ref().or(made.as_ref()) else {
            bail!("--data is needed: the folder with the corpus of the study")
        };
        let jobs = study.jobs(&self.session.overrides(OWNED)?).map_err(name_flags)?;
        self.session.run(&session::Study { data, out, parent: None, test: &study.test()? }, &jobs)
    }
}
