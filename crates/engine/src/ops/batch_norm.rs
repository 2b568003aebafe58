//! Batch norm over rows: `Y = (X − mean)/√(var + ε)·γ + β` per column, X `[N, D]`.
//!
//! In training the statistics are the batch's (biased variance), and the running ones move towards them
//! (unbiased variance, momentum 0.1), as PyTorch does it. In evaluation, and for a batch of one row, which has
//! no variance, the running statistics are used.

use rayon::prelude::*;

use crate::cpu::{for_rows, vectorised};
use crate::device::Buffer;
use crate::tape::Backward;
use crate::{ParamId, Tape, Var};

/// PyTorch's default.
pub const EPSILON: f32 = 1e-5;
/// PyTorch's default: running = 0.9·running + 0.1·batch.
pub const MOMENTUM: f32 = 0.1;

/// γ, β and the running statistics, D values each.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// γ.
    pub weight: ParamId,
    /// β.
    pub bias: ParamId,
    /// Running mean; not trained.
    pub running_mean: ParamId,
    /// Running variance; not trained.
    pub running_var: ParamId,
}

/// Per column: mean and 1/√(variance + ε), and whether they come from the batch (and so depend on x).
struct Statistics {
    mean: Buffer,
    scale: Buffer,
    of_batch: bool,
}

impl Tape<'_> {
    /// Batch norm over the rows of x `[N, D]`.
    pub fn batch_norm(&mut self, x: &Var, norm: BatchNorm) -> Var {
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::batch_norm::batch_norm(self, &gpu, x, norm);
        }
        let (rows, cols) = (x.rows(), x.cols());
        let statistics = if self.is_training() && rows > 1 {
            self.batch_statistics(x, norm)
        } else {
            let mut mean = self.device().scratch(cols);
            mean.copy_from_slice(self.params.values(norm.running_mean));
            let mut scale = self.device().scratch(cols);
            let variance = self.params.values(norm.running_var);
            scale.iter_mut().zip(variance).for_each(|(s, v)| *s = 1.0 / (v + EPSILON).sqrt());
            Statistics { mean, scale, of_batch: false }
        };
        let (gamma, beta) = (self.params.values(norm.weight), self.params.values(norm.bias));
        let mut y = self.device().scratch(rows * cols);
        for_rows(
            &mut y,
            cols,
            #[inline(always)]
            |first, out| {
                for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                    let x = x.tensor().row(first + i);
                    for c in 0..cols {
                        y[c] = ((x[c] - statistics.mean[c]) * statistics.scale[c]).mul_add(gamma[c], beta[c]);
                    }
                }
            },
        );
        let tracked = x.tracked() || self.is_free(norm.weight) || self.is_free(norm.bias);
        let y = self.output([rows, cols], y, tracked);
        let x = x.clone();
        self.record(&y, move |backward, dy| batch_norm_backward(backward, &dy, &x, norm, &statistics));
        y
    }

    /// The batch's statistics; leaves the moved running ones for after the pass.
    fn batch_statistics(&mut self, x: &Var, norm: BatchNorm) -> Statistics {
        let (rows, cols) = (x.rows(), x.cols());
        let mut mean = self.device().scratch(cols);
        let mut variance = self.device().scratch(cols);
        by_columns(
            &mut mean,
            #[inline(always)]
            |first, mean| {
                sum_columns(x, first, mean, |v, _| v);
                mean.iter_mut().for_each(|m| *m /= rows as f32);
            },
        );
        by_columns(
            &mut variance,
            #[inline(always)]
            |first, variance| {
                sum_columns(x, first, variance, |v, c| (v - mean[c]) * (v - mean[c]));
                variance.iter_mut().for_each(|v| *v /= rows as f32);
            },
        );
        let unbiased = rows as f32 / (rows - 1) as f32;
        for (id, batch, factor) in [(norm.running_mean, &mean, 1.0), (norm.running_var, &variance, unbiased)]
        {
            let mut moved = self.device().scratch(cols);
            for ((m, old), new) in moved.iter_mut().zip(self.params.values(id)).zip(batch.iter()) {
                *m = (1.0 - MOMENTUM) * old + MOMENTUM * factor * new;
            }
            self.update(id, moved);
        }
        variance.iter_mut().for_each(|v| *v = 1.0 / (*v + EPSILON).sqrt());
        Statistics { mean, scale: variance, of_batch: true }
    }
}

/// Columns that one task takes.
const COLUMNS_PER_TASK: usize = 64;

fn by_columns(totals: &mut [f32], body: impl Fn(usize, &mut [f32]) + Sync) {
    let task = |(i, part): (usize, &mut [f32])| {
        vectorised(
            #[inline(always)]
            || body(i * COLUMNS_PER_TASK, part),
        )
    };
    totals.par_chunks_mut(COLUMNS_PER_TASK).enumerate().for_each(task);
}

/// totals[c] = Σ over rows of f(x[row, first + c], first + c).
#[inline(always)]
fn sum_columns(x: &Var, first: usize, totals: &mut [f32], f: impl Fn(f32, usize) -> f32) {
    totals.fill(0.0);
    for row in x.values().chunks_exact(x.cols()) {
        let part = &row[first..first + totals.len()];
        for (c, (total, v)) in totals.iter_mut().zip(part).enumerate() {
            *total += f(*v, first + c);
        }
    }
}

/// dβ = Σ dy, dγ = Σ dy·x̂; dx = γ·scale·(dy − (dβ + x̂·dγ)/N) with batch statistics, γ·scale·dy with fixed ones.
fn batch_norm_backward(
    backward: &mut Backward<'_>,
    dy: &[f32],
    x: &Var,
    norm: BatchNorm,
    statistics: &Statistics,
) {
    let (rows, cols) = (x.rows(), x.cols());
    let Statistics { mean, scale, of_batch } = statistics;
    let mut d_beta = backward.device().scratch(cols);
    let mut d_gamma = backward.device().scratch(cols);
    d_beta
        .par_chunks_mut(COLUMNS_PER_TASK)
        .zip(d_gamma.par_chunks_mut(COLUMNS_PER_TASK))
        .enumerate()
        .for_each(|(task, (beta, gamma))| {
            vectorised(
                #[inline(always)]
                || {
                    let first = task * COLUMNS_PER_TASK;
                    beta.fill(0.0);
                    gamma.fill(0.0);
                    for (dy, x) in dy.chunks_exact(cols).zip(x.values().chunks_exact(cols)) {
                        for c in 0..beta.len() {
                            let hat = (x[first + c] - mean[first + c]) * scale[first + c];
                            beta[c] += dy[first + c];
                            gamma[c] = dy[first + c].mul_add(hat, gamma[c]);
                        }
                    }
                },
            );
        });
    for (id, sum) in [(norm.weight, &d_gamma), (norm.bias, &d_beta)] {
        backward.param(id, |gradient, held| {
            gradient.iter_mut().zip(sum.iter()).for_each(|(g, s)| *g = if held { *g + s } else { *s });
        });
    }
    let gamma = backward.params.values(norm.weight);
    let share = if *of_batch { 1.0 / rows as f32 } else { 0.0 };
    backward.input(x, |dx, held| {
        for_rows(
            dx,
            cols,
            #[inline(always)]
            |first, out| {
                for (i, dx) in out.chunks_exact_mut(cols).enumerate() {
                    let (x, dy) = (x.tensor().row(first + i), &dy[(first + i) * cols..][..cols]);
                    for c in 0..cols {
                        let hat = (x[c] - mean[c]) * scale[c];
                        let value =
                            gamma[c] * scale[c] * (dy[c] - share * hat.mul_add(d_gamma[c], d_beta[c]));
                        dx[c] = if held { dx[c] + value } else { value };
                    }
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::params::{GroupId, GroupSet, ParamsBuilder};
    use crate::{Device, Rng, Tensor};

    #[test]
    fn gradients_match_finite_differences() {
        for [rows, cols] in [[5, 3], [13, 67], [2, 4]] {
            let mut check = Check::new();
            let x = check.param("x", [rows, cols]);
            let (weight, bias) = (check.param("weight", [1, cols]), check.param("bias", [1, cols]));
            check.run(move |tape| {
                let x = tape.parameter(x);
                // Batch statistics: the running ones are not read, any block of the right size will do.
                tape.batch_norm(&x, BatchNorm { weight, bias, running_mean: weight, running_var: bias })
            });
        }
    }

    #[test]
    fn running_statistics_move_and_serve_single_rows() {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let mut vector = |name: &str| builder.vector(name.into(), 1, GroupId(0));
        let norm = BatchNorm {
            weight: vector("weight"),
            bias: vector("bias"),
            running_mean: vector("mean"),
            running_var: vector("var"),
        };
        let mut params = builder.finish(&device);
        params.set("weight", &[2.0]).unwrap();
        params.set("bias", &[0.5]).unwrap();
        params.set("mean", &[1.0]).unwrap();
        params.set("var", &[4.0]).unwrap();
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::NONE, Rng::new(1, 1));
        let one = Var::constant(Tensor::from_host(&device, [1, 1], &[3.0]));
        let y = tape.batch_norm(&one, norm).tensor().to_host()[0];
        assert!((y - 2.5).abs() < 1e-4, "(3-1)/2·2+0.5 = 2.5, got {y}");
        let two = Var::constant(Tensor::from_host(&device, [2, 1], &[0.0, 6.0]));
        tape.batch_norm(&two, norm);
        let updates = tape.backward();
        params.apply(updates);
        assert!((params.get("mean").unwrap()[0] - 1.2).abs() < 1e-6);
        assert!((params.get("var").unwrap()[0] - (3.6 + 1.8)).abs() < 1e-5);
    }
}
