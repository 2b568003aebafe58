//! `mae doctor`: hardware and libraries of this machine, their correctness and their speed.

mod kernels;
mod machine;

use mae_engine::suite::Choice;

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  Describe this machine and measure its speed:
    mae doctor

  Compare every op of the GPU with the CPU; the exit code is 1 if one is wrong:
    mae doctor --kernels
    mae doctor --kernels --filter attention --numbers f32
    compute-sanitizer --tool racecheck mae doctor --kernels --small \\
        --numbers bf16

MAE_CUDA_LIBS lists folders (separated by colons) to search for CUDA's libraries after the system's.
MAE_CACHE names the folder for compiled kernels, in place of your cache folder.";

/// Check this machine: CUDA libraries, GPUs, kernels and speed.
///
/// With --kernels, every op of the GPU is compared with the CPU. A GPU is not required: without one, the command says
/// why none can be used.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Run every op on the GPU and on the CPU and print the differences, the worst last.
    #[arg(long)]
    kernels: bool,
    /// Run only ops and cases whose line contains this text.
    #[arg(long, value_name = "TEXT", default_value = "", requires = "kernels", hide_default_value = true)]
    filter: String,
    /// Skip the large cases: for sanitizers, under which kernels are a hundred times slower.
    #[arg(long, requires = "kernels")]
    small: bool,
    /// Number type on the GPU.
    #[arg(long, value_name = "TYPE", default_value = "both", requires = "kernels")]
    numbers: kernels::Modes,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.kernels {
        true => kernels::run(args.numbers, Choice { filter: &args.filter, small: args.small }, args.json),
        false => machine::run(args.json),
    }
}
