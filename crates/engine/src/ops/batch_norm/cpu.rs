//! The CPU's implementation.

use rayon::prelude::*;

use super::{BatchNorm, EPSILON, MOMENTUM, Op, Source};
use crate::Var;
use crate::cpu::{for_rows, vectorised};
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

/// Writes y, the statistics that it was made with, and where they are the batch's, the moves of the running ones.
pub(super) fn forward(params: &Params, op: &mut Op, moved: Option<&mut [Buffer; 2]>, y: &mut [f32]) {
    statistics(params, op, moved);
    let Op { x, norm, mean, scale, .. } = &*op;
    let (gamma, beta, cols) = (params.values(norm.weight), params.values(norm.bias), x.cols());
    let (mean, scale) = (&mean[..], &scale[..]);
    for_rows(
        y,
        cols,
        #[inline(always)]
        |first, out| {
            for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                let x = x.tensor().row(first + i);
                let columns = mean.iter().zip(scale).zip(gamma.iter().zip(beta));
                for ((y, x), ((mean, scale), (gamma, beta))) in y.iter_mut().zip(x).zip(columns) {
                    *y = ((x - mean) * scale).mul_add(*gamma, *beta);
                }
            }
        },
    );
}

/// Norm by running statistics, for rows that another op makes.
pub(crate) struct Running<'p> {
    mean: &'p [f32],
    scale: Vec<f32>,
    gamma: &'p [f32],
    beta: &'p [f32],
}

impl<'p> Running<'p> {
    pub(crate) fn new(params: &'p Params, norm: BatchNorm) -> Self {
        let mut scale = params.values(norm.running_var).to_vec();
        invert(&mut scale);
        let [mean, gamma, beta] = [norm.running_mean, norm.weight, norm.bias].map(|id| params.values(id));
        Self { mean, scale, gamma, beta }
    }

    /// Normalises a row in place.
    #[inline(always)]
    pub(crate) fn apply(&self, row: &mut [f32]) {
        let columns = self.mean.iter().zip(&self.scale).zip(self.gamma.iter().zip(self.beta));
        for (x, ((mean, scale), (gamma, beta))) in row.iter_mut().zip(columns) {
            *x = ((*x - mean) * scale).mul_add(*gamma, *beta);
        }
    }
}

/// Turns variances into factors 1/√(variance + ε).
fn invert(variances: &mut [f32]) {
    vectorised(
        #[inline(always)]
        || variances.iter_mut().for_each(|v| *v = 1.0 / (*v + EPSILON).sqrt()),
    );
}

fn statistics(params: &Params, op: &mut Op, moved: Option<&mut [Buffer; 2]>) {
    let Op { x, norm, source, mean, scale } = op;
    let running = [norm.running_mean, norm.running_var].map(|id| params.values(id));
    match source {
        Source::Running => {
            mean.copy_from_slice(running[0]);
            scale.copy_from_slice(running[1]);
        }
        Source::Batch => batch_statistics(x, mean, scale),
    }
    if let Some(moved) = moved {
        let rows = x.rows() as f32;
        let unbiased = rows / (x.rows() - 1) as f32;
        for (i, (batch, factor)) in [(&*mean, 1.0), (&*scale, unbiased)].into_iter().enumerate() {
            moved[i].iter_mut().zip(batch.iter()).for_each(|(moved, new)| *moved = MOMENTUM * factor * new);
        }
    }
    invert(scale);
}

/// Mean and biased variance of each column.
fn batch_statistics(x: &Var, mean: &mut [f32], variance: &mut [f32]) {
    let rows = x.rows() as f32;
    by_columns(
        mean,
        #[inline(always)]
        |first, mean| {
            sum_columns(x, first, mean, |v, _| v);
            mean.iter_mut().for_each(|m| *m /= rows);
        },
    );
    by_columns(
        variance,
        #[inline(always)]
        |first, variance| {
            sum_columns(x, first, variance, |v, c| (v - mean[c]) * (v - mean[c]));
            variance.iter_mut().for_each(|v| *v /= rows);
        },
    );
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
pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, dy: &[f32]) {
    let Op { x, norm, source, mean, scale } = op;
    let [rows, cols] = x.shape();
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
    let share = match source {
        Source::Batch => 1.0 / rows as f32,
        Source::Running => 0.0,
    };
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
