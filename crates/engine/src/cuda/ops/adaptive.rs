//! Adaptive input and softmax. Their kernels are not written yet: the device reports that, and results are zeros.

use std::sync::Arc;

use crate::cuda::Gpu;
use crate::ops::adaptive::{AdaptiveEmbedding, BandedIds};
use crate::ops::cross_entropy::LossSums;
use crate::{Error, Tape, Tensor, Var};

/// Notes that `what` cannot run here.
pub(crate) fn not_built(gpu: &Gpu, what: &str) {
    gpu.fail(Error::Gpu(format!("{what} are not built for the GPU yet; use --device cpu")));
}

pub(crate) fn embed(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, e: AdaptiveEmbedding<'_>, ids: &BandedIds) -> Var {
    not_built(gpu, "adaptive inputs");
    zeros(tape, [ids.len(), e.positions.cols()])
}

pub(crate) fn loss(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var) -> LossSums {
    not_built(gpu, "adaptive softmaxes");
    let zeros = |cols| Tensor::new([x.rows(), cols], tape.device().zeros(x.rows() * cols));
    LossSums::on_gpu(zeros(2), zeros(1))
}

pub(crate) fn log_probs(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, types: usize) -> Tensor {
    not_built(gpu, "adaptive softmaxes");
    zeros(tape, [x.rows(), types]).tensor().clone()
}

fn zeros(tape: &mut Tape<'_>, [rows, cols]: [usize; 2]) -> Var {
    Var::constant(Tensor::new([rows, cols], tape.device().scratch(rows * cols)))
}
