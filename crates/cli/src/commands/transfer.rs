//! `mae transfer`: the paper's transfer study, for any trained mixture and data.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mae_model::folder::{Task, write_aside};
use mae_train::{TrainConfig, finetune};
use serde::Serialize;

use crate::columns::print_columns;
use crate::studies::curves::{self, Point};
use crate::studies::lock;
use crate::studies::page::{PageTable, StudyPage};
use crate::studies::protocol::Test;
use crate::studies::result::{Origin, RunResult};
use crate::studies::sitting::{Sat, Sitting, SittingArgs};
use crate::studies::transfer::Plan;
use crate::training::material::{Material, Pairs, Sets};

/// Fit a trained model to other data by the paper's methods, on parts of that data: its section 5.2.
///
/// NoFt is the model as it is, FtG trains gates, FtG+ gates and outputs of attentions, FtAll everything, Scratch begins
/// with nothing. Does what is missing and no more: it can be stopped or killed at any time, and the same command goes on.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae transfer --parent runs/wmt/average --data ted/data-bin --out studies/ted
  mae transfer --parent runs/wmt/average --data ted/data-bin --out studies/ted --methods ftg,ftg+ --fractions 5,10 --seeds 1,2,3
  mae transfer --out studies/ted --table

The data must have been prepared with the parent's dictionaries and codes; where it was not, the error says how. The folder
gets transfer.json, transfer.svg (the paper's figure) and transfer.html. Plans of your own: docs/studies.md.")]
pub struct Args {
    /// The trained model.
    #[arg(long, value_name = "MODEL", required_unless_present = "table")]
    parent: Option<PathBuf>,
    /// Folder with the other data.
    #[arg(long, value_name = "DIR", required_unless_present = "table")]
    data: Option<PathBuf>,
    /// Where runs and results go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A plan of your own: methods with their budgets and learning rates [default: the paper's methods].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Only these methods, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<String>,
    /// Parts of the training set, in per cent, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    fractions: Vec<f64>,
    /// Seeds, separated by commas; of the parts, too.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    seeds: Vec<u64>,
    /// Updates of methods, as in ftg=1000,ftall=12000.
    #[arg(long, value_delimiter = ',', value_name = "METHOD=N")]
    updates: Vec<String>,
    /// The set that is translated and scored.
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    #[command(flatten)]
    sitting: SittingArgs,
}

/// What `--json` prints and transfer.json holds.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    origin: Origin,
    plan: &'a Plan,
    points: &'a [Point],
    missing: &'a [String],
    runs: &'a BTreeMap<String, RunResult>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let (whole, chosen) = args.plans()?;
    let sat = if args.sitting.table { Sat::default() } else { args.sit(&chosen)? };
    let names = |plan: &Plan| plan.cells().iter().map(|cell| cell.name()).collect::<Vec<_>>();
    let wanted = names(&chosen);
    let plan = if args.sitting.table { chosen } else { whole };
    let mut results = BTreeMap::new();
    for name in names(&plan) {
        if let Some(result) = RunResult::read(&args.out.join(&name))? {
            results.insert(name, result);
        }
    }
    let missing: Vec<String> = wanted.into_iter().filter(|name| !results.contains_key(name)).collect();
    let points = curves::points(&plan, &results);
    let record =
        Record { origin: Origin::here(), plan: &plan, points: &points, missing: &missing, runs: &results };
    let json = serde_json::to_string_pretty(&record)?;
    let (table, costs) = (curves::table(&plan, &points), curves::costs(&plan, &points));
    let notes = notes(&plan, &missing);
    if !args.sitting.table && !results.is_empty() {
        let svg = curves::figure(&plan, &points);
        let page = StudyPage {
            title: &plan.title,
            lead: Vec::new(),
            tables: vec![PageTable::new("BLEU", &table), PageTable::new("What it takes", &costs)],
            svg: svg.as_deref(),
            charts: Vec::new(),
            notes: notes.clone(),
        };
        write(&args.out, &json, svg.as_deref(), &page.html()?)?;
    }
    let mut text = Vec::new();
    if args.sitting.json {
        writeln!(text, "{json}")?;
    } else {
        writeln!(text, "{}\n", plan.title)?;
        print_columns(&mut text, table.iter())?;
        writeln!(text)?;
        print_columns(&mut text, costs.iter())?;
        writeln!(text)?;
        notes.iter().try_for_each(|note| writeln!(text, "{note}"))?;
    }
    let printed = std::io::stdout().write_all(&text);
    sat.end(printed)
}

fn write(out: &Path, json: &str, svg: Option<&str>, html: &str) -> Result<()> {
    let _lock = lock::wait(out)?;
    let files = [("transfer.json", Some(json)), ("transfer.svg", svg), ("transfer.html", Some(html))];
    for (name, text) in files.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        write_aside(&out.join(name), text.as_bytes())?;
    }
    Ok(())
}

fn notes(plan: &Plan, missing: &[String]) -> Vec<String> {
    let test = &plan.translation;
    let score = if test.reference.is_empty() {
        "tokenised (multi-bleu on whitespace tokens, pieces joined)"
    } else {
        "sacreBLEU 13a of the detokenised text"
    };
    let mut notes = vec![format!(
        "BLEU of the {} set, {score}, beam {}, of the checkpoint with the lowest development loss; columns: part of the training \
         set. ±: sample standard deviation over seeds.",
        test.split, test.beam
    )];
    notes.extend([&plan.paper, &plan.caveat].into_iter().filter(|note| !note.is_empty()).cloned());
    if !missing.is_empty() {
        notes.push(format!("Not done yet ({}): {}.", missing.len(), missing.join(", ")));
    }
    notes
}

impl Args {
    /// The plan, and the part of it that this command is to do.
    fn plans(&self) -> Result<(Plan, Plan)> {
        let mut plan = Plan::load(self.plan.as_deref())?;
        for text in &self.updates {
            let fault = || format!("--updates {text}: expected METHOD=N, as in ftg=1000");
            let (name, number) = text.split_once('=').with_context(fault)?;
            plan.method("--updates", name)?.max_update = number.parse().with_context(fault)?;
        }
        if let Some(split) = &self.split {
            plan.translation.split.clone_from(split);
        }
        let mut chosen = plan.clone();
        for name in &self.methods {
            chosen.method("--methods", name)?;
        }
        if !self.methods.is_empty() {
            chosen.methods.retain(|method| self.methods.contains(&method.name));
        }
        if !self.fractions.is_empty() {
            chosen.fractions.clone_from(&self.fractions);
        }
        if !self.seeds.is_empty() {
            chosen.seeds.clone_from(&self.seeds);
        }
        chosen.check()?;
        // What others have done with other flags belongs to the table, too.
        let others = self.done_elsewhere(&plan)?;
        for (fraction, seed) in others.into_iter().chain(
            chosen
                .fractions
                .iter()
                .flat_map(|&fraction| chosen.seeds.iter().map(move |&seed| (fraction, seed))),
        ) {
            if !plan.fractions.contains(&fraction) {
                plan.fractions.push(fraction);
            }
            if !plan.seeds.contains(&seed) {
                plan.seeds.push(seed);
            }
        }
        Ok((plan, chosen))
    }

    /// Parts and seeds of finished runs in the folder.
    fn done_elsewhere(&self, plan: &Plan) -> Result<Vec<(f64, u64)>> {
        let Ok(entries) = std::fs::read_dir(&self.out) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot look into {}", self.out.display()))?;
            let name = entry.file_name();
            let parsed = name.to_str().and_then(|name| {
                let (rest, seed) = name.rsplit_once('-')?;
                let (method, fraction) = rest.strip_suffix("pct")?.rsplit_once('-')?;
                let known = plan.methods.iter().any(|known| known.name == method);
                Some((fraction.parse().ok()?, seed.parse().ok()?)).filter(|_| known)
            });
            found.extend(parsed.filter(|_| entry.path().join("result.json").exists()));
        }
        Ok(found)
    }

    /// Does what is missing; gives what went wrong.
    fn sit(&self, plan: &Plan) -> Result<Sat> {
        let (Some(parent), Some(data)) = (&self.parent, &self.data) else {
            bail!("--parent and --data are needed")
        };
        let over = self.sitting.overrides()?;
        let jobs = plan.jobs(parent, &over)?;
        let languages = self.sitting.languages();
        let sets = Sets { folder: data, languages, valid: "valid" };
        let material = Pairs::open(sets, &TrainConfig::default())?;
        finetune::check_data(parent, &material.text(), Task::Translation)?;
        std::fs::create_dir_all(&self.out).with_context(|| format!("--out {}", self.out.display()))?;
        let sitting = Sitting {
            sets,
            out: &self.out,
            test: &Test::Translation(plan.translation.clone()),
            args: &self.sitting,
        };
        sitting.run(&jobs)
    }
}
