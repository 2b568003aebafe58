//! `mae bench`: how fast this machine trains and translates, beside a peer in the same run.

mod decode;
mod measurement;
mod peer;
mod shapes;
mod steps;
mod train;
mod train_lm;

use std::process::ExitCode;

/// Measure training and translation speed on made-up data of realistic lengths.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Train(train::Args),
    TrainLm(train_lm::Args),
    Decode(decode::Args),
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Train(args) => train::run(args)?,
        What::TrainLm(args) => train_lm::run(args)?,
        What::Decode(args) => decode::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
