//! Batch norm over the rows that are really there.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::ops::batch_norm::BatchNorm;
use crate::tape::RealRows;
use crate::{Tape, Var};

fn unit() -> Unit {
    Unit::plain("batch_norm")
}

/// What the kernels need to know of the rows: how many count, and mean and variance of each column.
pub(super) struct Batch {
    pub(super) valid: Ptr,
    pub(super) mean: Ptr,
    pub(super) variance: Ptr,
    _held: (Block, [Option<Buffer>; 2]),
}

impl Batch {
    /// In training the batch's own statistics, towards which the running ones move; else the running ones.
    pub(super) fn of(tape: &Tape<'_>, gpu: &Arc<Gpu>, x: &Var, norm: BatchNorm) -> Self {
        let (rows, cols) = (x.rows(), x.cols());
        let count = Block::new(gpu, 4);
        let valid = match x.real_rows() {
            RealRows::Sentences(segments) => segments.valid_sentences(),
            RealRows::Rows(segments) => segments.valid_rows(),
            RealRows::All => {
                gpu.set_word(count.ptr(), rows as u32);
                count.ptr()
            }
        };
        let running = [norm.running_mean, norm.running_var].map(|id| tape.params.master(id));
        if !tape.is_training() {
            return Self { valid, mean: running[0], variance: running[1], _held: (count, [None, None]) };
        }
        let strips = cols.div_ceil(64);
        assert!(strips <= Live::MOST_STRIPS, "batch norm of {cols} columns");
        let [mean, variance] = std::array::from_fn(|_| tape.device().scratch_floats(cols));
        let parts = parts(rows);
        let partials = tape.device().scratch_floats(parts * 2 * cols);
        // Running statistics move where they are: only this op reads them.
        gpu.launch(
            &unit(),
            "batch_norm_statistics",
            shape(cols, parts),
            &[
                &x.ptr(),
                &valid,
                &mean.ptr(),
                &variance.ptr(),
                &running[0],
                &running[1],
                &partials.ptr(),
                &gpu.live(Live::Arrived),
                &(rows as u32),
                &(cols as u32),
                &(parts as u32),
            ],
        );
        let (own_mean, own_variance) = (mean.ptr(), variance.ptr());
        Self { valid, mean: own_mean, variance: own_variance, _held: (count, [Some(mean), Some(variance)]) }
    }
}

pub(crate) fn batch_norm(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, norm: BatchNorm) -> Var {
    let (rows, cols) = (x.rows(), x.cols());
    let batch = Batch::of(tape, gpu, x, norm);
    let (parts, training) = (parts(rows), tape.is_training());
    let y = tape.device().scratch(rows * cols);
    let sizes = [rows as u32, cols as u32, parts as u32];
    let params = tape.params;
    gpu.launch(
        &unit(),
        "batch_norm_forward",
        shape(cols, parts),
        &[
            &x.ptr(),
            &batch.valid,
            &batch.mean,
            &batch.variance,
            &params.master(norm.weight),
            &params.master(norm.bias),
            &y.ptr(),
            &sizes[0],
            &sizes[1],
        ],
    );
    let tracked = x.tracked() || tape.is_free(norm.weight) || tape.is_free(norm.bias);
    let y = tape.output([rows, cols], y, tracked);
    let x = x.clone();
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        // All of it, to hold on to the memory that its pointers name.
        let batch = &batch;
        let partials = backward.device().scratch_floats(parts * 2 * cols);
        gpu.launch(
            &unit(),
            "batch_norm_sums",
            shape(cols, parts),
            &[
                &dy.ptr(),
                &x.ptr(),
                &batch.valid,
                &batch.mean,
                &batch.variance,
                &sizes[0],
                &sizes[1],
                &partials.ptr(),
                &sizes[2],
            ],
        );
        let (d_gamma, add_gamma) = backward.param_target(norm.weight);
        let (d_beta, add_beta) = backward.param_target(norm.bias);
        let (dx, add_dx) = backward.target(&x);
        gpu.launch(
            &unit(),
            "batch_norm_backward",
            shape(cols, parts),
            &[
                &dy.ptr(),
                &x.ptr(),
                &batch.valid,
                &batch.mean,
                &batch.variance,
                &backward.params.master(norm.weight),
                &partials.ptr(),
                &sizes[2],
                &u32::from(training),
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
    });
    y
}

/// Parts that the rows are cut into for sums.
fn parts(rows: usize) -> usize {
    rows.div_ceil(64).clamp(1, 32)
}

fn shape(cols: usize, parts: usize) -> Shape {
    Shape::grid([cols.div_ceil(64), parts], 256)
}
