//! The rows that a hypothesis descends from.

use super::{cpu, cuda};
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;
use crate::{Device, Ids, Tape, Tensor, Var};

/// Room for a search: rows (hypotheses) in a step, and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Rows of a step at most.
    pub rows: usize,
    /// Steps at most.
    pub steps: usize,
}

/// For each hypothesis, the row it descends from at every step. Reordering hypotheses, or letting some leave,
/// moves these short lists; keys and values stay where they are. One lineage serves all layers.
pub struct Lineage {
    steps: usize,
    data: Data,
}

enum Data {
    Host(Vec<Vec<u32>>),
    Gpu(GpuLineage),
}

/// The lineage in device memory; see `decode.cu`.
pub(crate) struct GpuLineage {
    pub(crate) room: Room,
    /// `[2, steps, rows]`.
    pub(crate) table: Block,
    /// The number of steps before this one.
    pub(crate) before: Block,
    /// Row of the previous step from which each row of this step descends.
    pub(crate) parents: Ids,
}

impl Lineage {
    /// `count` hypotheses without a past.
    pub fn new(device: &Device, room: Room, count: usize) -> Self {
        let data = match device.gpu() {
            None => Data::Host(vec![Vec::new(); count]),
            Some(gpu) => Data::Gpu(GpuLineage {
                room,
                table: Block::new(gpu, 2 * 4 * room.rows * room.steps),
                before: Block::new(gpu, 4),
                parents: Ids::with_room(device, room.rows),
            }),
        };
        let mut lineage = Self { steps: 0, data };
        lineage.restart(count);
        lineage
    }

    /// Restarts with `count` hypotheses.
    pub fn restart(&mut self, count: usize) {
        self.steps = 0;
        match &mut self.data {
            Data::Host(rows) => *rows = vec![Vec::new(); count],
            Data::Gpu(gpu) => gpu.set_before(0),
        }
    }

    /// Steps taken.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`.
    pub fn reorder(&mut self, parents: &[u32]) {
        match &mut self.data {
            Data::Host(rows) => {
                *rows = parents.iter().map(|&parent| rows[parent as usize].clone()).collect();
            }
            Data::Gpu(gpu) => gpu.parents.load(parents),
        }
    }

    /// A step is over, be it run or replayed.
    pub fn count_step(&mut self) {
        self.steps += 1;
        if let Data::Gpu(gpu) = &mut self.data {
            gpu.set_before(self.steps as u32);
        }
    }

    pub(crate) fn past(&self, row: usize) -> &[u32] {
        match &self.data {
            Data::Host(rows) => &rows[row],
            Data::Gpu(_) => unreachable!("an op of the CPU was given a lineage of the GPU"),
        }
    }

    pub(crate) fn on_gpu(&self) -> &GpuLineage {
        match &self.data {
            Data::Host(_) => unreachable!("an op of the GPU was given a lineage of the CPU"),
            Data::Gpu(gpu) => gpu,
        }
    }
}

impl GpuLineage {
    fn set_before(&self, steps: u32) {
        self.before.gpu().set_word(self.before.ptr(), steps);
    }
}

/// Sum of the inputs of each hypothesis so far, for running gates.
pub struct RunningSum(Sum);

enum Sum {
    Host(Option<Tensor>),
    /// `[2, rows, D]`.
    Gpu(Buffer),
}

impl RunningSum {
    /// Nothing read yet, for rows of `width` values.
    pub fn new(device: &Device, room: Room, width: usize) -> Self {
        Self(match device.gpu() {
            None => Sum::Host(None),
            Some(_) => Sum::Gpu(device.scratch_floats(2 * room.rows * width)),
        })
    }

    /// Restarts.
    pub fn clear(&mut self) {
        if let Sum::Host(sum) = &mut self.0 {
            *sum = None;
        }
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`. A GPU looks at the lineage instead.
    pub fn reorder(&mut self, tape: &mut Tape<'_>, parents: &[u32]) {
        if let Sum::Host(Some(sum)) = &mut self.0 {
            let ids = Ids::from_host(tape.device(), parents);
            *sum = tape.gather(sum, &ids);
        }
    }
}

impl Tape<'_> {
    /// Each hypothesis takes a step: its row in the newest matrix is its own index.
    pub fn advance(&mut self, lineage: &mut Lineage, rows: usize) {
        match &mut lineage.data {
            Data::Host(past) => past.iter_mut().enumerate().for_each(|(i, rows)| rows.push(i as u32)),
            Data::Gpu(gpu) => cuda::advance(gpu, rows),
        }
    }

    /// The mean of x `[R, D]` and everything that the rows' hypotheses have read before.
    pub fn running_step(&mut self, x: &Var, sum: &mut RunningSum, lineage: &Lineage) -> Tensor {
        let mut mean = self.like(x);
        match &mut sum.0 {
            Sum::Host(sum) => {
                let total = match sum {
                    Some(sum) => cpu::sum(self.device(), sum, x.tensor()),
                    None => x.tensor().clone(),
                };
                cpu::scale(&total, 1.0 / (lineage.steps() + 1) as f32, &mut mean);
                *sum = Some(total);
            }
            Sum::Gpu(sums) => cuda::running_step(x, sums, lineage.on_gpu(), &mean),
        }
        Tensor::new(x.shape(), mean)
    }
}

/// A value that a search computes once per batch, at a place in memory that stays the same, so that captured passes
/// find it.
pub struct FixedTensor {
    tensor: Tensor,
    /// Rows that there is room for; the value of a CPU may have fewer.
    rows: usize,
}

impl FixedTensor {
    /// Room for `[rows, cols]` activations.
    pub fn activations(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self { tensor: Tensor::new([rows, cols], device.scratch(rows * cols)), rows }
    }

    /// Room for `[rows, cols]` numbers of 32 bits, such as head weights.
    pub fn floats(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self { tensor: Tensor::new([rows, cols], device.scratch_floats(rows * cols)), rows }
    }

    /// Takes a value of no more rows.
    pub fn set(&mut self, value: &Tensor) {
        let room = &self.tensor;
        assert!(value.rows() <= self.rows && value.cols() == room.cols() && value.dtype() == room.dtype());
        match self.device_ptr() {
            None => self.tensor = value.clone(),
            Some(to) => value.gpu().copy(value.ptr(), to, value.count() * value.dtype().size()),
        }
    }

    /// The value; on a GPU with surplus rows at the end.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn device_ptr(&self) -> Option<Ptr> {
        self.tensor.is_on_gpu().then(|| self.tensor.ptr())
    }
}
