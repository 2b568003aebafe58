//! Sums, copies and the last stage of sums over rows.

use std::sync::Arc;

use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;
use crate::{ParamId, Tape, Tensor, Var};

/// Values that one block takes.
const PER_BLOCK: usize = 2048;

/// One block of 256 threads for each 2,048 values.
pub(super) fn flat(count: usize) -> Shape {
    Shape::of(count.div_ceil(PER_BLOCK), 256)
}

fn unit() -> Unit {
    Unit::plain("elementwise")
}

/// `total += values`.
pub(crate) fn add(gpu: &Arc<Gpu>, total: &mut Buffer, values: &Buffer) {
    assert_eq!((total.count(), total.dtype()), (values.count(), values.dtype()));
    let kernel = if total.dtype() == gpu.act() { "add" } else { "add_float" };
    let count = total.count() as u64;
    gpu.launch(&unit(), kernel, flat(total.count()), &[&total.ptr(), &values.ptr(), &count]);
}

/// A sum of rows of partial sums that is still to be made: `out[c] (+)= Σ_p partials[p·stride + c]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ColumnSum {
    partials: Ptr,
    out: Ptr,
    parts: u32,
    cols: u32,
    stride: u32,
    add: u32,
}

impl ColumnSum {
    pub(crate) fn new(partials: Ptr, out: Ptr, [parts, cols, stride]: [usize; 3], add: u32) -> Self {
        Self { partials, out, parts: parts as u32, cols: cols as u32, stride: stride as u32, add }
    }
}

/// Sums that one launch makes.
const SUMS_PER_LAUNCH: usize = 64;

/// `ColumnSums` of the kernel.
#[repr(C)]
struct Batch {
    sums: [ColumnSum; SUMS_PER_LAUNCH],
    count: u32,
}

// SAFETY: `repr(C)` with the fields of the kernel's struct.
unsafe impl Argument for Batch {}

/// A matrix whose columns are to be summed into partial sums: `RowSum` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct RowSum {
    values: Ptr,
    partials: Ptr,
    rows: u32,
    cols: u32,
    rows_per_part: u32,
}

/// Matrices that one launch sums.
const MATRICES_PER_LAUNCH: usize = 8;
/// Matrices that wait are summed while the GPU still has them in its cache.
const WAITING_BYTES: usize = 40 << 20;

/// `RowSums` of the kernel.
#[repr(C)]
struct Matrices {
    sums: [RowSum; MATRICES_PER_LAUNCH],
}

// SAFETY: `repr(C)` with the fields of the kernel's struct.
unsafe impl Argument for Matrices {}

/// A matrix that waits for its columns to be summed into `target`.
struct Waiting {
    values: Buffer,
    size: [usize; 2],
    target: Ptr,
    add: u32,
}

/// All sums of a backward pass; made together at its end, because each alone is too small to fill a GPU.
#[derive(Default)]
pub(crate) struct ColumnSums {
    sums: Vec<ColumnSum>,
    /// The partial sums; held until the sums are made.
    held: Vec<Buffer>,
    blocks: Vec<Block>,
    waiting: Vec<Waiting>,
}

impl ColumnSums {
    /// The sums of the columns of a matrix `[rows, cols]` of activations, which is held on to for a while.
    pub(crate) fn push_rows(
        &mut self,
        gpu: &Arc<Gpu>,
        values: Buffer,
        size: [usize; 2],
        target: Ptr,
        add: u32,
    ) {
        if target != Ptr::NULL {
            self.waiting.push(Waiting { values, size, target, add });
            let bytes: usize =
                self.waiting.iter().map(|waiting| waiting.values.count() * gpu.act().size()).sum();
            if self.waiting.len() == MATRICES_PER_LAUNCH || bytes > WAITING_BYTES {
                self.sum_waiting(gpu);
            }
        }
    }

    fn sum_waiting(&mut self, gpu: &Arc<Gpu>) {
        let nothing = RowSum { values: Ptr::NULL, partials: Ptr::NULL, rows: 0, cols: 0, rows_per_part: 1 };
        let mut matrices = Matrices { sums: [nothing; MATRICES_PER_LAUNCH] };
        let (mut most_cols, mut most_parts) = (0, 0);
        let waiting = std::mem::take(&mut self.waiting);
        for (matrix, sum) in waiting.iter().zip(&mut matrices.sums) {
            let [rows, cols] = matrix.size;
            let rows_per_part = 64 * rows.div_ceil(6400).max(2);
            let parts = rows.div_ceil(rows_per_part);
            let partials = Block::new(gpu, 4 * parts * cols);
            *sum = RowSum {
                values: matrix.values.ptr(),
                partials: partials.ptr(),
                rows: rows as u32,
                cols: cols as u32,
                rows_per_part: rows_per_part as u32,
            };
            (most_cols, most_parts) = (most_cols.max(cols), most_parts.max(parts));
            self.sums.push(ColumnSum::new(partials.ptr(), matrix.target, [parts, cols, cols], matrix.add));
            self.blocks.push(partials);
        }
        let shape = Shape {
            grid: [most_cols.div_ceil(256) as u32, most_parts as u32, waiting.len() as u32],
            ..Shape::of(1, 256)
        };
        gpu.launch(&Unit::plain("linear"), "sum_rows", shape, &[&matrices]);
    }

    /// A sum over partial sums that exist already.
    pub(crate) fn push(&mut self, gpu: &Arc<Gpu>, sum: ColumnSum, partials: Buffer) {
        self.push_also(gpu, sum);
        self.held.push(partials);
    }

    /// A second sum over partials that are pushed as well.
    pub(crate) fn push_also(&mut self, gpu: &Arc<Gpu>, sum: ColumnSum) {
        // Sums into one target are made in the order in which they came.
        if self.waiting.iter().any(|waiting| waiting.target == sum.out) {
            self.sum_waiting(gpu);
        }
        if sum.out != Ptr::NULL {
            self.sums.push(sum);
        }
    }

    pub(crate) fn run(&mut self, gpu: &Arc<Gpu>) {
        if !self.waiting.is_empty() {
            self.sum_waiting(gpu);
        }
        for sums in launches(&self.sums) {
            let nothing = ColumnSum::new(Ptr::NULL, Ptr::NULL, [0; 3], 0);
            let mut batch = Batch { sums: [nothing; SUMS_PER_LAUNCH], count: sums.len() as u32 };
            batch.sums[..sums.len()].copy_from_slice(sums);
            let widest = sums.iter().map(|sum| sum.cols as usize).max().unwrap_or(0);
            let shape = Shape::grid([widest.div_ceil(32), sums.len()], 256);
            gpu.launch(&unit(), "reduce_columns", shape, &[&batch]);
        }
        self.sums.clear();
        self.held.clear();
        self.blocks.clear();
    }
}

/// Cuts sums into launches. Two into one target, as of a parameter that is used twice, are never in one launch, where
/// they would race.
fn launches(sums: &[ColumnSum]) -> Vec<&[ColumnSum]> {
    let (mut launches, mut first) = (Vec::new(), 0);
    for at in 0..sums.len() {
        let own = &sums[first..at];
        if own.len() == SUMS_PER_LAUNCH || own.iter().any(|sum| sum.out == sums[at].out) {
            launches.push(own);
            first = at;
        }
    }
    if first < sums.len() {
        launches.push(&sums[first..]);
    }
    launches
}

/// A parameter block as a value, and its gradient back.
pub(crate) fn parameter(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, id: ParamId) -> Var {
    let block = tape.params.block(id);
    let shape = [block.rows, block.cols];
    let count = shape[0] * shape[1];
    let copy = tape.device().scratch(count);
    gpu.copy(tape.params.weights(id), copy.ptr(), count * gpu.act().size());
    let tracked = tape.is_free(id);
    let y = tape.output(shape, copy, tracked);
    super::linear::record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (target, held) = backward.param_target(id);
        if target != Ptr::NULL {
            gpu.launch(&unit(), "from_act", flat(count), &[&dy.ptr(), &target, &(count as u64), &held]);
        }
    });
    y
}

/// Rows of `x` by index.
pub(crate) fn gather(gpu: &Arc<Gpu>, x: &Tensor, rows: Ptr, count: usize, y: &Buffer) {
    let kernel = if x.dtype() == gpu.act() { "gather" } else { "gather_float" };
    let shape = super::by_rows(count, x.cols());
    gpu.launch(&unit(), kernel, shape, &[&x.ptr(), &rows, &y.ptr(), &(count as u32), &(x.cols() as u32)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_into_one_target_are_made_one_after_the_other() {
        let into = |out: u64| ColumnSum::new(Ptr(64), Ptr(out), [1, 8, 8], 0);
        let all = [into(1), into(2), into(1), into(3), into(3)];
        let sizes = |sums: &[ColumnSum]| launches(sums).iter().map(|launch| launch.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&all), [2, 2, 1]);
        let many: Vec<ColumnSum> = (1..=130).map(into).collect();
        assert_eq!(sizes(&many), [64, 64, 2]);
        assert!(launches(&[]).is_empty());
    }
}
