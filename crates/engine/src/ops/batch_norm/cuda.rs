//! The GPU's implementation. Sums over rows are made in two steps, so that each direction takes two kernels.

use std::sync::Arc;

use super::{EPSILON, MOMENTUM, Op, Source};
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{Shape, ValidRows};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

/// Columns and threads of a block.
const COLUMNS: u32 = 64;
const THREADS: u32 = 256;

kernels! {
    static FILE = "batch_norm" at "batch_norm.cu", constants [EPSILON, MOMENTUM, COLUMNS, THREADS];

    /// Partial sums of x and its squares.
    struct Statistics = batch_norm_statistics {
        x: *const Act,
        valid: *const u32,
        rows: u32,
        cols: u32,
        partials: *mut f32,
        parts: u32,
    }

    struct Forward = batch_norm_forward {
        x: *const Act,
        valid: *const u32,
        partials: *const f32,
        parts: u32,
        gamma: *const f32,
        beta: *const f32,
        running_mean: *const f32,
        running_var: *const f32,
        mean: *mut f32,
        scale: *mut f32,
        new_running_mean: *mut f32,
        new_running_var: *mut f32,
        training: u32,
        y: *mut Act,
        rows: u32,
        cols: u32,
    }

    /// Partial sums of the gradients of γ and β.
    struct Sums = batch_norm_sums {
        dy: *const Act,
        x: *const Act,
        valid: *const u32,
        mean: *const f32,
        scale: *const f32,
        rows: u32,
        cols: u32,
        partials: *mut f32,
        parts: u32,
    }

    struct BackwardCall = batch_norm_backward {
        dy: *const Act,
        x: *const Act,
        valid: *const u32,
        mean: *const f32,
        scale: *const f32,
        gamma: *const f32,
        partials: *const f32,
        parts: u32,
        of_batch: u32,
        d_gamma: *mut f32,
        add_gamma: u32,
        d_beta: *mut f32,
        add_beta: u32,
        dx: *mut Act,
        add_dx: u32,
        rows: u32,
        cols: u32,
    }
}

pub(super) fn forward(gpu: &Arc<Gpu>, params: &Params, op: &Op, moved: Option<&[Buffer; 2]>, y: &Buffer) {
    let Op { x, norm, source, mean, scale } = op;
    let [rows, cols] = x.shape();
    let (valid, parts) = (ValidRows::of(gpu, x.real_rows(), rows), parts(rows));
    let partials = params.device().scratch_floats(parts * 2 * cols);
    let shape = shape(cols, parts);
    let (rows, cols, parts) = (rows as u32, cols as u32, parts as u32);
    if *source == Source::Batch {
        gpu.call(
            shape,
            &Statistics { x: x.ptr(), valid: valid.at, rows, cols, partials: partials.ptr(), parts },
        );
    }
    let moved = moved.map_or([Ptr::NULL; 2], |moved| moved.each_ref().map(Buffer::ptr));
    gpu.call(
        shape,
        &Forward {
            x: x.ptr(),
            valid: valid.at,
            partials: partials.ptr(),
            parts,
            gamma: params.master(norm.weight),
            beta: params.master(norm.bias),
            running_mean: params.master(norm.running_mean),
            running_var: params.master(norm.running_var),
            mean: mean.ptr(),
            scale: scale.ptr(),
            new_running_mean: moved[0],
            new_running_var: moved[1],
            training: of_batch(*source),
            y: y.ptr(),
            rows,
            cols,
        },
    );
}

pub(super) fn backward(gpu: &Arc<Gpu>, backward: &mut Backward<'_>, op: &Op, dy: &Buffer) {
    let Op { x, norm, source, mean, scale } = op;
    let [rows, cols] = x.shape();
    let (valid, parts) = (ValidRows::of(gpu, x.real_rows(), rows), parts(rows));
    let partials = backward.device().scratch_floats(parts * 2 * cols);
    let shape = shape(cols, parts);
    let (rows, cols, parts) = (rows as u32, cols as u32, parts as u32);
    gpu.call(
        shape,
        &Sums {
            dy: dy.ptr(),
            x: x.ptr(),
            valid: valid.at,
            mean: mean.ptr(),
            scale: scale.ptr(),
            rows,
            cols,
            partials: partials.ptr(),
            parts,
        },
    );
    let (d_gamma, add_gamma) = backward.param_target(norm.weight);
    let (d_beta, add_beta) = backward.param_target(norm.bias);
    let (dx, add_dx) = backward.target(x);
    gpu.call(
        shape,
        &BackwardCall {
            dy: dy.ptr(),
            x: x.ptr(),
            valid: valid.at,
            mean: mean.ptr(),
            scale: scale.ptr(),
            gamma: backward.params.master(norm.weight),
            partials: partials.ptr(),
            parts,
            of_batch: of_batch(*source),
            d_gamma,
            add_gamma,
            d_beta,
            add_beta,
            dx,
            add_dx,
            rows,
            cols,
        },
    );
}

/// As the kernels see it.
fn of_batch(source: Source) -> u32 {
    u32::from(source == Source::Batch)
}

/// Parts that the rows are cut into for sums, the same number on every GPU.
fn parts(rows: usize) -> usize {
    rows.div_ceil(64).clamp(1, 32)
}

fn shape(cols: usize, parts: usize) -> Shape {
    Shape::grid([cols.div_ceil(COLUMNS as usize), parts], THREADS)
}
