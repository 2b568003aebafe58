//! `mae quantize`: a model folder of 8-bit integers.

use std::path::PathBuf;

use anyhow::{Context, Result};
use mae_model::quantise::{Quantised, quantise};

use crate::exit::ExitCode;
use crate::model_arg::model_folder;
use crate::outputs::check_model_place;

const EXAMPLES: &str = "\
Examples:
  Make a model a quarter of its size, and translate with it on a CPU:
    mae quantize runs/de-en/checkpoint_best --out de-en-int8
    mae translate de-en-int8 news.de --device cpu";

/// Write a model with 8-bit weights, a quarter of the size, for translation on CPUs.
///
/// Large matrices become whole numbers from -127 to 127 with a scale for each row; vectors, norms, running statistics
/// and small matrices stay as they are. The folder computes what `--compute-type int8` computes with the given model.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    /// Folder to write.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    check_model_place("--out", &args.out, &[&args.model])?;
    let Quantised { before, after } =
        quantise(&args.model, &args.out).with_context(|| format!("model {}", args.model.display()))?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{}: {:.1} MB of weights, {:.1} MB before",
        args.out.display(),
        megabytes(after),
        megabytes(before)
    );
    Ok(ExitCode::SUCCESS)
}
