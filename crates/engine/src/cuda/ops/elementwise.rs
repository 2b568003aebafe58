//! Sums, copies and the last stage of sums over rows.

use std::sync::Arc;

use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::Ptr;
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

/// All sums of a backward pass; made together at its end, because each alone is too small to fill a GPU.
#[derive(Default)]
pub(crate) struct ColumnSums {
    sums: Vec<ColumnSum>,
    /// The partial sums; held until the sums are made.
    held: Vec<Buffer>,
}

impl ColumnSums {
    pub(crate) fn push(&mut self, sum: ColumnSum, partials: Buffer) {
        if sum.out != Ptr::NULL {
            self.sums.push(sum);
        }
        self.held.push(partials);
    }

    /// A second sum over partials that were pushed before.
    pub(crate) fn push_also(&mut self, sum: ColumnSum) {
        if sum.out != Ptr::NULL {
            self.sums.push(sum);
        }
    }

    pub(crate) fn run(&mut self, gpu: &Arc<Gpu>) {
        for sums in self.sums.chunks(SUMS_PER_LAUNCH) {
            let nothing = ColumnSum::new(Ptr::NULL, Ptr::NULL, [0; 3], 0);
            let mut batch = Batch { sums: [nothing; SUMS_PER_LAUNCH], count: sums.len() as u32 };
            batch.sums[..sums.len()].copy_from_slice(sums);
            let widest = sums.iter().map(|sum| sum.cols as usize).max().unwrap_or(0);
            gpu.launch(
                &unit(),
                "reduce_columns",
                Shape::grid([widest.div_ceil(32), sums.len()], 256),
                &[&batch],
            );
        }
        self.sums.clear();
        self.held.clear();
    }
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
