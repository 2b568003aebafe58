//! Batch norm over the rows that are really there.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::ops::batch_norm::BatchNorm;
use crate::tape::RealRows;
use crate::{Tape, Var};

fn unit() -> Unit {
    Unit::plain("batch_norm")
}

pub(crate) fn batch_norm(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, norm: BatchNorm) -> Var {
    let (rows, cols) = (x.rows(), x.cols());
    let all = Block::new(gpu, 4);
    let valid = match x.real_rows() {
        RealRows::Sentences(segments) => segments.valid_sentences(),
        RealRows::Rows(segments) => segments.valid_rows(),
        RealRows::All => {
            gpu.set_word(all.ptr(), rows as u32);
            all.ptr()
        }
    };
    let training = tape.is_training();
    let parts = parts(rows);
    let floats = |len: usize| tape.device().scratch_floats(len);
    let partials = floats(parts * 2 * cols);
    let [mean, scale] = std::array::from_fn(|_| floats(cols));
    let y = tape.device().scratch(rows * cols);
    let sizes = [rows as u32, cols as u32, parts as u32];
    if training {
        gpu.launch(
            &unit(),
            "batch_norm_statistics",
            shape(cols, parts),
            &[&x.ptr(), &valid, &sizes[0], &sizes[1], &partials.ptr(), &sizes[2]],
        );
    }
    let params = tape.params;
    // Running statistics move where they are: only this op reads them.
    let running = [norm.running_mean, norm.running_var].map(|id| params.master(id));
    let moved = if training { running } else { [Ptr::NULL; 2] };
    gpu.launch(
        &unit(),
        "batch_norm_forward",
        shape(cols, parts),
        &[
            &x.ptr(),
            &valid,
            &partials.ptr(),
            &sizes[2],
            &params.master(norm.weight),
            &params.master(norm.bias),
            &running[0],
            &running[1],
            &mean.ptr(),
            &scale.ptr(),
            &moved[0],
            &moved[1],
            &u32::from(training),
            &y.ptr(),
            &sizes[0],
            &sizes[1],
        ],
    );
    let tracked = x.tracked() || tape.is_free(norm.weight) || tape.is_free(norm.bias);
    let y = tape.output([rows, cols], y, tracked);
    let x = x.clone();
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let _held = &all;
        let partials = backward.device().scratch_floats(parts * 2 * cols);
        gpu.launch(
            &unit(),
            "batch_norm_sums",
            shape(cols, parts),
            &[
                &dy.ptr(),
                &x.ptr(),
                &valid,
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
        let (dx, add_dx) = backward.target(&x);
        gpu.launch(
            &unit(),
            "batch_norm_backward",
            shape(cols, parts),
            &[
                &dy.ptr(),
                &x.ptr(),
                &valid,
                &mean.ptr(),
                &scale.ptr(),
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
