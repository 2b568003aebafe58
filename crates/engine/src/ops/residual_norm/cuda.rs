//! The GPU's implementation: one kernel forward, one backward.

use std::sync::Arc;

use super::{EPSILON, LayerNorm, Op};
use crate::Tensor;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{Dropout, Shape};
use crate::cuda::memory::Ptr;
use crate::cuda::sums::{ColumnSum, KnownSums};
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

/// Columns of rows that a warp holds in half its registers, and in all of them; longer rows are read several times.
const NARROW: usize = 512;
const WIDE: usize = 1024;
/// Rows of a forward block, one warp each.
const FORWARD_ROWS: usize = 4;
/// Warps of a backward block, and of one for wide rows.
const WARPS: usize = 8;
const WIDE_WARPS: usize = 12;

kernels! {
    static FILE = "residual_norm" at "residual_norm.cu",
        constants [EPSILON, NARROW, WIDE, FORWARD_ROWS, WARPS, WIDE_WARPS];

    struct Forward = residual_norm_forward {
        x: *const Act,
        z: *const Act,
        dropout: Dropout,
        gamma: *const f32,
        beta: *const f32,
        sum: *mut Act,
        normed: *mut Act,
        rows: u32,
        cols: u32,
    }

    struct BackwardNarrow = residual_norm_backward {
        dy: *const Act,
        d_sum: *const Act,
        sum: *const Act,
        gamma: *const f32,
        dropout: Dropout,
        dx: *mut Act,
        add_dx: u32,
        dz: *mut Act,
        add_dz: u32,
        partials: *mut f32,
        sums: u32,
        rows: u32,
        cols: u32,
        rows_per_part: u32,
    }

    /// The same for rows of more than [`NARROW`] and up to [`WIDE`] columns, a multiple of 8.
    struct BackwardWide = residual_norm_backward_wide(BackwardNarrow);
}

pub(super) fn forward(
    gpu: &Gpu,
    params: &Params,
    op: &Op,
    sum: Option<&mut Buffer>,
    normed: Option<&mut Buffer>,
) {
    let (rows, cols) = (op.x.rows(), op.x.cols());
    let masters = |norm: LayerNorm| [norm.weight, norm.bias].map(|id| params.master(id));
    let [gamma, beta] = op.norm.map_or([Ptr::NULL; 2], masters);
    let [sum, normed] = [sum, normed].map(|buffer| buffer.map_or(Ptr::NULL, |buffer| buffer.ptr()));
    let (z, dropout) = op.residual.as_ref().map_or((Ptr::NULL, None), |r| (r.z.ptr(), r.dropout));
    gpu.call(
        Shape::of(rows.div_ceil(FORWARD_ROWS), 32 * FORWARD_ROWS as u32),
        &Forward {
            x: op.x.ptr(),
            z,
            dropout: gpu.dropout_argument(dropout),
            gamma,
            beta,
            sum,
            normed,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

pub(super) fn backward(
    gpu: &Arc<Gpu>,
    backward: &mut Backward<'_>,
    op: &Op,
    sum: &Tensor,
    d_sum: Option<Buffer>,
    dy: Option<Buffer>,
) {
    let (rows, cols) = (sum.rows(), sum.cols());
    // Wide rows fill the registers of a warp: one block of them for each multiprocessor, two blocks of others at most.
    // The number of parts decides the order of the sums of γ, β and the biases of the layers below, so that GPUs with
    // other numbers of multiprocessors round these differently.
    let in_registers = dy.is_some() && cols <= WIDE && cols.is_multiple_of(8);
    let wide = in_registers && cols > NARROW;
    let multiprocessors = gpu.multiprocessors();
    let rows_per_part = match wide {
        true => rows.div_ceil(multiprocessors).max(1),
        false => WARPS * rows.div_ceil(2 * WARPS * multiprocessors).max(1),
    };
    let parts = rows.div_ceil(rows_per_part);
    let ptr = |buffer: &Option<Buffer>| buffer.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    let gamma = op.norm.map_or(Ptr::NULL, |norm| backward.params.master(norm.weight));
    let nowhere = (Ptr::NULL, 0);
    let targets = op
        .norm
        .filter(|_| dy.is_some())
        .map_or([nowhere; 2], |norm| [norm.weight, norm.bias].map(|id| backward.param_target(id)));
    let (dx, add_dx) = backward.target(&op.x);
    let (dz, add_dz) = op.residual.as_ref().map_or(nowhere, |residual| backward.target(&residual.z));
    let wanted = targets.iter().any(|(target, _)| *target != Ptr::NULL);
    // Sums of dz cost little on the way: most z are linear layers, whose biases have them as gradients.
    let sums = if wanted && in_registers && !wide && dz != Ptr::NULL && add_dz == 0 { 3 } else { 2 };
    let partials = wanted.then(|| Arc::new(backward.device().scratch_floats(parts * sums * cols)));
    let dropout = op.residual.as_ref().and_then(|residual| residual.dropout);
    let call = BackwardNarrow {
        dy: ptr(&dy),
        d_sum: ptr(&d_sum),
        sum: sum.ptr(),
        gamma,
        dropout: gpu.dropout_argument(dropout),
        dx,
        add_dx,
        dz,
        add_dz,
        partials: partials.as_ref().map_or(Ptr::NULL, |partials| partials.ptr()),
        sums: sums as u32,
        rows: rows as u32,
        cols: cols as u32,
        rows_per_part: rows_per_part as u32,
    };
    match wide {
        true => gpu.call(Shape::of(parts, 32 * WIDE_WARPS as u32), &BackwardWide(call)),
        false => gpu.call(Shape::of(parts, 32 * WARPS as u32), &call),
    }
    if let Some(partials) = partials {
        let [(d_gamma, add_gamma), (d_beta, add_beta)] = targets;
        let (size, at) = ([parts, cols, sums * cols], |i: usize| partials.ptr().plus(4 * i * cols));
        backward.sums.push(gpu, ColumnSum::new(at(0), d_gamma, size, add_gamma), partials.clone());
        backward.sums.push_also(gpu, ColumnSum::new(at(1), d_beta, size, add_beta));
        if let (3, Some(residual)) = (sums, &op.residual) {
            backward.note_sums(&residual.z, KnownSums { at: at(2), partials, size });
        }
    }
}
