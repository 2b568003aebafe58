//! The GPU's implementation. Sums over rows are made in two steps, so that each direction takes two kernels.

use std::sync::Arc;

use super::{Op, Source};
use crate::Var;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::{Backward, RealRows};

fn unit() -> Unit {
    Unit::plain("batch_norm")
}

pub(super) fn forward(gpu: &Arc<Gpu>, params: &Params, op: &Op, moved: Option<&[Buffer; 2]>, y: &Buffer) {
    let Op { x, norm, source, mean, scale } = op;
    let [rows, cols] = x.shape();
    let (valid, parts) = (ValidRows::of(gpu, x), parts(rows));
    let partials = params.device().scratch_floats(parts * 2 * cols);
    let sizes = [rows as u32, cols as u32, parts as u32];
    if *source == Source::Batch {
        gpu.launch(
            &unit(),
            "batch_norm_statistics",
            shape(cols, parts),
            &[&x.ptr(), &valid.at, &sizes[0], &sizes[1], &partials.ptr(), &sizes[2]],
        );
    }
    let moved = moved.map_or([Ptr::NULL; 2], |moved| moved.each_ref().map(Buffer::ptr));
    gpu.launch(
        &unit(),
        "batch_norm_forward",
        shape(cols, parts),
        &[
            &x.ptr(),
            &valid.at,
            &partials.ptr(),
            &sizes[2],
            &params.master(norm.weight),
            &params.master(norm.bias),
            &params.master(norm.running_mean),
            &params.master(norm.running_var),
            &mean.ptr(),
            &scale.ptr(),
            &moved[0],
            &moved[1],
            &of_batch(*source),
            &y.ptr(),
            &sizes[0],
            &sizes[1],
        ],
    );
}

pub(super) fn backward(gpu: &Arc<Gpu>, backward: &mut Backward<'_>, op: &Op, dy: &Buffer) {
    let Op { x, norm, source, mean, scale } = op;
    let [rows, cols] = x.shape();
    let (valid, parts) = (ValidRows::of(gpu, x), parts(rows));
    let partials = backward.device().scratch_floats(parts * 2 * cols);
    let sizes = [rows as u32, cols as u32, parts as u32];
    gpu.launch(
        &unit(),
        "batch_norm_sums",
        shape(cols, parts),
        &[
            &dy.ptr(),
            &x.ptr(),
            &valid.at,
            &mean.ptr(),
            &scale.ptr(),
            &sizes[0],
            &sizes[1],
            &partials.ptr(),
            &sizes[2],
        ],
    );
    let (d_gamma, add_gamma) = backward.param_target(norm.weight);
    let (d_beta, add_beta) = backward.param_target(norm.bias);
    let (dx, add_dx) = backward.target(x);
    gpu.launch(
        &unit(),
        "batch_norm_backward",
        shape(cols, parts),
        &[
            &dy.ptr(),
            &x.ptr(),
            &valid.at,
            &mean.ptr(),
            &scale.ptr(),
            &backward.params.master(norm.weight),
            &partials.ptr(),
            &sizes[2],
            &of_batch(*source),
            &d_gamma,
            &add_gamma,
            &d_beta,
            &add_beta,
            &dx,
            &add_dx,
            &sizes[0],
            &sizes[1],
        ],
    );
}

/// The number of rows that are really there, in device memory.
struct ValidRows {
    at: Ptr,
    /// Memory of its own, where no segments have the number.
    _own: Option<Block>,
}

impl ValidRows {
    fn of(gpu: &Arc<Gpu>, x: &Var) -> Self {
        match x.real_rows() {
            RealRows::Sentences(segments) => Self { at: segments.valid_sentences(), _own: None },
            RealRows::Rows(segments) => Self { at: segments.valid_rows(), _own: None },
            RealRows::All => {
                let own = Block::new(gpu, 4);
                gpu.set_word(own.ptr(), x.rows() as u32);
                Self { at: own.ptr(), _own: Some(own) }
            }
        }
    }
}

/// As the kernels see it.
fn of_batch(source: Source) -> u32 {
    u32::from(source == Source::Batch)
}

/// Parts that the rows are cut into for sums.
fn parts(rows: usize) -> usize {
    rows.div_ceil(64).clamp(1, 32)
}

fn shape(cols: usize, parts: usize) -> Shape {
    Shape::grid([cols.div_ceil(64), parts], 256)
}
