//! The CPU's implementation.

use rayon::prelude::*;

use super::CrossEntropy;
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cpu::{for_rows, for_rows_summing, math, vectorised};
use crate::params::Params;
use crate::{ParamId, Tape, Var};

/// Logits held at a time.
const MAX_LOGITS: usize = 1 << 24;

/// Writes ln p of the targets and, where it is wanted, the gradient of the features; adds those of the vocabulary and
/// the bias.
/// Returns the smoothed loss and the nll.
pub(super) fn forward(
    tape: &mut Tape<'_>,
    x: &Var,
    loss: &CrossEntropy<'_>,
    mut dx: Option<&mut [f32]>,
    log_probs: &mut [f32],
) -> [f64; 2] {
    let (rows, width, params, precision) =
        (x.rows(), x.cols(), tape.params, tape.device().training_precision());
    let types = params.block(loss.vocabulary).rows;
    let free = tape.uses([loss.vocabulary]);
    let free_bias = loss.bias.filter(|bias| tape.uses([*bias]));
    let vocabulary = params.matrix(loss.vocabulary);
    let mut sums = [0.0; 2];
    // Even runs, so that the last one is not a sliver.
    let runs = (rows * types).div_ceil(MAX_LOGITS).max(1);
    let per_run = rows.div_ceil(runs).max(1);
    for first in (0..rows).step_by(per_run) {
        let range = first..rows.min(first + per_run);
        let n = range.len();
        let features = &x.values()[first * width..range.end * width];
        let mut logits = tape.device().scratch(n * types);
        vocabulary.product(n, features, &mut logits, tape.precision());
        add_bias(params, loss.bias, &mut logits);
        let targets = &loss.targets.values()[range.clone()];
        let gradient_wanted = free || free_bias.is_some() || dx.is_some();
        let per_row = rows_loss(&mut logits, targets, &mut log_probs[range.clone()], loss, gradient_wanted);
        for [smoothed, nll] in per_row {
            sums[0] += smoothed;
            sums[1] += nll;
        }
        if let Some(bias) = free_bias {
            let column_sums = for_rows_summing(
                &mut logits,
                types,
                types,
                #[inline(always)]
                |_, rows, sums| {
                    for row in rows.chunks_exact(types) {
                        sums.iter_mut().zip(row).for_each(|(sum, d)| *sum += d);
                    }
                },
            );
            let (gradient, held) = tape.gradients().slot(bias);
            gradient
                .iter_mut()
                .zip(&column_sums)
                .for_each(|(d, sum)| *d = if held { *d + sum } else { *sum });
        }
        let d_logits = Mat::new(&logits, types);
        if free {
            let (gradient, held) = tape.gradients().slot(loss.vocabulary);
            let into = Into::held(held);
            gemm([types, width, n], d_logits.t(), Mat::new(features, width), gradient, into, precision);
        }
        if let Some(dx) = &mut dx {
            let part = &mut dx[first * width..range.end * width];
            let words = vocabulary.values();
            let words = Mat::new(&words, width);
            gemm([n, width, types], d_logits, words, part, Into::Overwrite, precision);
        }
    }
    let free = free.then_some(loss.vocabulary).into_iter().chain(free_bias);
    for id in free.filter(|_| rows == 0) {
        let (gradient, held) = tape.gradients().slot(id);
        if !held {
            gradient.fill(0.0);
        }
    }
    sums
}

/// Per row `[smoothed loss, nll]`; fills ln p of the targets and, if wanted, turns logits into their gradient.
fn rows_loss(
    logits: &mut [f32],
    targets: &[u32],
    log_probs: &mut [f32],
    loss: &CrossEntropy<'_>,
    gradient_wanted: bool,
) -> Vec<[f64; 2]> {
    let types = logits.len() / targets.len().max(1);
    let rows = logits.par_chunks_exact_mut(types).zip(targets).zip(log_probs);
    rows.with_min_len(4)
        .map(|((row, &target), log_prob)| {
            vectorised(
                #[inline(always)]
                || {
                    let target = target as usize;
                    let target_logit = row[target];
                    let total = math::sum_by(row, |v| v);
                    let log_sum = math::softmax(row);
                    let nll = log_sum - target_logit;
                    let smooth = log_sum - total / types as f32;
                    *log_prob = -nll;
                    if gradient_wanted {
                        let even = loss.smoothing / types as f32;
                        row.iter_mut().for_each(|p| *p = (*p - even) * loss.weight);
                        row[target] -= (1.0 - loss.smoothing) * loss.weight;
                    }
                    let smoothed = f64::from(1.0 - loss.smoothing) * f64::from(nll);
                    [smoothed + f64::from(loss.smoothing) * f64::from(smooth), f64::from(nll)]
                },
            )
        })
        .collect()
}

/// Adds the bias, if there is one, to each row.
fn add_bias(params: &Params, bias: Option<ParamId>, logits: &mut [f32]) {
    let Some(bias) = bias.map(|bias| params.values(bias)) else { return };
    for_rows(
        logits,
        bias.len(),
        #[inline(always)]
        |_, rows| {
            for row in rows.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(logit, b)| *logit += b);
            }
        },
    );
}

pub(super) fn logits(
    params: &Params,
    x: &Var,
    vocabulary: ParamId,
    bias: Option<ParamId>,
    logits: &mut [f32],
) {
    params.matrix(vocabulary).product(x.rows(), x.values(), logits, Precision::Full);
    add_bias(params, bias, logits);
}
