//! `mae bench`: speed of training and translation on this machine, beside a peer in the same run.

mod allreduce;
mod decode;
mod measurement;
mod overlap;
mod peer;
mod serve;
mod shapes;
mod steps;
mod train;
mod train_lm;

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  Measure training of the plain transformer and of MAE-7:
    mae bench train --variants base,mae7

  Measure training of a language model on the first GPU:
    mae bench train-lm --device cuda

  Measure greedy and beam search:
    mae bench decode --threads 2

  Measure a running server:
    mae bench serve --pair de-en --source test.de --rates 5,10,20

  Measure the sum of gradients over two processes:
    mpirun -n 2 mae bench allreduce --device cpu

  And how much of it is hidden behind the step:
    mpirun -n 2 mae bench train --overlap --variants base --device cpu --steps 3";

/// Measure the speed of training and translation on random data of realistic lengths.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Train(train::Args),
    TrainLm(train_lm::Args),
    Decode(decode::Args),
    Serve(serve::Args),
    Allreduce(allreduce::Args),
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Train(args) => train::run(args)?,
        What::TrainLm(args) => train_lm::run(args)?,
        What::Decode(args) => decode::run(args)?,
        What::Serve(args) => serve::run(&args)?,
        What::Allreduce(args) => allreduce::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
