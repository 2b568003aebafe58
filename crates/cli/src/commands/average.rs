//! `mae average`: one model from several checkpoints.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use mae_model::average::average;
use mae_train::config::Metric;
use mae_train::kept;

use crate::exit::ExitCode;
use crate::outputs::check_model_place;

const EXAMPLES: &str = "\
Examples:
  Train and keep five epochs, then average them:
    mae train data-bin --recipe iwslt14-mae7 --save-dir run \\
        --set train.keep_last_epochs=5
    mae average run --num-epoch-checkpoints 5 --output run/average

  Average checkpoints that were saved by update, up to update 60,000:
    mae average run --num-update-checkpoints 5 --checkpoint-upper-bound 60000 \\
        --output run/average

  Average the three best checkpoints, or any model folders:
    mae average run --num-best-checkpoints 3 --output run/average-best
    mae average --inputs a/checkpoint_best b/checkpoint_best --output ab";

/// Average the parameters of checkpoints (fairseq's average_checkpoints.py).
///
/// Running statistics of gates are averaged as well. The result is an ordinary model folder.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder of a run that keeps checkpoints (train.keep_last_epochs, keep_interval_updates, keep_best_checkpoints).
    #[arg(required_unless_present = "inputs", conflicts_with = "inputs", requires = "count")]
    run: Option<PathBuf>,
    /// Average the newest N epoch checkpoints (checkpoint7).
    #[arg(long, value_name = "N", group = "count")]
    num_epoch_checkpoints: Option<usize>,
    /// Average the newest N checkpoints that were saved by update (checkpoint_7_12000).
    #[arg(long, value_name = "N", group = "count")]
    num_update_checkpoints: Option<usize>,
    /// Average the N best checkpoints (checkpoint.best_bleu_34.5600_12000).
    #[arg(long, value_name = "N", group = "count")]
    num_best_checkpoints: Option<usize>,
    /// Metric of the best checkpoints, if the run has kept both kinds.
    #[arg(long = "best-checkpoint-metric", value_name = "METRIC", requires = "num_best_checkpoints")]
    metric: Option<BestBy>,
    /// Ignore checkpoints after this epoch, or after this update for checkpoints saved by update.
    #[arg(long, value_name = "NUMBER", requires = "count")]
    checkpoint_upper_bound: Option<u64>,
    /// Model folders to average; with --num-…-checkpoints the folder of a run, as in fairseq.
    #[arg(long, num_args = 1.., value_name = "DIR")]
    inputs: Vec<PathBuf>,
    /// Folder to write.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BestBy {
    Loss,
    Bleu,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let counts = args.num_epoch_checkpoints.or(args.num_update_checkpoints).or(args.num_best_checkpoints);
    let inputs = match (&args.run, &args.inputs[..], counts) {
        (Some(run), ..) | (None, [run], Some(_)) => choose(run, &args)?,
        (None, _, Some(_)) => bail!("--num-…-checkpoints chooses among those of one run: give one folder"),
        (None, _, None) => args.inputs,
    };
    check_model_place("--output", &args.output, &inputs)?;
    average(&inputs, &args.output)?;
    println!("{}: the mean of {} checkpoints", args.output.display(), inputs.len());
    inputs.iter().for_each(|input| println!("  {}", input.display()));
    Ok(ExitCode::SUCCESS)
}

/// Checkpoints that the flags select.
fn choose(run: &Path, args: &Args) -> Result<Vec<PathBuf>> {
    let (found, count, kind, key) =
        match (args.num_epoch_checkpoints, args.num_update_checkpoints, args.num_best_checkpoints) {
            (Some(n), _, _) => (kept::epochs(run)?, n, "epoch", "keep_last_epochs"),
            (_, Some(n), _) => (kept::intervals(run)?, n, "update", "keep_interval_updates"),
            (_, _, Some(n)) => (best(run, args.metric)?, n, "best", "keep_best_checkpoints"),
            _ => unreachable!("the flags are checked when they are read"),
        };
    ensure!(count > 0, "--num-{kind}-checkpoints 0: at least one is needed");
    let bound = args.checkpoint_upper_bound.unwrap_or(u64::MAX);
    let mut found: Vec<(u64, PathBuf)> = found.into_iter().filter(|(number, _)| *number <= bound).collect();
    if found.len() < count {
        let numbers: Vec<String> = found.iter().map(|(number, _)| number.to_string()).collect();
        let unit = if kind == "epoch" { "epochs" } else { "updates" };
        bail!(
            "{} holds {} {kind} checkpoints{} but {count} are needed; train with train.{key} = {count} or more",
            run.display(),
            found.len(),
            if numbers.is_empty() { String::new() } else { format!(" ({unit} {})", numbers.join(", ")) }
        );
    }
    Ok(found.split_off(found.len() - count).into_iter().map(|(_, path)| path).collect())
}

/// Best checkpoints with their updates, in rising order.
fn best(run: &Path, metric: Option<BestBy>) -> Result<Vec<(u64, PathBuf)>> {
    let of = |metric: Metric| kept::best(run, metric);
    let mut best = match metric {
        Some(BestBy::Loss) => of(Metric::Loss)?,
        Some(BestBy::Bleu) => of(Metric::Bleu)?,
        None => {
            let (loss, bleu) = (of(Metric::Loss)?, of(Metric::Bleu)?);
            ensure!(
                loss.is_empty() || bleu.is_empty(),
                "{} holds best checkpoints by loss and by BLEU; choose one kind with --best-checkpoint-metric",
                run.display()
            );
            if loss.is_empty() { bleu } else { loss }
        }
    };
    best.reverse();
    Ok(best.into_iter().map(|best| (best.updates, best.path)).collect())
}
