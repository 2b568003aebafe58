//! `mae transfer`: the paper's transfer study, for any trained mixture and data.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PathBufValueParser, TypedValueParser};
use mae_data::files::{self, FolderLock};
use mae_study::RunResult;
use mae_study::agreement::{as_measured, remarks};
use mae_study::figures::of_transfer;
use mae_study::folder::{self, StoredRun};
use mae_study::keys::{Owned, each_once};
use mae_study::points::{Point, points};
use mae_study::protocol::{Test, Translation};
use mae_study::transfer::Plan;
use mae_train::run::{Material, Pairs};
use mae_train::{TrainConfig, finetune};
use serde::Serialize;

use crate::columns::print_columns;
use crate::data_arg::data_bin;
use crate::exit::ExitCode;
use crate::studies::faults::name_flags;
use crate::studies::page::{PageTable, StudyPage};
use crate::studies::record::Origin;
use crate::studies::session::{self, Ending, SessionArgs};
use crate::studies::transfer_table;
use crate::training;

/// Keys that --set cannot change in a transfer study, and the flags that do.
const OWNED: &[Owned] = &[
    ("seed", "--seeds"),
    ("subset", "--fractions"),
    ("free", "--methods"),
    ("max_update", "--updates METHOD=N"),
    ("finetune_from_model", "--parent"),
];

const EXAMPLES: &str = "\
Examples:
  Run all methods on all parts of the data:
    mae transfer --parent runs/wmt/average --data ted/data-bin --out studies/ted

  Run two methods on two parts with three seeds:
    mae transfer --parent runs/wmt/average --data ted/data-bin \\
        --out studies/ted \\
        --methods ftg,ftg+ --fractions 5,10 --seeds 1,2,3

  Print the table of the results so far:
    mae transfer --out studies/ted --table

The data must be prepared with the parent's dictionaries and codes; if it is not, the error says how
to do that. The folder gets transfer.json, transfer.svg (the paper's figure) and transfer.html.
docs/studies.md explains plans of your own.";

/// Fine-tune a trained model on parts of other data by the methods of the paper (section 5.2).
///
/// NoFt is the unchanged model, FtG trains the gates, FtG+ gates and attention outputs, FtAll everything, and Scratch
/// starts from initial values. Only missing runs are done: the study can be stopped or killed at any time, and the same
/// command continues it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder of the trained model.
    #[arg(long, value_name = "MODEL", required_unless_present = "table")]
    parent: Option<PathBuf>,
    /// Folder with the data to fine-tune on.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "table",
        value_parser = PathBufValueParser::new().map(|folder| data_bin(&folder))
    )]
    data: Option<PathBuf>,
    /// Folder for runs and results.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Plan with methods, budgets and learning rates [default: the paper's methods].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Methods to run, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<String>,
    /// Fractions of the training set in per cent, above 0 and at most 100, separated by commas [default: those of the
    /// plan; the paper's are 5,10,25,50,75,100].
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    fractions: Vec<f64>,
    /// Seeds of training and of the fractions, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    seeds: Vec<u64>,
    /// Updates of methods, such as ftg=1000,ftall=12000.
    #[arg(long, value_delimiter = ',', value_name = "METHOD=N")]
    updates: Vec<String>,
    /// Split to translate and score.
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

/// Contents of transfer.json, and of the output with `--json`.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    origin: Origin,
    plan: &'a Plan,
    points: &'a [Point],
    /// Remarks on runs that cannot be compared, or are not what the plan says.
    remarks: &'a [String],
    missing: &'a [String],
    runs: &'a BTreeMap<String, RunResult>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let (ending, mut plan, found, missing) = if args.session.table { args.stored()? } else { args.work()? };
    let results = folder::results(&found);
    let points = points(&plan, &results);
    let asked = Test::Translation(plan.translation.clone());
    let remarks = remarks(&asked, results.iter().map(|(name, run)| (name.clone(), run)));
    // Captions describe how the numbers were measured.
    plan.translation = protocol(&plan, &results)?;
    let record = Record {
        origin: Origin::here(),
        plan: &plan,
        points: &points,
        remarks: &remarks,
        missing: &missing,
        runs: &results,
    };
    let json = serde_json::to_string_pretty(&record)?;
    let (table, costs) = (transfer_table::table(&plan, &points), transfer_table::costs(&plan, &points));
    let mut notes = transfer_table::notes(&plan, results.values());
    notes.extend(remarks.iter().cloned());
    if !missing.is_empty() {
        notes.push(format!("Not done yet ({}): {}.", missing.len(), missing.join(", ")));
    }
    if !args.session.table && !results.is_empty() {
        let svg = of_transfer::draw_points(&plan, &points);
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
    if args.session.json {
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
    ending.exit(printed)
}

fn write(out: &Path, json: &str, svg: Option<&str>, html: &str) -> Result<()> {
    let _lock = FolderLock::wait(out)?;
    let texts = [(folder::RECORD, Some(json)), ("transfer.svg", svg), ("transfer.html", Some(html))];
    for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        files::write(out.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// The protocol that the plan's models were measured by.
fn protocol(plan: &Plan, results: &BTreeMap<String, RunResult>) -> Result<Translation> {
    match as_measured(&Test::Translation(plan.translation.clone()), results.values())? {
        Test::Translation(test) => Ok(test),
        Test::LanguageModel(_) => unreachable!("a protocol stays of its kind"),
    }
}

/// End of the session, plan of the table, runs in the folder, and names of runs that are not done.
type Work = (Ending, Plan, Vec<StoredRun>, Vec<String>);

impl Args {
    /// Does what is missing; the table is that of the whole plan (of the fractions that were asked for), and of all that
    /// is there.
    fn work(&self) -> Result<Work> {
        let mut plan = self.change(Plan::load(self.plan.as_deref())?)?;
        let mut chosen = plan.clone();
        if !self.methods.is_empty() {
            chosen.methods.retain(|method| self.methods.contains(&method.name));
        }
        if !self.fractions.is_empty() {
            chosen.fractions = each_once(&self.fractions);
        }
        if !self.seeds.is_empty() {
            chosen.seeds = each_once(&self.seeds);
        }
        chosen.check()?;
        let ending = self.run(&chosen)?;
        let found = folder::stored_runs(&self.out, &plan).map_err(name_flags)?;
        let cells = chosen.cells();
        if !self.fractions.is_empty() {
            plan.fractions.clear();
        }
        plan.include(cells.iter().filter_map(|cell| Some((cell.fraction?, cell.seed))));
        // Runs that others made with other flags belong to the table, too.
        plan.include(found.iter().filter(|run| run.result.is_some()).filter_map(|run| run.part));
        let is_done = |name: &String| found.iter().any(|run| run.name == *name && run.result.is_some());
        let missing = cells.iter().map(|cell| cell.name()).filter(|name| !is_done(name)).collect();
        Ok((ending, plan, found, missing))
    }

    /// The runs that the folder holds, of those that the flags choose.
    fn stored(&self) -> Result<Work> {
        let recorded =
            if self.plan.is_none() { folder::recorded_plan(&self.out).map_err(name_flags)? } else { None };
        let mut plan = recorded.map_or_else(|| Plan::load(self.plan.as_deref()), Ok)?;
        let mut found = folder::stored_runs(&self.out, &plan).map_err(name_flags)?;
        ensure!(!found.is_empty(), "{} holds no run of a transfer study", self.out.display());
        plan.narrow_to(&found);
        if self.plan.is_none() {
            // No plan asks for anything else.
            plan.translation = protocol(&plan, &folder::results(&found))?;
        }
        let mut plan = self.change(plan)?;
        let wanted = |run: &StoredRun| {
            let chosen = |(fraction, seed)| {
                (self.fractions.is_empty() || self.fractions.contains(&fraction))
                    && (self.seeds.is_empty() || self.seeds.contains(&seed))
            };
            (self.methods.is_empty() || self.methods.contains(&run.method)) && run.part.is_none_or(chosen)
        };
        found.retain(wanted);
        let parts_wanted = !self.fractions.is_empty() || !self.seeds.is_empty();
        ensure!(
            found.iter().any(|run| run.part.is_some() || !parts_wanted),
            "{} holds none of the runs that were asked for",
            self.out.display()
        );
        plan.narrow_to(&found);
        let missing = found.iter().filter(|run| run.result.is_none()).map(|run| run.name.clone()).collect();
        Ok((Ending::default(), plan, found, missing))
    }

    /// The plan as the flags change it; methods that they name must exist.
    fn change(&self, mut plan: Plan) -> Result<Plan> {
        for text in &self.updates {
            let fault = || format!("--updates {text}: expected METHOD=N, as in ftg=1000");
            let (name, number) = text.split_once('=').with_context(fault)?;
            plan.method(name).context("--updates")?.max_update = number.parse().with_context(fault)?;
        }
        for name in &self.methods {
            plan.method(name).context("--methods")?;
        }
        if let Some(split) = &self.split {
            plan.translation.split.clone_from(split);
        }
        Ok(plan)
    }

    /// Does what is missing.
    fn run(&self, plan: &Plan) -> Result<Ending> {
        let (Some(parent), Some(data)) = (&self.parent, &self.data) else {
            bail!("--parent and --data are needed")
        };
        let jobs = plan.jobs(parent, &self.session.overrides(OWNED)?).map_err(name_flags);
        let jobs = jobs.with_context(|| format!("--parent {}", parent.display()))?;
        let material = Pairs::open(self.session.sets(data), &TrainConfig::default());
        let text = material.map_err(training::faults::name_flags)?.text();
        finetune::check_data(parent, &text).map_err(training::faults::name_flags)?;
        let test = Test::Translation(plan.translation.clone());
        self.session.run(&session::Study { data, out: &self.out, parent: Some(parent), test: &test }, &jobs)
    }
}
