//! Residual, dropout and layer norm: one kernel forward, one backward.

use std::sync::Arc;

use super::elementwise::ColumnSum;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::ops::residual_norm::{LayerNorm, Normed};
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{Tape, Tensor, Var};

/// Launches the forward kernel; `z`, `sum` and `normed` may be null as the kernel says.
fn forward(
    tape: &Tape<'_>,
    gpu: &Gpu,
    x: &Var,
    [z, sum, normed]: [Ptr; 3],
    dropout: Option<Dropout>,
    norm: Option<LayerNorm>,
) {
    let (rows, cols) = (x.rows(), x.cols());
    let [gamma, beta] = norm.map_or([Ptr::NULL; 2], |n| [n.weight, n.bias].map(|id| tape.params.master(id)));
    gpu.launch(
        &Unit::plain("norm"),
        "residual_norm_forward",
        Shape::of(rows.div_ceil(4), 128),
        &[
            &x.ptr(),
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

pub(crate) fn residual_norm(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    z: &Var,
    dropout: Option<Dropout>,
    norm: LayerNorm,
) -> Normed {
    let (shape, count) = ([x.rows(), x.cols()], x.tensor().count());
    let (sum, normed) = (tape.device().scratch(count), tape.device().scratch(count));
    forward(tape, gpu, x, [z.ptr(), sum.ptr(), normed.ptr()], dropout, Some(norm));
    let below = x.tracked() || z.tracked();
    let sum = tape.output(shape, sum, below);
    let norm_free = tape.is_free(norm.weight) || tape.is_free(norm.bias);
    let normed = tape.output(shape, normed, below || norm_free);
    let (x, z, value, gpu) = (x.clone(), z.clone(), sum.tensor().clone(), gpu.clone());
    tape.record_two([&sum, &normed], move |backward, d_sum, dy| {
        back(backward, &gpu, [d_sum, dy], &value, Some(norm), &x, Some((&z, dropout)));
    });
    Normed { sum, normed }
}

pub(crate) fn residual(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    z: &Var,
    dropout: Option<Dropout>,
) -> Var {
    let sum = tape.device().scratch(x.tensor().count());
    forward(tape, gpu, x, [z.ptr(), sum.ptr(), Ptr::NULL], dropout, None);
    let sum = tape.output([x.rows(), x.cols()], sum, x.tracked() || z.tracked());
    let (x, z, value, gpu) = (x.clone(), z.clone(), sum.tensor().clone(), gpu.clone());
    tape.record(&sum, move |backward, d_sum| {
        back(backward, &gpu, [Some(d_sum), None], &value, None, &x, Some((&z, dropout)));
    });
    sum
}

pub(crate) fn layer_norm(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, norm: LayerNorm) -> Var {
    let y = tape.device().scratch(x.tensor().count());
    forward(tape, gpu, x, [Ptr::NULL, Ptr::NULL, y.ptr()], None, Some(norm));
    let tracked = x.tracked() || tape.is_free(norm.weight) || tape.is_free(norm.bias);
    let y = tape.output([x.rows(), x.cols()], y, tracked);
    let (x, gpu) = (x.clone(), gpu.clone());
    tape.record(&y, move |backward, dy| {
        let value = x.tensor().clone();
        back(backward, &gpu, [None, Some(dy)], &value, Some(norm), &x, None);
    });
    y
}

/// From the gradients of the sum and of its norm to those of x, z, γ and β.
fn back(
    backward: &mut Backward<'_>,
    gpu: &Arc<Gpu>,
    [d_sum, dy]: [Option<Buffer>; 2],
    sum: &Tensor,
    norm: Option<LayerNorm>,
    x: &Var,
    residual: Option<(&Var, Option<Dropout>)>,
) {
    let (rows, cols) = (sum.rows(), sum.cols());
    // Rows that a warp of the wide kernel holds; one block for each of 132 multiprocessors, or at most two.
    let wide = dy.is_some() && cols > 512 && cols <= 1024 && cols.is_multiple_of(8);
    let (kernel, threads, rows_per_part) = if wide {
        ("residual_norm_backward_wide", 384, rows.div_ceil(132))
    } else {
        ("residual_norm_backward", 256, 8 * rows.div_ceil(2112))
    };
    let parts = rows.div_ceil(rows_per_part);
    let ptr = |buffer: &Option<Buffer>| buffer.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    let gamma = norm.map_or(Ptr::NULL, |norm| backward.params.master(norm.weight));
    let nowhere = (Ptr::NULL, 0);
    let targets = norm
        .filter(|_| dy.is_some())
        .map_or([nowhere; 2], |norm| [norm.weight, norm.bias].map(|id| backward.param_target(id)));
    let wanted = targets.iter().any(|(target, _)| *target != Ptr::NULL);
    let partials = wanted.then(|| backward.device().scratch_floats(parts * 2 * cols));
    let (dx, add_dx) = backward.target(x);
    let (z, dropout) = residual.map_or((None, None), |(z, dropout)| (Some(z), dropout));
    let (dz, add_dz) = z.map_or(nowhere, |z| backward.target(z));
    gpu.launch(
        &Unit::plain("norm"),
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
