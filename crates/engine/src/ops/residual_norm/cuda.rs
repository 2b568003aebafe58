//! The GPU's implementation: one kernel forward, one backward.

use std::sync::Arc;

use super::{LayerNorm, Op};
use crate::Tensor;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::cuda::ops::elementwise::ColumnSum;
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

fn unit() -> Unit {
    Unit::plain("residual_norm")
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
    gpu.launch(
        &unit(),
        "residual_norm_forward",
        Shape::of(rows.div_ceil(4), 128),
        &[
            &op.x.ptr(),
            &z,
            &gpu.dropout_argument(dropout),
            &gamma,
            &beta,
            &sum,
            &normed,
            &(rows as u32),
            &(cols as u32),
        ],
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
    // Rows that a warp of the wide kernel holds; one block for each of 132 multiprocessors, or at most two.
    let wide = dy.is_some() && cols > 512 && cols <= 1024 && cols.is_multiple_of(8);
    let (kernel, threads, rows_per_part) = if wide {
        ("residual_norm_backward_wide", 384, rows.div_ceil(132).max(1))
    } else {
        ("residual_norm_backward", 256, 8 * rows.div_ceil(2112).max(1))
    };
    let parts = rows.div_ceil(rows_per_part);
    let ptr = |buffer: &Option<Buffer>| buffer.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    let gamma = op.norm.map_or(Ptr::NULL, |norm| backward.params.master(norm.weight));
    let nowhere = (Ptr::NULL, 0);
    let targets = op
        .norm
        .filter(|_| dy.is_some())
        .map_or([nowhere; 2], |norm| [norm.weight, norm.bias].map(|id| backward.param_target(id)));
    let wanted = targets.iter().any(|(target, _)| *target != Ptr::NULL);
    let partials = wanted.then(|| backward.device().scratch_floats(parts * 2 * cols));
    let (dx, add_dx) = backward.target(&op.x);
    let (dz, add_dz) = op.residual.as_ref().map_or(nowhere, |residual| backward.target(&residual.z));
    let dropout = op.residual.as_ref().and_then(|residual| residual.dropout);
    gpu.launch(
        &unit(),
        kernel,
        Shape::of(parts, threads),
        &[
            &ptr(&dy),
            &ptr(&d_sum),
            &sum.ptr(),
            &gamma,
            &gpu.dropout_argument(dropout),
            &dx,
            &add_dx,
            &dz,
            &add_dz,
            &ptr(&partials),
            &(rows as u32),
            &(cols as u32),
            &(rows_per_part as u32),
        ],
    );
    if let Some(partials) = partials {
        let [(d_gamma, add_gamma), (d_beta, add_beta)] = targets;
        let sizes = [parts, cols, 2 * cols];
        let second = ColumnSum::new(partials.ptr().plus(4 * cols), d_beta, sizes, add_beta);
        backward.sums.push(gpu, ColumnSum::new(partials.ptr(), d_gamma, sizes, add_gamma), partials);
        backward.sums.push_also(gpu, second);
    }
}
