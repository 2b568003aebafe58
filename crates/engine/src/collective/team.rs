//! Back ends of a run, chosen by launcher and device.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::nccl::{self, Kind, Nccl};
use super::rendezvous::host;
use super::sum::slices_of;
use super::{Alone, Collective, Launch, Launcher, Mpi, OrderedSum, Place, Tcp, Transport, step};
use crate::cuda::halves::{from_halves, to_halves};
use crate::cuda::memory::Block;
use crate::device::Buffer;
use crate::params::{GroupId, Params};
use crate::{Device, Error, Result};

/// Variable that chooses a back end: `tcp`, `mpi`, or `nccl`, which demands NCCL, also of one process.
const CHOICE: &str = "MAE_COLLECTIVE";

/// In place of the number of a GPU.
const CPU: &str = "cpu";

/// When gradients are summed over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// While the walk back goes on if that is faster: among several ranks by NCCL, and between machines. Ranks of one
    /// machine without NCCL exchange gradients by work of the cores that compute them.
    #[default]
    Auto,
    /// While the walk back goes on.
    Always,
    /// After it.
    Never,
}

/// The ranks of a run. Clones share connections.
#[derive(Clone)]
pub struct Team {
    host: Arc<dyn Collective>,
    nccl: Option<Arc<Nccl>>,
    /// The way of gradients, where it needs words.
    note: String,
    transport: Transport,
    overlap: Overlap,
    /// Values of a slice of gradients at least.
    slice: Option<usize>,
}

impl Team {
    /// One process.
    pub fn alone() -> Self {
        Self::of(Arc::new(Alone))
    }

    /// Ranks over a back end of the host.
    pub fn of(host: Arc<dyn Collective>) -> Self {
        Self {
            host,
            nccl: None,
            note: String::new(),
            transport: Transport::F32,
            overlap: Overlap::Auto,
            slice: None,
        }
    }

    /// Connects the processes of a launch.
    pub fn start(launch: Option<&Launch>) -> Result<Self> {
        let Some(launch) = launch else { return Ok(Self::alone()) };
        let choice = std::env::var(CHOICE).unwrap_or_default();
        let by_mpi = match (choice.as_str(), launch.launcher) {
            ("mpi", _) => true,
            ("tcp", _) => false,
            (_, Launcher::OpenMpi | Launcher::Mpich) => true,
            (_, Launcher::Torchrun | Launcher::Slurm) => false,
        };
        if by_mpi {
            return Ok(Self::of(Arc::new(Mpi::start(launch.launcher, launch.place)?)));
        }
        let address = launch.address.as_deref().ok_or_else(|| {
            Error::Launch(
                "no address of rank 0 was given: set MASTER_ADDR, and MASTER_PORT if its default is taken"
                    .into(),
            )
        })?;
        Ok(Self::of(Arc::new(Tcp::connect(launch.place, address)?)))
    }

    /// Lets gradients be summed on GPUs by NCCL where all ranks have it and each has a GPU of its own; otherwise they go
    /// through the memory of the host. All ranks call it.
    pub fn with_device(mut self, device: &Device) -> Result<Self> {
        let demanded = std::env::var(CHOICE).is_ok_and(|choice| choice == "nccl");
        if self.place().is_alone() && !(demanded && device.is_gpu()) {
            return Ok(self);
        }
        let shared = std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1");
        let identity = device.gpu().map_or_else(|| CPU.to_owned(), |gpu| gpu.identity());
        let missing = if device.is_gpu() { nccl::missing().unwrap_or_default() } else { String::new() };
        let own = format!("{}\n{identity}\n{missing}", host());
        let all = self.host.gather(own.as_bytes())?;
        let texts: Vec<String> =
            all.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        let part = |text: &'_ str, at: usize| text.split('\n').nth(at).unwrap_or_default().to_owned();
        let gpus: Vec<(String, String)> = texts.iter().map(|text| (part(text, 0), part(text, 1))).collect();
        let with_gpu = gpus.iter().position(|(_, identity)| identity != CPU);
        let without = gpus.iter().position(|(_, identity)| identity == CPU);
        if let (Some(with), Some(without)) = (with_gpu, without) {
            let why =
                format!("rank {with} computes on a GPU and rank {without} on the CPU: all must do the same");
            return Err(Error::Launch(why));
        }
        let Some(gpu) = device.gpu() else { return Ok(self) };
        let twice = !shared && gpus.iter().enumerate().any(|(i, gpu)| gpus[..i].contains(gpu));
        let lacking = texts.iter().position(|text| !part(text, 2).is_empty());
        let obstacle = match lacking {
            Some(rank) => Some(format!("rank {rank}: {}", part(&texts[rank], 2))),
            None if twice => Some("several ranks share a GPU".to_owned()),
            None => None,
        };
        match obstacle {
            None => {
                let nccl = Nccl::connect(gpu, &*self.host)?;
                self.note = format!("gradients by NCCL {}", nccl.version());
                self.nccl = Some(Arc::new(nccl));
            }
            Some(why) if demanded => return Err(Error::Launch(format!("NCCL cannot be used: {why}"))),
            Some(why) => self.note = format!("gradients through host memory ({why})"),
        }
        Ok(self)
    }

    /// Lets gradients travel in these numbers.
    #[must_use]
    pub fn sending(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Lets slices of gradients be summed while the walk back goes on, or all of them after it.
    #[must_use]
    pub fn overlapping(self, overlap: Overlap) -> Self {
        Self { overlap, ..self }
    }

    /// Divides gradients into slices of at least so many values, for tests: small models are one slice otherwise.
    #[must_use]
    pub fn in_slices_of(self, values: usize) -> Self {
        Self { slice: Some(values), ..self }
    }

    /// Values of a slice at least, if nothing else was asked for.
    pub(super) fn slice_or(&self, usual: usize) -> usize {
        self.slice.unwrap_or(usual)
    }

    pub(super) fn overlaps(&self) -> bool {
        let Place { size, local_size, .. } = self.place();
        match self.overlap {
            Overlap::Auto => size > 1 && (self.nccl.is_some() || local_size < size),
            Overlap::Always => true,
            Overlap::Never => false,
        }
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Sums values of the host over all ranks, the way gradients go.
    pub(super) fn sum(&self, values: &mut [f32]) -> Result<()> {
        let mut sum = OrderedSum::by(self.transport);
        sum.add(&*self.host, values, self.place().size)?;
        sum.finish(&*self.host, values)
    }

    /// Returns the place of this process.
    pub fn place(&self) -> Place {
        self.host.place()
    }

    /// Returns the back end of the host.
    pub fn host(&self) -> &dyn Collective {
        &*self.host
    }

    pub(super) fn nccl(&self) -> Option<&Nccl> {
        self.nccl.as_deref()
    }

    /// Returns true if gradients have to be summed even with one batch: there are other ranks, or NCCL was demanded.
    pub fn sums(&self) -> bool {
        !self.place().is_alone() || self.nccl.is_some()
    }

    /// Returns true if a call may wait for ever for a rank that has ended; then [`Collective::on_loss`] is needed.
    pub fn may_hang(&self) -> bool {
        self.nccl.is_some() || self.host.may_hang()
    }

    /// Returns a description for people; `None` for one process without NCCL.
    pub fn describe(&self) -> Option<String> {
        let note = if self.note.is_empty() { String::new() } else { format!(", {}", self.note) };
        self.sums().then(|| self.host.describe() + &note)
    }

    /// Sums `count` values over all ranks, the way gradients go, and returns the times of so many sums. On a GPU without
    /// NCCL, the copies to and from the host are part of them.
    pub fn time_sums(&self, device: &Device, count: usize, rounds: usize) -> Result<Vec<Duration>> {
        let mut buffer = device.zeros(count);
        let mut sum = OrderedSum::by(self.transport);
        let mut on_host = |values: &mut [f32]| {
            sum.add(&*self.host, values, self.place().size)?;
            sum.finish(&*self.host, values)
        };
        let mut times = Vec::new();
        for _ in 0..rounds {
            self.host.barrier()?;
            device.wait()?;
            let begun = Instant::now();
            match &self.nccl {
                Some(nccl) => self.sum_by(nccl, &buffer),
                None if device.is_gpu() => {
                    let mut copy = buffer.to_host();
                    on_host(&mut copy)?;
                    buffer.write_in_pieces(&copy);
                }
                None => on_host(&mut buffer)?,
            }
            device.wait()?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// Sums a buffer of a GPU, the way gradients go.
    fn sum_by(&self, nccl: &Nccl, buffer: &Buffer) {
        let (gpu, at, count) = (nccl.gpu(), buffer.ptr(), buffer.count());
        match self.transport {
            Transport::F32 => nccl.sum(gpu.stream(), &[(at, count, Kind::Float)]),
            Transport::Bf16 => {
                let copy = Block::new(gpu, 2 * count);
                to_halves(gpu, at, copy.ptr(), count);
                nccl.sum(gpu.stream(), &[(copy.ptr(), count, Kind::Bf16)]);
                from_halves(gpu, copy.ptr(), at, count);
            }
        }
    }

    /// Returns the part of `length` values that belongs to this rank.
    pub fn slice(&self, length: usize) -> Range<usize> {
        slices_of(length, self.place().size)[self.place().rank].clone()
    }

    /// Returns all of `length` values, of which this rank has its [slice](Self::slice).
    pub fn join(&self, slice: &[f32], length: usize) -> Result<Vec<f32>> {
        let mut values = vec![0.0; length];
        values[self.slice(length)].copy_from_slice(slice);
        self.host.collect(&mut values, &slices_of(length, self.place().size))?;
        Ok(values)
    }

    /// Takes the parameters of a group from the ranks whose [slices](Self::slice) they are in, on CPUs.
    pub fn collect_group(&self, params: &mut Params, group: GroupId) -> Result<()> {
        let slices = slices_of(params.group_len(group), self.place().size);
        self.host.collect(params.group_mut(group), &slices)
    }

    /// Gives the parameters of rank 0 to all.
    pub fn share_params(&self, params: &mut Params) -> Result<()> {
        step::share_params(self, params)
    }
}
