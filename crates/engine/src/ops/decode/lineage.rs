//! The rows that a hypothesis descends from.

use super::ancestors::Ancestors;
use super::{cpu, cuda};
use crate::cuda::memory::Block;
use crate::device::Buffer;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::batch_norm::Running;
use crate::{Device, Ids, Tape, Tensor, Var};

/// Room for a search: rows (hypotheses) in a step, and steps of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Rows of a step at most.
    pub rows: usize,
    /// Steps of a hypothesis at most.
    pub steps: usize,
}

impl Room {
    /// Matrices in a ring that holds the last steps. A power of two, so that the clock may wrap.
    pub(crate) fn ring(self) -> usize {
        self.steps.next_power_of_two()
    }
}

/// For each hypothesis, the row it descends from at every step since it began. Reordering hypotheses, or letting
/// some leave and others begin, moves these short lists; keys and values stay where they are. One lineage serves
/// all layers.
///
/// Between two steps, [`Lineage::reorder`] says who continues and [`Lineage::begin`] adds newcomers; without
/// either, everybody continues.
pub struct Lineage {
    /// Number of steps that each hypothesis has taken.
    ages: Vec<u32>,
    /// Row of the step before from which each hypothesis descends.
    parents: Vec<u32>,
    data: Data,
}

enum Data {
    Host(Ancestors),
    Gpu(GpuLineage),
}

/// The lineage in device memory; see `decode.cu`.
pub(crate) struct GpuLineage {
    pub(crate) room: Room,
    /// `[2, ring, rows]`.
    pub(crate) table: Block,
    /// Number of steps taken so far by anybody, as the host counts and as kernels read it. It wraps.
    count: u32,
    pub(crate) clock: Block,
    /// [`Lineage::parents`] for kernels.
    pub(crate) parents: Ids,
    /// [`Lineage::ages`] for kernels.
    pub(crate) ages: Ids,
}

impl Lineage {
    /// No hypotheses yet.
    pub fn new(device: &Device, room: Room) -> Self {
        let data = match device.gpu() {
            None => Data::Host(Ancestors::default()),
            Some(gpu) => Data::Gpu(GpuLineage {
                room,
                table: Block::new(gpu, 2 * 4 * room.rows * room.ring()),
                count: 0,
                clock: Block::new(gpu, 4),
                parents: Ids::with_room(device, room.rows),
                ages: Ids::with_room(device, room.rows),
            }),
        };
        Self { ages: Vec::new(), parents: Vec::new(), data }
    }

    /// Number of hypotheses.
    pub fn rows(&self) -> usize {
        self.ages.len()
    }

    /// Steps that the oldest hypothesis has taken.
    pub fn steps(&self) -> usize {
        self.ages.iter().copied().max().unwrap_or(0) as usize
    }

    /// Number of steps that each hypothesis has taken.
    pub fn ages(&self) -> &[u32] {
        &self.ages
    }

    /// Row of the step before from which a hypothesis descends; `None` if it has taken no step.
    pub(crate) fn parent(&self, row: usize) -> Option<usize> {
        (self.ages[row] > 0).then(|| self.parents[row] as usize)
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`; those not named leave.
    pub fn reorder(&mut self, parents: &[u32]) {
        let at = |parent: &u32| *parent as usize;
        self.ages = parents.iter().map(|parent| self.ages[at(parent)]).collect();
        self.parents = parents.iter().map(|parent| self.parents[at(parent)]).collect();
        if let Data::Host(ancestors) = &mut self.data {
            ancestors.reorder(parents);
        }
    }

    /// `count` hypotheses without a past come after the present ones.
    pub fn begin(&mut self, count: usize) {
        let rows = self.rows() + count;
        self.ages.resize(rows, 0);
        self.parents.resize(rows, 0);
        if let Data::Host(ancestors) = &mut self.data {
            ancestors.begin(rows);
        }
    }

    /// Puts the next step into device memory, where an op that is run or replayed finds it.
    pub fn load(&mut self) {
        if let Data::Gpu(gpu) = &mut self.data {
            gpu.parents.load(&self.parents);
            gpu.ages.load(&self.ages);
            gpu.clock.gpu().set_word(gpu.clock.ptr(), gpu.count);
        }
    }

    /// A step is over, be it run or replayed.
    pub fn count_step(&mut self) {
        self.ages.iter_mut().for_each(|age| *age += 1);
        self.parents = (0..self.ages.len() as u32).collect();
        if let Data::Gpu(gpu) = &mut self.data {
            gpu.count = gpu.count.wrapping_add(1);
        }
    }

    /// The rows of the hypotheses, those of the newest step included.
    pub(super) fn on_host(&self) -> &Ancestors {
        match &self.data {
            Data::Host(ancestors) => ancestors,
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

/// Sum of the inputs of each hypothesis so far, for running gates: one row per hypothesis of the last step. The lineage
/// says whose sum a hypothesis continues.
pub struct RunningSum(Sum);

enum Sum {
    Host(Option<Tensor>),
    /// `[2, rows, D]`, from the first step on.
    Gpu {
        size: usize,
        sums: Option<Buffer>,
    },
}

impl RunningSum {
    /// Nothing read yet, for rows of `width` values.
    pub fn new(device: &Device, room: Room, width: usize) -> Self {
        Self(match device.gpu() {
            None => Sum::Host(None),
            Some(_) => Sum::Gpu { size: 2 * room.rows * width, sums: None },
        })
    }
}

impl Tape<'_> {
    /// Each hypothesis takes a step.
    pub fn advance(&mut self, lineage: &mut Lineage, rows: usize) {
        match &mut lineage.data {
            Data::Host(ancestors) => ancestors.advance(),
            Data::Gpu(gpu) => cuda::advance(gpu, rows),
        }
    }

    /// The mean of x `[R, D]` and everything that the rows' hypotheses have read before; with a `norm`, normalised by its
    /// running statistics.
    pub fn running_step(
        &mut self,
        x: &Var,
        sum: &mut RunningSum,
        lineage: &Lineage,
        norm: Option<BatchNorm>,
    ) -> Tensor {
        let mut mean = self.like(x);
        match &mut sum.0 {
            Sum::Host(sum) => {
                let mut total = self.like(x);
                let norm = norm.map(|norm| Running::new(self.params, norm));
                let both = (&mut total[..], &mut mean[..]);
                cpu::running(sum.as_ref(), x.tensor(), lineage, norm.as_ref(), both);
                *sum = Some(Tensor::new(x.shape(), total));
            }
            Sum::Gpu { size, sums } => {
                let sums = sums.get_or_insert_with(|| self.device().scratch_floats(*size));
                cuda::running_step(self.params, x, sums, lineage.on_gpu(), norm, &mean);
            }
        }
        Tensor::new(x.shape(), mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamsBuilder;

    /// Sums follow their hypotheses: places change, one hypothesis becomes two, others leave and begin.
    #[test]
    fn sums_follow_hypotheses() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let mut tape = Tape::evaluation(&params);
        let room = Room { rows: 3, steps: 8 };
        let (mut lineage, mut sum) = (Lineage::new(&device, room), RunningSum::new(&device, room, 1));
        // Parents, reordered twice in one case; newcomers; inputs; means that must come out.
        type Case = (Vec<Vec<u32>>, usize, [f32; 3], [f32; 3]);
        let cases: [Case; 4] = [
            (vec![], 3, [1.0, 2.0, 4.0], [1.0, 2.0, 4.0]),
            (vec![vec![2, 0, 0]], 0, [2.0, 3.0, 5.0], [3.0, 2.0, 3.0]),
            (vec![vec![2, 1, 0], vec![2, 0]], 1, [3.0, 3.0, 9.0], [3.0, 3.0, 9.0]),
            (vec![], 0, [7.0, 3.0, 1.0], [4.0, 3.0, 5.0]),
        ];
        for (step, (moves, newcomers, inputs, want)) in cases.into_iter().enumerate() {
            moves.iter().for_each(|parents| lineage.reorder(parents));
            lineage.begin(newcomers);
            let x = Var::constant(Tensor::from_host(&device, [3, 1], &inputs));
            tape.advance(&mut lineage, 3);
            let means = tape.running_step(&x, &mut sum, &lineage, None).to_host();
            lineage.count_step();
            assert!(means.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "step {step}: {means:?}");
        }
    }
}
