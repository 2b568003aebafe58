//! Processes that train together: started by mpirun, srun or torchrun, or named by fairseq's flags.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use mae_engine::collective::{Launch, Launcher, Place, Team, Transport};
use mae_engine::{Device, Error as EngineError};
use mae_train::Error;

use super::faults::name_flags;
use crate::exit::ExitCode;

/// Flags of fairseq for several processes.
#[derive(clap::Args)]
#[command(next_help_heading = "Several processes")]
pub struct RanksArgs {
    /// Number of processes [default: from mpirun, srun or torchrun]; another number than was started is refused.
    #[arg(long, value_name = "N")]
    distributed_world_size: Option<usize>,
    /// Number of this process, from 0, without a launcher; needs --distributed-init-method.
    #[arg(long, value_name = "RANK", requires = "distributed_init_method")]
    distributed_rank: Option<usize>,
    /// Address of rank 0, without a launcher.
    #[arg(long, value_name = "tcp://HOST:PORT", requires = "distributed_rank")]
    distributed_init_method: Option<String>,
}

/// Numbers in which gradients travel, for benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DdpDtype {
    #[default]
    F32,
    Bf16,
}

impl DdpDtype {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl From<DdpDtype> for Transport {
    fn from(dtype: DdpDtype) -> Self {
        match dtype {
            DdpDtype::F32 => Self::F32,
            DdpDtype::Bf16 => Self::Bf16,
        }
    }
}

impl RanksArgs {
    /// The launch of this process, by flags or by the environment; `None` if it trains alone.
    pub fn launch(&self) -> Result<Option<Launch>> {
        let found = match (self.distributed_rank, &self.distributed_init_method) {
            (Some(rank), Some(method)) => {
                let size = self
                    .distributed_world_size
                    .context("--distributed-rank needs --distributed-world-size")?;
                ensure!(
                    rank < size,
                    "--distributed-rank {rank} of --distributed-world-size {size}: ranks count from 0"
                );
                let Some(address) = method.strip_prefix("tcp://") else {
                    bail!("--distributed-init-method {method}: expected tcp://HOST:PORT");
                };
                let place = Place { rank, size, local_rank: rank, local_size: 1 };
                let address = Some(address.to_owned());
                Some(Launch { launcher: Launcher::Torchrun, place, address }).filter(|_| size > 1)
            }
            _ => Launch::from_environment()?,
        };
        let started = found.as_ref().map_or(1, |launch| launch.place.size);
        if let Some(size) = self.distributed_world_size.filter(|&size| size != started) {
            bail!(
                "--distributed-world-size {size}, but {started} {} started: use mpirun -n {size}, srun -n {size} or torchrun \
                 --nproc-per-node {size} (docs/distributed.md); --update-freq {size} gives the same updates with one process",
                if started == 1 { "process was" } else { "processes were" }
            );
        }
        Ok(found)
    }
}

/// Threads of a task of Slurm at most.
const MOST_OF_TASK: usize = 1024;

/// Threads of a process that shares its machine with others of the same launch; `None` if it is alone there, or if
/// RAYON_NUM_THREADS says how many.
pub fn share_of_cores() -> Option<usize> {
    if std::env::var_os("RAYON_NUM_THREADS").is_some() {
        return None;
    }
    let Launch { launcher, place, .. } = Launch::from_environment().ok().flatten()?;
    let of_task = std::env::var("SLURM_CPUS_PER_TASK").ok().and_then(|text| text.parse::<usize>().ok());
    if let (Launcher::Slurm, Some(cores @ 1..)) = (launcher, of_task) {
        return Some(cores.min(MOST_OF_TASK));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (place.local_size > 1).then(|| (cores / place.local_size).max(1))
}

/// Connects the processes of a launch, which compute on `device`.
pub fn team(launch: Option<&Launch>, device: &Device) -> Result<Team> {
    let rank = launch.map_or(0, |launch| launch.place.rank);
    let of_rank = || format!("rank {rank}");
    let team = Team::start(launch).with_context(of_rank)?.with_device(device).with_context(of_rank)?;
    if team.may_hang() {
        team.host().on_loss(Box::new(move |error| {
            writeln!(std::io::stderr(), "mae: rank {rank}: {}", of_loss(error)).ok();
            // At once: what libraries do when a program ends may wait for the rank.
            signal_hook::low_level::exit(1);
        }));
    }
    Ok(team)
}

/// The error of a rank that has ended, with what to do.
fn of_loss(error: &EngineError) -> String {
    format!("{error}; the last checkpoint is whole, and the same command resumes from it")
}

/// The error of a run. What all ranks report alike, the first one prints for all.
pub fn failure(place: Place, error: Error) -> Result<ExitCode> {
    let of_rank = |text: String| match place.is_alone() {
        true => anyhow::Error::msg(text),
        false => anyhow::Error::msg(format!("rank {}: {text}", place.rank)),
    };
    match error {
        Error::NotFinite(_) | Error::Diverged(_) | Error::Ranks { .. } if !place.is_first() => {
            Ok(ExitCode::FAILURE)
        }
        Error::Engine(error @ EngineError::Peer { .. }) => Err(of_rank(of_loss(&error))),
        error if place.is_alone() || place.is_first() => Err(name_flags(error)),
        error => Err(of_rank(name_flags(error).to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(size: Option<usize>, rank: Option<usize>, method: Option<&str>) -> RanksArgs {
        RanksArgs {
            distributed_world_size: size,
            distributed_rank: rank,
            distributed_init_method: method.map(str::to_owned),
        }
    }

    #[test]
    fn flags_of_fairseq_name_a_launch() {
        let launch = args(Some(3), Some(2), Some("tcp://n1:4000")).launch().unwrap().unwrap();
        assert_eq!((launch.place.rank, launch.place.size), (2, 3));
        assert_eq!(launch.address.as_deref(), Some("n1:4000"));
        assert!(args(Some(1), None, None).launch().unwrap().is_none());
        let refused = |args: RanksArgs| args.launch().unwrap_err().to_string();
        assert!(refused(args(Some(8), None, None)).contains("mpirun -n 8"));
        assert!(refused(args(Some(2), Some(2), Some("tcp://n1:4000"))).contains("count from 0"));
        assert!(refused(args(Some(2), Some(1), Some("file:///x"))).contains("tcp://HOST:PORT"));
    }
}
