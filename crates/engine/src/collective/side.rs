//! Sums by NCCL on a stream of their own, each of which begins as soon as its slice of the gradients is complete.
//!
//! A pass leaves a mark in the stream of the GPU after each slice, also in a captured pass. When the pass was asked for,
//! the sums are: each waits for its mark, and the stream of the GPU goes on after all of them.

use std::sync::Arc;

use cudarc::driver::sys;

use super::nccl::{Kind, Part};
use super::{Team, Transport};
use crate::cuda::Gpu;
use crate::cuda::halves::{from_halves, to_halves};
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::transfer::Event;
use crate::params::{Gradients, GroupSet, Params, Slice};
use crate::{Error, Result};

/// Values of a slice at least: each costs products that would have been computed together with others.
const SLICE: usize = 1 << 23;

/// The stream of sums.
pub(crate) struct Side {
    stream: sys::CUstream,
    ready: Event,
    done: Event,
}

// SAFETY: CUDA's streams may be used from any thread.
unsafe impl Send for Side {}

impl Side {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        gpu.ready();
        let (mut least, mut greatest, mut stream) = (0, 0, std::ptr::null_mut());
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the GPU is current, and the numbers are alive. Sums take few multiprocessors: they go first.
        unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
                .result()
                .map_err(Error::driver("a stream"))?;
            let made = sys::cuStreamCreateWithPriority(&mut stream, flags, greatest);
            made.result().map_err(Error::driver("a stream"))?;
        }
        Ok(Self { stream, ready: Event::new()?, done: Event::new()? })
    }

    /// Lets `sum` ask for the sums of the slices of a lane, then of `rest`, which is complete now, on this stream; the stream
    /// of the GPU goes on after them.
    pub(crate) fn sum(
        &self,
        lane: &Lane,
        gradients: &Gradients,
        rest: &[Part],
        sum: impl Fn(sys::CUstream, &[Part]),
    ) -> Result<()> {
        let main = lane.gpu.stream();
        for (number, mark) in lane.marks.iter().enumerate() {
            mark.hold(self.stream)?;
            sum(self.stream, &[lane.part(gradients, number)]);
        }
        self.ready.record(main)?;
        self.ready.hold(self.stream)?;
        sum(self.stream, rest);
        self.done.record(self.stream)?;
        self.done.hold(main)?;
        lane.take_back(gradients);
        Ok(())
    }

    /// Milliseconds from each mark of a lane to the end of the pass, which is waited for.
    pub(crate) fn times(&self, lane: &Lane) -> Vec<f64> {
        lane.gpu.wait();
        lane.marks.iter().map(|mark| f64::from(mark.milliseconds_to(&self.ready))).collect()
    }
}

/// The slices of a step, with a mark for each, and bfloat16 copies if they travel as such. It is made once for each set
/// of groups: captured passes know its addresses.
pub(crate) struct Lane {
    gpu: Arc<Gpu>,
    pub(crate) free: GroupSet,
    pub(crate) slices: Arc<[Slice]>,
    marks: Vec<Event>,
    /// The copies, and the first value of each slice.
    halves: Option<(Block, Vec<usize>)>,
}

impl Lane {
    pub(crate) fn new(gpu: &Arc<Gpu>, params: &Params, free: GroupSet, team: &Team) -> Result<Self> {
        gpu.ready();
        let slices = params.slices(free, team.slice_or(SLICE));
        let marks = slices.iter().map(|_| Event::new()).collect::<Result<_>>()?;
        let halves = (team.transport() == Transport::Bf16).then(|| {
            let mut end = 0;
            let starts = slices.iter().map(|slice| {
                end += slice.range.len();
                end - slice.range.len()
            });
            let starts = starts.collect();
            (Block::new(gpu, 2 * end), starts)
        });
        Ok(Self { gpu: gpu.clone(), free, slices: slices.into(), marks, halves })
    }

    /// The GPU.
    #[cfg(feature = "suite")]
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Marks a slice as complete.
    pub(crate) fn complete(&self, gradients: &Gradients, number: usize) {
        let gpu = &self.gpu;
        if let Some(copy) = self.half(number) {
            to_halves(gpu, self.floats(gradients, number), copy, self.slices[number].range.len());
        }
        if gpu.ready()
            && let Err(error) = self.marks[number].mark(gpu)
        {
            gpu.fail(error);
        }
    }

    fn floats(&self, gradients: &Gradients, number: usize) -> Ptr {
        let slice = &self.slices[number];
        gradients.group_ptr(slice.group).plus(4 * slice.range.start)
    }

    fn half(&self, number: usize) -> Option<Ptr> {
        self.halves.as_ref().map(|(block, starts)| block.ptr().plus(2 * starts[number]))
    }

    /// A slice as NCCL sums it.
    fn part(&self, gradients: &Gradients, number: usize) -> Part {
        let count = self.slices[number].range.len();
        match self.half(number) {
            Some(copy) => (copy, count, Kind::Bf16),
            None => (self.floats(gradients, number), count, Kind::Float),
        }
    }

    /// Sums of bfloat16 as gradients.
    fn take_back(&self, gradients: &Gradients) {
        for number in 0..self.slices.len() {
            if let Some(copy) = self.half(number) {
                from_halves(&self.gpu, copy, self.floats(gradients, number), self.slices[number].range.len());
            }
        }
    }
}
