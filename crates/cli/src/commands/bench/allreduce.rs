//! `mae bench allreduce`: time of the sum of gradients over all processes.

use std::time::Duration;

use anyhow::{Result, ensure};
use mae_engine::collective::Ending;
use serde::Serialize;

use super::steps::median;
use crate::device::DeviceArgs;
use crate::training::ranks::{self, DdpDtype, RanksArgs};

const EXAMPLES: &str = "\
Examples:
  Time of sums over two processes:
    mpirun -n 2 mae bench allreduce --device cpu

  Over all GPUs of a machine, for gradients of 42 M parameters (160 MiB):
    torchrun --no-python --nproc-per-node 8 mae bench allreduce --mib 160

  Between two machines, without a launcher; --distributed-rank 1 on the other one:
    mae bench allreduce --distributed-world-size 2 --distributed-rank 0 \\
        --distributed-init-method tcp://node1:4000";

/// Measure the sum of gradients over several processes, as JSON for machines or a table.
///
/// Started by mpirun, srun or torchrun, like `mae train`. On CPUs and through host memory the sum has the order of the
/// ranks; on GPUs of their own it is NCCL's.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Sizes in MiB of 32-bit numbers.
    #[arg(long, value_delimiter = ',', default_value = "1,16,160", value_name = "MIB,…")]
    mib: Vec<usize>,
    /// Sums of each size; the table has the median.
    #[arg(long, default_value_t = 7, value_name = "N")]
    rounds: usize,
    /// Numbers in which they travel; with bf16, the GB/s are of half the bytes.
    #[arg(long, value_enum, default_value_t, value_name = "TYPE")]
    ddp_dtype: DdpDtype,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    ranks: RanksArgs,
}

/// A line of the result.
#[derive(Serialize)]
struct Line {
    ranks: usize,
    mib: usize,
    ddp_dtype: &'static str,
    ms: f64,
    /// Bytes that each rank sends and receives in a second, in units of 10⁹: 2·(K−1)/K times those of the numbers as they
    /// travel.
    gb_per_s: f64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds 0: at least one sum is needed");
    ensure!(args.mib.iter().all(|mib| (1..=65_536).contains(mib)), "--mib: sizes are from 1 to 65536 MiB");
    let launch = args.ranks.launch()?;
    let device = args.device.open_for(launch.as_ref().map_or(0, |launch| launch.place.local_rank))?;
    let team = ranks::team(launch.as_ref(), &device)?.sending(args.ddp_dtype.into());
    let place = team.place();
    if place.is_first() && !args.json {
        println!("{}", team.describe().unwrap_or_else(|| "one process: there is nothing to sum".to_owned()));
    }
    for &mib in &args.mib {
        let count = mib * (1 << 20) / size_of::<f32>();
        // The first one allocates.
        let times = team.time_sums(&device, count, args.rounds + 1)?;
        let seconds = median(times.iter().skip(1).map(Duration::as_secs_f64).collect());
        let share = 2.0 * (place.size - 1) as f64 / place.size as f64;
        let gb_per_s = share * (args.ddp_dtype.bytes() * count) as f64 / seconds / 1e9;
        let ddp_dtype = args.ddp_dtype.name();
        let line = Line { ranks: place.size, mib, ddp_dtype, ms: 1e3 * seconds, gb_per_s };
        match (place.is_first(), args.json) {
            (false, _) => {}
            (true, true) => println!("{}", serde_json::to_string(&line)?),
            (true, false) => {
                println!("{:6} MiB, {ddp_dtype} {:10.3} ms {:8.2} GB/s", line.mib, line.ms, line.gb_per_s);
            }
        }
    }
    team.host().barrier()?;
    team.host().leave(Ending::Finished);
    Ok(())
}
