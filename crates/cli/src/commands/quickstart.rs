//! `mae quickstart`: the whole story on a corpus that the program makes itself.

mod tables;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use mae_study::Error;
use mae_study::error::QuickstartFault;
use mae_study::quickstart::Quickstart;
use mae_train::log::Event;
use mae_train::run::{Observer, RunSummary};

use crate::progress;
use crate::studies::faults;

const EXAMPLES: &str = "\
Examples:
  Train MAE-7:
    mae quickstart

  Train the plain transformer with another seed, into another folder:
    mae quickstart --system base --seed 2 --dir quickstart-base

  Compare four systems:
    mae quickstart --compare --json";

/// Make a corpus, train a mixture of attentive experts on it, translate held-out lines: about two minutes on two cores.
///
/// The corpus is English number words, dates, times and prices with their German translations, from a grammar in the
/// program. Everything (text, codes, model, log) is written to --dir.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// System of the paper: base, nobcd, uni-mae7, uni-mae6, mae7, mae6.
    #[arg(long, default_value = "mae7", value_name = "NAME")]
    system: String,
    /// Sentence pairs to train on.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    pairs: usize,
    /// Seed of the corpus and of the training.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where everything goes; the folder of an earlier quickstart is used again, and texts and runs of others are refused.
    #[arg(long, default_value = "mae-quickstart", value_name = "DIR")]
    dir: PathBuf,
    /// Updates to train for [default: 900].
    #[arg(long, value_name = "N")]
    updates: Option<u64>,
    /// Train BASE, uni-MAE-7, NoBCD and MAE-7 under one budget and print them side by side.
    #[arg(long, conflicts_with = "system")]
    compare: bool,
    /// Print one JSON object (with --compare: an array of them).
    #[arg(long)]
    json: bool,
}

/// Updates between two lines of progress, about, where there is no terminal for a bar.
const SAY_EVERY: u64 = 100;

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let job = Quickstart { pairs: args.pairs, seed: args.seed, folder: args.dir, updates: args.updates };
    let data = job.prepare().map_err(name_flags)?;
    let systems =
        if args.compare { vec!["base", "uni-mae7", "nobcd", "mae7"] } else { vec![args.system.as_str()] };
    let mut reports = Vec::new();
    for system in &systems {
        let mut progress = Progress::new(&job, system, args.json)?;
        reports.push(job.run(&data, system, &mut progress).map_err(name_flags)?);
    }
    match (args.json, reports.as_slice()) {
        (true, [report]) => println!("{}", serde_json::to_string(report)?),
        (true, reports) => println!("{}", serde_json::to_string(reports)?),
        (false, [report]) => tables::print(report),
        (false, reports) => tables::print_comparison(reports),
    }
    Ok(ExitCode::SUCCESS)
}

/// The same error with the flag that it is about.
fn name_flags(error: Error) -> anyhow::Error {
    match &error {
        Error::Quickstart(QuickstartFault::Pairs { .. }) => anyhow!("--pairs: {error}"),
        Error::Quickstart(QuickstartFault::Updates) => anyhow!("--updates: {error}"),
        Error::Quickstart(_) => anyhow!("{error}, or choose another --dir"),
        _ => faults::name_flags(error),
    }
}

/// A bar over the updates; lines where there is no terminal.
struct Progress<'a> {
    system: &'a str,
    updates: u64,
    bar: ProgressBar,
    quiet: bool,
    next_line: u64,
}

impl<'a> Progress<'a> {
    fn new(job: &Quickstart, system: &'a str, quiet: bool) -> Result<Self> {
        let updates = job.config(system).map_err(name_flags)?.train.max_update;
        let bar = match quiet {
            true => ProgressBar::hidden(),
            false => progress::bar(updates, &format!("training {system}")),
        };
        Ok(Self { system, updates, bar, quiet, next_line: SAY_EVERY })
    }
}

impl Observer for Progress<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Update { .. } => self.bar.inc(1),
            Event::Train(line) => {
                let (number, loss) = (line.num_updates, format!("loss {:.2} bits/token", line.loss));
                if self.bar.is_hidden() && !self.quiet && number >= self.next_line {
                    eprintln!("training {}: update {number} of {}, {loss}", self.system, self.updates);
                    self.next_line = number - number % SAY_EVERY + SAY_EVERY;
                }
                self.bar.set_message(loss);
            }
            _ => {}
        }
    }

    fn finished(&mut self, _: &RunSummary) {
        self.bar.finish_and_clear();
    }
}
