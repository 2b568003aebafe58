//! The GPU's implementation: a product, one kernel over each row of logits, two products back. Rows of logits are
//! [`pitch`] values apart.

use std::ops::Range;
use std::sync::Arc;

use super::CrossEntropy;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::cuda::sums::ColumnSums;
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::params::Params;
use crate::{ParamId, Tape, Tensor, Var};

/// Logits held at a time.
const MAX_LOGITS: usize = 1 << 30;

/// Rows that are kept in shared memory up to this size, and read again where they are larger.
const KEPT_BYTES: usize = 96 << 10;
/// Threads of a block that works on a row of logits.
pub(crate) const ROW_THREADS: usize = 512;
/// Threads that sum losses.
const SUM_THREADS: usize = 512;

/// The softmax of a row, for all kernels that need one.
pub(crate) const SOFTMAX_ROW: (&str, &str) = ("softmax_row.cuh", include_str!("softmax_row.cuh"));

kernels! {
    static FILE = "cross_entropy" at "cross_entropy.cu", constants [KEPT_BYTES, ROW_THREADS, SUM_THREADS],
        headers &[SOFTMAX_ROW];

    /// Loss of each row; logits become their gradient.
    struct LossRows = loss_rows {
        logits: *mut Act,
        targets: *const u32,
        smoothing: f32,
        weight: *const f32,
        log_probs: *mut f32,
        losses: *mut f32,
        valid_rows: *const u32,
        first_row: u32,
        types: u32,
        gradient_wanted: u32,
    }

    /// Sums of losses over rows.
    struct LossSum = loss_sum {
        losses: *const f32,
        rows: u32,
        sums: *mut f64,
        add: u32,
    }
}

/// From one row of logits to the next: each begins on 16 bytes, which products and kernels need to be fast.
fn pitch(types: usize) -> usize {
    types.next_multiple_of(8)
}

/// Vocabularies from this size on have a product of their own for what is left over of a multiple of 8.
const LARGE: usize = 1024;

/// E, `[types, width]`, as products read it, and the bias, or null.
#[derive(Clone, Copy)]
struct Vocabulary {
    weights: Ptr,
    bias: Ptr,
    types: usize,
    width: usize,
}

impl Vocabulary {
    fn of(params: &Params, id: ParamId, bias: Option<ParamId>) -> Self {
        let block = params.block(id);
        let bias = bias.map_or(Ptr::NULL, |bias| params.weights(bias));
        Self { weights: params.weights(id), bias, types: block.rows, width: block.cols }
    }

    /// The types of each product. cuBLASLt is slow where a dimension along which it reads or writes is no multiple of
    /// 16 bytes: a large vocabulary leaves its last few types to another product.
    fn parts(self) -> impl Iterator<Item = Range<usize>> {
        let even = if self.types < LARGE { self.types } else { self.types / 8 * 8 };
        [0..even, even..self.types].into_iter().filter(|part| !part.is_empty())
    }

    fn rows(self, gpu: &Gpu, part: &Range<usize>) -> Factor {
        Factor::new(self.weights.plus(part.start * self.width * gpu.act().size()), self.width)
    }

    /// `x·Eᵀ`, or `x·Eᵀ + b`, for `count` rows x, to rows that are `c_cols` values apart.
    fn logits(self, gpu: &Gpu, x: Factor, count: usize, logits: Ptr, c_cols: usize) {
        for part in self.parts() {
            let (epilogue, bias) = match self.bias {
                Ptr::NULL => (Epilogue::Nothing, Ptr::NULL),
                bias => (Epilogue::Bias, bias.plus(part.start * gpu.act().size())),
            };
            gpu.product(&Product {
                size: [count, part.len(), self.width],
                a: x,
                b: self.rows(gpu, &part).t(),
                c: logits.plus(part.start * gpu.act().size()),
                c_cols,
                out: gpu.act(),
                add: false,
                epilogue,
                bias,
            });
        }
    }
}

/// Writes ln p of the targets and, where it is wanted, the gradient of the features; adds those of the vocabulary and
/// the bias.
/// Returns smoothed loss and nll of each row, `[N, 2]`.
pub(super) fn forward(
    gpu: &Arc<Gpu>,
    tape: &mut Tape<'_>,
    x: &Var,
    loss: &CrossEntropy<'_>,
    dx: Option<&Buffer>,
    log_probs: &Buffer,
) -> Tensor {
    let vocabulary = Vocabulary::of(tape.params, loss.vocabulary, loss.bias);
    let (rows, Vocabulary { types, width, .. }) = (x.rows(), vocabulary);
    let (pitch, size_of) = (pitch(types), gpu.act().size());
    let (device, free) = (tape.device(), tape.uses([loss.vocabulary]));
    let free_bias = loss.bias.filter(|bias| tape.uses([*bias]));
    let losses = device.scratch_floats(2 * rows);
    gpu.set_live(Live::LossWeight, loss.weight.to_bits());
    let runs = (rows * pitch).div_ceil(MAX_LOGITS).max(1);
    let per_run = rows.div_ceil(runs).max(1);
    for first in (0..rows).step_by(per_run) {
        let n = per_run.min(rows - first);
        let features = Factor::new(x.ptr().plus(first * width * size_of), width);
        let logits = device.scratch(n * pitch);
        vocabulary.logits(gpu, features, n, logits.ptr(), pitch);
        let gradient_wanted = free || free_bias.is_some() || dx.is_some();
        let row_bytes = pitch * size_of;
        let keeps = gradient_wanted && row_bytes <= KEPT_BYTES;
        let threads = if types <= 8192 { ROW_THREADS / 2 } else { ROW_THREADS };
        gpu.call(
            Shape::of(n, threads as u32).shared(if keeps { row_bytes } else { 0 }),
            &LossRows {
                logits: logits.ptr(),
                targets: loss.targets.ptr(),
                smoothing: loss.smoothing,
                weight: gpu.live(Live::LossWeight),
                log_probs: log_probs.ptr(),
                losses: losses.ptr(),
                valid_rows: loss.targets.valid(),
                first_row: first as u32,
                types: types as u32,
                gradient_wanted: u32::from(gradient_wanted),
            },
        );
        let d_vocabulary = free.then(|| tape.gradients().slot_ptr(loss.vocabulary));
        for part in vocabulary.parts() {
            let d_logits = Factor::new(logits.ptr().plus(part.start * size_of), pitch);
            if let Some((target, held)) = d_vocabulary {
                gpu.product(&Product {
                    size: [part.len(), width, n],
                    a: d_logits.t(),
                    b: features,
                    c: target.plus(part.start * width * Dtype::F32.size()),
                    c_cols: width,
                    out: Dtype::F32,
                    add: held,
                    epilogue: Epilogue::Nothing,
                    bias: Ptr::NULL,
                });
            }
            if let Some(dx) = dx {
                gpu.product(&Product {
                    size: [n, width, part.len()],
                    a: d_logits,
                    b: vocabulary.rows(gpu, &part),
                    c: dx.ptr().plus(first * width * size_of),
                    c_cols: width,
                    out: gpu.act(),
                    add: part.start > 0,
                    epilogue: Epilogue::Nothing,
                    bias: Ptr::NULL,
                });
            }
        }
        if let Some(bias) = free_bias {
            let (target, held) = tape.gradients().slot_ptr(bias);
            let mut sums = ColumnSums::default();
            sums.push_pitched_rows(gpu, Arc::new(logits), [n, types, pitch], target, u32::from(held));
            sums.run(gpu);
        }
    }
    let free = free.then_some((loss.vocabulary, types * width));
    for (id, count) in free.into_iter().chain(free_bias.map(|bias| (bias, types))).filter(|_| rows == 0) {
        let (gradient, held) = tape.gradients().slot_ptr(id);
        if !held {
            gpu.clear(gradient, count * Dtype::F32.size());
        }
    }
    Tensor::new([rows, 2], losses)
}

/// Adds the sums of per-row losses to two doubles at `into`, or writes them.
pub(crate) fn sum_losses(gpu: &Arc<Gpu>, losses: &Tensor, into: Ptr, add: bool) {
    let sum = LossSum { losses: losses.ptr(), rows: losses.rows() as u32, sums: into, add: u32::from(add) };
    gpu.call(Shape::of(1, SUM_THREADS as u32), &sum);
}

/// The sums of per-row losses on the host, waiting for the device.
pub(crate) fn read_sums(gpu: &Arc<Gpu>, losses: &Tensor) -> [f64; 2] {
    let block = Block::new(gpu, 16);
    sum_losses(gpu, losses, block.ptr(), false);
    let mut sums = [0.0; 2];
    block.read(0, &mut sums);
    sums
}

/// `x·Eᵀ`, or `x·Eᵀ + b`, without room between rows.
pub(super) fn logits(
    gpu: &Gpu,
    params: &Params,
    x: &Var,
    vocabulary: ParamId,
    bias: Option<ParamId>,
    logits: &Buffer,
) {
    let vocabulary = Vocabulary::of(params, vocabulary, bias);
    vocabulary.logits(gpu, Factor::new(x.ptr(), x.cols()), x.rows(), logits.ptr(), vocabulary.types);
}

/// `x·Eᵀ`, with rows [`pitch`] values apart.
pub(crate) fn pitched_logits(gpu: &Gpu, params: &Params, x: &Var, vocabulary: ParamId) -> Buffer {
    let vocabulary = Vocabulary::of(params, vocabulary, None);
    let pitch = pitch(vocabulary.types);
    let logits = params.device().scratch(x.rows() * pitch);
    vocabulary.logits(gpu, Factor::new(x.ptr(), x.cols()), x.rows(), logits.ptr(), pitch);
    logits
}
