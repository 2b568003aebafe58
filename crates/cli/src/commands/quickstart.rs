//! `mae quickstart`: the whole story on a corpus that the program makes itself.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::quickstart::{Quickstart, print_comparison};

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

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let job = Quickstart { pairs: args.pairs, seed: args.seed, folder: args.dir, updates: args.updates };
    let data = job.prepare()?;
    let systems =
        if args.compare { vec!["base", "uni-mae7", "nobcd", "mae7"] } else { vec![args.system.as_str()] };
    let mut reports = Vec::new();
    for system in &systems {
        reports.push(job.run(&data, system, args.json)?);
    }
    match (args.json, reports.as_slice()) {
        (true, [report]) => println!("{}", serde_json::to_string(report)?),
        (true, reports) => println!("{}", serde_json::to_string(reports)?),
        (false, [report]) => report.print(),
        (false, reports) => print_comparison(reports),
    }
    Ok(ExitCode::SUCCESS)
}
