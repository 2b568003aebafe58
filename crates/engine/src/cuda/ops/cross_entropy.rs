//! The label-smoothed loss: product, one kernel over each row of logits, two products back.

use std::sync::Arc;

use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::cuda::{Gpu, Live};
use crate::ops::cross_entropy::{CrossEntropy, LossSums};
use crate::{ParamId, Tape, Tensor, Var};

/// Logits held at a time.
const MAX_LOGITS: usize = 1 << 30;

/// Rows that are kept in shared memory up to this size, and read again where they are larger.
const SHARED_LIMIT: usize = 96 << 10;

fn unit() -> Unit {
    Unit::plain("loss")
}

pub(crate) fn cross_entropy(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    loss: CrossEntropy<'_>,
) -> LossSums {
    let (rows, width) = (x.rows(), x.cols());
    let types = tape.params.block(loss.vocabulary).rows;
    let free = tape.is_free(loss.vocabulary);
    let device = tape.device().clone();
    let dx = x.tracked().then(|| device.scratch(rows * width));
    let log_probs = device.scratch_floats(rows);
    let losses = device.scratch_floats(2 * rows);
    gpu.set_live(Live::LossWeight, loss.weight.to_bits());
    let runs = (rows * types).div_ceil(MAX_LOGITS).max(1);
    let per_run = rows.div_ceil(runs).max(1);
    let vocabulary = Factor::new(tape.params.weights(loss.vocabulary), width);
    for first in (0..rows).step_by(per_run) {
        let n = per_run.min(rows - first);
        let features = Factor::new(x.ptr().plus(first * width * gpu.act().size()), width);
        let logits = device.scratch(n * types);
        let product = Product {
            size: [n, types, width],
            a: features,
            b: vocabulary.t(),
            c: logits.ptr(),
            out: gpu.act(),
            add: false,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        };
        gpu.product(&product);
        let gradient_wanted = free || dx.is_some();
        let row_bytes = types * gpu.act().size();
        let keeps = gradient_wanted && types.is_multiple_of(8) && row_bytes <= SHARED_LIMIT;
        let shape = Shape::of(n, if types <= 8192 { 256 } else { 512 });
        gpu.launch(
            &unit(),
            "loss_rows",
            shape.shared(if keeps { row_bytes } else { 0 }),
            &[
                &logits.ptr(),
                &loss.targets.ptr(),
                &loss.smoothing,
                &gpu.live(Live::LossWeight),
                &log_probs.ptr(),
                &losses.ptr(),
                &loss.targets.valid(),
                &(first as u32),
                &(types as u32),
                &u32::from(gradient_wanted),
            ],
        );
        let d_logits = Factor::new(logits.ptr(), types);
        if free {
            let (c, add) = tape.gradients().slot_ptr(loss.vocabulary);
            let size = [types, width, n];
            gpu.product(&Product { size, a: d_logits.t(), b: features, c, out: Dtype::F32, add, ..product });
        }
        if let Some(dx) = &dx {
            let c = dx.ptr().plus(first * width * gpu.act().size());
            gpu.product(&Product { size: [n, width, types], a: d_logits, b: vocabulary, c, ..product });
        }
    }
    if let Some(dx) = dx {
        tape.seed(x, dx);
    }
    LossSums::on_gpu(Tensor::new([rows, 2], losses), Tensor::new([rows, 1], log_probs))
}

/// Adds the sums of per-row losses to two doubles at `into`, or writes them.
pub(crate) fn sum_losses(gpu: &Arc<Gpu>, losses: &Tensor, into: Ptr, add: bool) {
    let rows = losses.rows() as u32;
    gpu.launch(&unit(), "loss_sum", Shape::of(1, 512), &[&losses.ptr(), &rows, &into, &u32::from(add)]);
}

/// The sums of per-row losses on the host, waiting for the device.
pub(crate) fn read_sums(gpu: &Arc<Gpu>, losses: &Tensor) -> [f64; 2] {
    let block = Block::new(gpu, 16);
    sum_losses(gpu, losses, block.ptr(), false);
    let mut sums = [0.0; 2];
    block.read(0, &mut sums);
    sums
}

/// `x·Eᵀ`.
pub(crate) fn logits(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, vocabulary: ParamId) -> Tensor {
    let (rows, width, types) = (x.rows(), x.cols(), tape.params.block(vocabulary).rows);
    let logits = tape.device().scratch(rows * types);
    gpu.product(&Product {
        size: [rows, types, width],
        a: Factor::new(x.ptr(), width),
        b: Factor::new(tape.params.weights(vocabulary), width).t(),
        c: logits.ptr(),
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    Tensor::new([rows, types], logits)
}
