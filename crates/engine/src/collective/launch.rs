//! Ranks from the environment that a launcher has set: mpirun, srun or torchrun.

use crate::{Error, Result};

/// Place of a process among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Its number among the processes of this machine.
    pub local_rank: usize,
    /// Number of processes on this machine.
    pub local_size: usize,
}

impl Place {
    /// The place of a process that works alone.
    pub const ALONE: Self = Self { rank: 0, size: 1, local_rank: 0, local_size: 1 };

    /// Returns true for the rank that logs and saves.
    pub fn is_first(self) -> bool {
        self.rank == 0
    }

    /// Returns true if there are no others.
    pub fn is_alone(self) -> bool {
        self.size == 1
    }
}

/// Launcher whose variables were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `torchrun`, or the same variables set by hand.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Mpich,
    /// `srun`.
    Slurm,
}

/// A launch of several processes, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher.
    pub launcher: Launcher,
    /// Place of this process, as far as the variables tell.
    pub place: Place,
    /// Address of rank 0, `host:port`, if the launcher gives one.
    pub address: Option<String>,
}

impl Launch {
    /// Reads the environment; `None` if this process was started alone.
    pub fn from_environment() -> Result<Option<Self>> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads variables by name. Those of torchrun come first, as people also set them by hand.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &str| -> Result<Option<usize>> {
            let Some(text) = get(name) else { return Ok(None) };
            let fault = || Error::Launch(format!("the variable {name} is `{text}`, not a number"));
            text.trim().parse().map(Some).map_err(|_| fault())
        };
        let place = |[rank, size, local_rank, local_size]: [&str; 4]| -> Result<Option<Place>> {
            let (Some(rank), Some(size)) = (number(rank)?, number(size)?) else { return Ok(None) };
            let place = Place {
                rank,
                size,
                local_rank: number(local_rank)?.unwrap_or(0),
                local_size: number(local_size)?.unwrap_or(1).max(1),
            };
            if place.rank >= place.size {
                return Err(Error::Launch(format!("rank {rank} of {size} processes: ranks count from 0")));
            }
            Ok(Some(place).filter(|place| !place.is_alone()))
        };
        let found = |launcher: Launcher, place: Place, address: Option<String>| {
            Ok(Some(Self { launcher, place, address }))
        };
        if let (Some(host), Some(place)) =
            (get("MASTER_ADDR"), place(["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])?)
        {
            let port = number("MASTER_PORT")?.unwrap_or(DEFAULT_PORT);
            // The agent of torchrun listens at the port itself.
            let taken = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
            let port = port + usize::from(taken);
            return found(Launcher::Torchrun, place, Some(format!("{host}:{port}")));
        }
        if let Some(place) = place([
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ])? {
            return found(Launcher::OpenMpi, place, None);
        }
        if let Some(place) = place(["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"])? {
            return found(Launcher::Mpich, place, None);
        }
        // Variables of a step, which srun sets: those of the job are also there for a plain command of a batch script.
        if let Some(mut place) = place(["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "-"])? {
            let tasks = get("SLURM_STEP_TASKS_PER_NODE");
            place.local_size = tasks.and_then(|text| first_number(&text)).unwrap_or(1).max(1);
            let nodes = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_JOB_NODELIST"));
            let host = get("MASTER_ADDR").or_else(|| nodes.as_deref().map(first_host));
            let job = number("SLURM_JOB_ID")?.unwrap_or(0);
            let step = number("SLURM_STEP_ID").ok().flatten().unwrap_or(0);
            // The same on all ranks, and seldom that of another job on the same machine.
            let port = number("MASTER_PORT")?.unwrap_or(20_000 + (131 * job + step) % 20_000);
            return found(Launcher::Slurm, place, host.map(|host| format!("{host}:{port}")));
        }
        Ok(None)
    }
}

/// Port of torchrun.
const DEFAULT_PORT: usize = 29_500;

/// The first number of `4(x2),3`.
fn first_number(text: &str) -> Option<usize> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The first host of Slurm's list, `node[03-07,12],other`.
fn first_host(list: &str) -> String {
    let Some((stem, rest)) = list.split_once('[').filter(|(stem, _)| !stem.contains(',')) else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    let end = rest.find(['-', ',', ']']).unwrap_or(rest.len());
    let after = rest.split_once(']').map_or("", |(_, after)| after).split(',').next().unwrap_or("");
    format!("{stem}{}{after}", &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Launch::from_variables(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn every_launcher_is_recognised() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29400"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        let found = launch(&torchrun).unwrap().unwrap();
        assert_eq!(found.place, Place { rank: 3, size: 8, local_rank: 1, local_size: 2 });
        assert_eq!(found.address.as_deref(), Some("n1:29401"));
        let mpich =
            [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(launch(&mpich).unwrap().unwrap().launcher, Launcher::Mpich);
        let open = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(launch(&open).unwrap().unwrap().launcher, Launcher::OpenMpi);
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("SLURM_STEP_NODELIST", "gpu[07-09]"),
            ("SLURM_JOB_ID", "1000"),
            ("SLURM_STEP_ID", "2"),
        ];
        let found = launch(&slurm).unwrap().unwrap();
        assert_eq!(found.place, Place { rank: 5, size: 6, local_rank: 1, local_size: 2 });
        assert_eq!(found.address.as_deref(), Some("gpu07:31002"));
    }

    #[test]
    fn a_process_alone_is_not_a_launch() {
        assert_eq!(launch(&[]).unwrap(), None);
        // A plain command of a batch script.
        assert_eq!(launch(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).unwrap(), None);
        assert_eq!(launch(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap(), None);
        let error = launch(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).unwrap_err().to_string();
        assert!(error.contains("PMI_RANK is `x`"), "{error}");
        assert!(launch(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).is_err());
    }

    #[test]
    fn hosts_of_slurm() {
        for (list, host) in [
            ("a1", "a1"),
            ("a1,b2", "a1"),
            ("n[3,5-7]", "n3"),
            ("n[03-07]-ib,x", "n03-ib"),
            ("a,n[1-2]", "a"),
        ] {
            assert_eq!(first_host(list), host);
        }
    }
}
