//! The label-smoothed loss: product, one kernel over each row of logits, two products back. Rows of logits are
//! [`pitch`] values apart.

use std::sync::Arc;

use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::ops::adaptive::{AdaptiveSoftmax, Bands};
use crate::ops::cross_entropy::{CrossEntropy, LossSums};
use crate::{Ids, ParamId, Tape, Tensor, Var};

/// Logits held at a time.
const MAX_LOGITS: usize = 1 << 30;

/// Rows that are kept in shared memory up to this size, and read again where they are larger.
const SHARED_LIMIT: usize = 96 << 10;

fn unit() -> Unit {
    Unit::plain("loss")
}

/// From one row of logits to the next: each begins on 16 bytes, which products and kernels need to be fast.
fn pitch(types: usize) -> usize {
    types.next_multiple_of(8)
}

pub(crate) fn cross_entropy(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    loss: CrossEntropy<'_>,
) -> LossSums {
    let (rows, width) = (x.rows(), x.cols());
    let types = tape.params.block(loss.vocabulary).rows;
    let pitch = pitch(types);
    let free = tape.is_free(loss.vocabulary);
    let device = tape.device().clone();
    let dx = x.tracked().then(|| device.scratch(rows * width));
    let log_probs = device.scratch_floats(rows);
    let losses = device.scratch_floats(2 * rows);
    gpu.set_live(Live::LossWeight, loss.weight.to_bits());
    let runs = (rows * pitch).div_ceil(MAX_LOGITS).max(1);
    let per_run = rows.div_ceil(runs).max(1);
    let vocabulary = Factor::new(tape.params.weights(loss.vocabulary), width);
    for first in (0..rows).step_by(per_run) {
        let n = per_run.min(rows - first);
        let features = Factor::new(x.ptr().plus(first * width * gpu.act().size()), width);
        let logits = device.scratch(n * pitch);
        let product = Product {
            size: [n, types, width],
            a: features,
            b: vocabulary.t(),
            c: logits.ptr(),
            c_cols: pitch,
            out: gpu.act(),
            add: false,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        };
        gpu.product(&product);
        let gradient_wanted = free || dx.is_some();
        let row_bytes = pitch * gpu.act().size();
        let keeps = gradient_wanted && row_bytes <= SHARED_LIMIT;
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
        let d_logits = Factor::new(logits.ptr(), pitch);
        let product = Product { c_cols: width, ..product };
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
    if rows == 0 && free {
        let (gradient, held) = tape.gradients().slot_ptr(loss.vocabulary);
        if !held {
            gpu.clear(gradient, types * width * Dtype::F32.size());
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

/// Adds what row i of `tail` loses, for as many as `rows` really has, to row `rows[i]` of `all`; losses `[., 2]`, then
/// log-probabilities `[., 1]`.
pub(crate) fn add_tail(gpu: &Arc<Gpu>, all: [&Tensor; 2], tail: [&Tensor; 2], rows: &Ids) {
    gpu.launch(
        &unit(),
        "add_tail",
        Shape::of(rows.len().div_ceil(256), 256),
        &[
            &tail[1].ptr(),
            &tail[0].ptr(),
            &rows.ptr(),
            &rows.valid(),
            &all[1].ptr(),
            &all[0].ptr(),
            &(rows.len() as u32),
        ],
    );
}

/// The sums of per-row losses on the host, waiting for the device.
pub(crate) fn read_sums(gpu: &Arc<Gpu>, losses: &Tensor) -> [f64; 2] {
    let block = Block::new(gpu, 16);
    sum_losses(gpu, losses, block.ptr(), false);
    let mut sums = [0.0; 2];
    block.read(0, &mut sums);
    sums
}

/// `x·Eᵀ`, without room between rows.
pub(crate) fn logits(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, vocabulary: ParamId) -> Tensor {
    let types = tape.params.block(vocabulary).rows;
    Tensor::new([x.rows(), types], product_with(tape, gpu, x, vocabulary, types))
}

/// `x·Eᵀ`, rows being [`pitch`] values apart.
fn logits_apart(tape: &Tape<'_>, gpu: &Arc<Gpu>, x: &Var, vocabulary: ParamId) -> Buffer {
    product_with(tape, gpu, x, vocabulary, pitch(tape.params.block(vocabulary).rows))
}

fn product_with(tape: &Tape<'_>, gpu: &Arc<Gpu>, x: &Var, vocabulary: ParamId, c_cols: usize) -> Buffer {
    let (rows, width) = (x.rows(), x.cols());
    let logits = tape.device().scratch(rows * c_cols);
    gpu.product(&Product {
        size: [rows, tape.params.block(vocabulary).rows, width],
        a: Factor::new(x.ptr(), width),
        b: Factor::new(tape.params.weights(vocabulary), width).t(),
        c: logits.ptr(),
        c_cols,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    logits
}

/// ln p of all words under an adaptive softmax.
pub(crate) fn adaptive_log_probs(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    softmax: &AdaptiveSoftmax<'_>,
    bands: &Bands,
) -> Tensor {
    let (rows, types, words) = (x.rows(), bands.types(), bands.range(0).len());
    let x = x.detach();
    let y = tape.device().scratch(rows * types);
    let head = logits_apart(tape, gpu, &x, softmax.head);
    let head_types = tape.params.block(softmax.head).rows as u32;
    for band in 0..bands.count() {
        let tail = band.checked_sub(1).map(|index| {
            let tail = &softmax.tails[index];
            let own = tape.project(&x, tail.projection, tail.orientation, 0.0);
            logits_apart(tape, gpu, &own, tail.vocabulary)
        });
        let range = bands.range(band);
        gpu.launch(
            &unit(),
            "band_log_probs",
            Shape::of(rows, 512),
            &[
                &head.ptr(),
                &head_types,
                &((words + band).saturating_sub(1) as u32),
                &tail.as_ref().map_or(Ptr::NULL, Buffer::ptr),
                &y.ptr(),
                &(range.start as u32),
                &(range.len() as u32),
                &(types as u32),
            ],
        );
    }
    Tensor::new([rows, types], y)
}
