//! `mae average`: one model from several checkpoints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use mae_model::average::average;

/// Average the parameters of checkpoints (fairseq's average_checkpoints.py).
///
/// Running statistics of gates are averaged, too. The result is a model folder like any other.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae train data-bin --recipe iwslt14-mae7 --save-dir run --set train.keep_last_epochs=5
  mae average run --num-epoch-checkpoints 5 --output run/average
  mae average --inputs a/checkpoint_best b/checkpoint_best --output ab")]
pub struct Args {
    /// Folder of a run, with epoch checkpoints (checkpoint1, checkpoint2, …; see train.keep_last_epochs).
    #[arg(required_unless_present = "inputs", conflicts_with = "inputs")]
    run: Option<PathBuf>,
    /// How many epoch checkpoints to take, the newest ones.
    #[arg(long, value_name = "N", requires = "run", required_unless_present = "inputs")]
    num_epoch_checkpoints: Option<usize>,
    /// The last epoch to take [default: the newest].
    #[arg(long, value_name = "EPOCH", requires = "run")]
    checkpoint_upper_bound: Option<u64>,
    /// Model folders to average.
    #[arg(long, num_args = 1.., value_name = "DIR")]
    inputs: Vec<PathBuf>,
    /// The folder to write.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let inputs = match (&args.run, args.num_epoch_checkpoints) {
        (Some(run), Some(count)) => epoch_checkpoints(run, count, args.checkpoint_upper_bound)?,
        _ => args.inputs,
    };
    ensure!(!inputs.contains(&args.output), "--output {} is one of the inputs", args.output.display());
    average(&inputs)?.save(&args.output).with_context(|| format!("--output {}", args.output.display()))?;
    println!("{}: the mean of {} checkpoints", args.output.display(), inputs.len());
    inputs.iter().for_each(|input| println!("  {}", input.display()));
    Ok(ExitCode::SUCCESS)
}

/// The newest `count` epoch checkpoints of a run, up to an epoch.
fn epoch_checkpoints(run: &Path, count: usize, last: Option<u64>) -> Result<Vec<PathBuf>> {
    ensure!(count > 0, "--num-epoch-checkpoints 0: at least one is needed");
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(run)
        .with_context(|| run.display().to_string())?
        .filter_map(std::result::Result::ok)
        .filter_map(|entry| {
            let epoch = entry.file_name().to_str()?.strip_prefix("checkpoint")?.parse().ok()?;
            Some((epoch, entry.path()))
        })
        .filter(|(epoch, _)| last.is_none_or(|last| *epoch <= last))
        .collect();
    found.sort_unstable();
    if found.len() < count {
        let epochs: Vec<String> = found.iter().map(|(epoch, _)| epoch.to_string()).collect();
        bail!(
            "{} holds {} epoch checkpoints{}, {count} are wanted; train with train.keep_last_epochs = {count} or more",
            run.display(),
            found.len(),
            if epochs.is_empty() { String::new() } else { format!(" (epochs {})", epochs.join(", ")) }
        );
    }
    Ok(found.split_off(found.len() - count).into_iter().map(|(_, path)| path).collect())
}
