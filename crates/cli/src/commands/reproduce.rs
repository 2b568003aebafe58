//! `mae reproduce`: a table of the paper, or a study of one's own, from training to significance.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use mae_model::folder::write_aside;
use serde::Serialize;

use crate::studies::agreement::remarks;
use crate::studies::compare::{Comparison, compare, folder_name};
use crate::studies::keys::each_once;
use crate::studies::result::{Origin, RunResult};
use crate::studies::runner::{Job, Work};
use crate::studies::sitting::{Sat, Sitting, SittingArgs};
use crate::studies::study::{self, Study};
use crate::studies::{lock, page, table};
use crate::training::material::Sets;

const EXAMPLES: &str = "\
Examples:
  List the studies, and run one:
    mae reproduce --list
    mae reproduce iwslt14 --data iwslt14/data-bin --out studies/iwslt14

  Run a part of a study for 25 minutes:
    mae reproduce europarl160k --data ep160/data-bin --out studies/ep160 --only base,mae7 \\
        --seeds 1 --stop-after 25

  Print the tables of the results so far:
    mae reproduce europarl160k --out studies/ep160 --table

  Run a study of your own and print JSON:
    mae reproduce my-study.toml --data data-bin --out studies/mine --json > study.json

The folder gets study.json and study.html, a page with the tables, a figure and learning curves.
Several processes can work on one study with different --only or --seeds. docs/studies.md explains
the measurements and how to write a study.";

/// Run a table of the paper, or a study of your own: train every system with every seed, measure, compare.
///
/// Does what is missing and no more: it can be stopped or killed at any time, and the same command goes on. A run that
/// has a result.json is done, whatever else of it was deleted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The study: a name (--list) or a .toml file.
    #[arg(required_unless_present = "list")]
    study: Option<String>,
    /// Print the names of all studies and exit.
    #[arg(long)]
    list: bool,
    /// Folder that `mae prepare` or `mae preprocess` has written.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "table"])]
    data: Option<PathBuf>,
    /// Where runs and results go.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Only these systems, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// These seeds instead of the study's, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    seeds: Vec<u64>,
    /// Epochs of every run instead of the study's.
    #[arg(long, value_name = "N")]
    max_epoch: Option<u64>,
    /// Updates of every run instead of the study's.
    #[arg(long, value_name = "N")]
    max_update: Option<u64>,
    /// References of the test set as plain text, instead of the study's.
    #[arg(long, value_name = "FILE")]
    reference: Option<String>,
    /// Do without sacreBLEU, which needs references as plain text.
    #[arg(long, conflicts_with = "reference")]
    tokenised_only: bool,
    #[command(flatten)]
    sitting: SittingArgs,
}

/// What `--json` prints and study.json holds.
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
    chosen.keep_only(&args.only)?;
    if !args.seeds.is_empty() {
        chosen.seeds = each_once(&args.seeds);
    }
    let sat = if args.sitting.table { Sat::default() } else { args.sit(&chosen, out)? };
    // The table is that of all that is there, whoever made it.
    let (mut runs, mut missing) = gather(&study, out)?;
    let is_chosen = |name: &str| chosen.systems.iter().any(|system| system.name == name);
    if args.sitting.table {
        let has_seed = |seed: u64| args.seeds.is_empty() || args.seeds.contains(&seed);
        runs.retain(|run| has_seed(run.seed));
        missing.retain(|(system, seed)| is_chosen(system) && has_seed(*seed));
    }
    let missing: Vec<String> = missing.iter().map(|(system, seed)| folder_name(system, *seed)).collect();
    let remarks = remarks(&study.test()?, runs.iter().map(|run| (folder_name(&run.system, run.seed), run)));
    // What the captions say is true of the numbers.
    let study = study.as_measured(&runs)?;
    let mut comparison = Comparison { remarks, ..compare(&study, out, &runs)? };
    if args.sitting.table {
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
    if !args.sitting.table && !runs.is_empty() {
        let html = page::of_study((&study, out), &comparison, (&runs, &missing))?;
        let _lock = lock::wait(out)?;
        write_aside(&out.join("study.json"), json.as_bytes())?;
        write_aside(&out.join("study.html"), html.as_bytes())?;
    }
    let mut text = Vec::new();
    if args.sitting.json {
        writeln!(text, "{json}")?;
    } else {
        table::print(&mut text, &study, &comparison, &missing)?;
    }
    let printed = std::io::stdout().write_all(&text);
    sat.end(printed)
}

/// Systems and seeds of runs that are not done.
type Missing = Vec<(String, u64)>;

/// Results that are there, system by system in the order of the study, with seeds of any study; and what is missing of the
/// study.
fn gather(study: &Study, out: &Path) -> Result<(Vec<RunResult>, Missing)> {
    let mut seeds: BTreeMap<&str, BTreeSet<u64>> = study
        .systems
        .iter()
        .map(|system| (system.name.as_str(), study.seeds.iter().copied().collect()))
        .collect();
    let there = std::fs::read_dir(out).with_context(|| format!("cannot look into {}", out.display()))?;
    for entry in there {
        let name = entry?.file_name();
        if let Some((system, seed)) = name.to_str().and_then(|name| name.rsplit_once('-'))
            && let (Some(seeds), Ok(seed)) = (seeds.get_mut(system), seed.parse())
        {
            seeds.insert(seed);
        }
    }
    let (mut runs, mut missing) = (Vec::new(), Vec::new());
    for system in &study.systems {
        for &seed in &seeds[system.name.as_str()] {
            match RunResult::read(&out.join(folder_name(&system.name, seed)))? {
                Some(result) => runs.push(result),
                None => missing.push((system.name.clone(), seed)),
            }
        }
    }
    Ok((runs, missing))
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

    /// Does what is missing; gives what went wrong.
    fn sit(&self, study: &Study, out: &Path) -> Result<Sat> {
        let Some(data) = &self.data else { bail!("--data is needed") };
        let over = self.sitting.overrides(study::OWNED)?;
        let mut jobs = Vec::new();
        // All systems with one seed first: a table of one seed is worth more than one system with all.
        for &seed in &study.seeds {
            for system in &study.systems {
                let layers =
                    study.layers(system, seed, &over).with_context(|| format!("system {}", system.name))?;
                let name = folder_name(&system.name, seed);
                jobs.push(Job { system: system.name.clone(), seed, name, work: Work::Train(layers) });
            }
        }
        let languages = self.sitting.languages();
        let sitting = Sitting {
            sets: Sets { folder: data, languages, valid: "valid" },
            out,
            parent: None,
            test: &study.test()?,
            args: &self.sitting,
        };
        sitting.run(&jobs)
    }
}
