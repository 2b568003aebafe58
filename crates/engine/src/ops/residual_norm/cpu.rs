//! The CPU's implementation.

use super::{EPSILON, LayerNorm, Op, Residual};
use crate::cpu::{for_rows, for_rows_of_two, for_rows_summing, math};
use crate::device::Buffer;
use crate::ops::RowFactors;
use crate::params::Params;
use crate::tape::Backward;
use crate::{Tensor, Var};

/// Writes the sum, if there is a residual, and the norm, if there is one; the other slice is empty.
pub(super) fn forward(params: &Params, op: &Op, sum: &mut [f32], normed: &mut [f32]) {
    let values = |norm: LayerNorm| [norm.weight, norm.bias].map(|id| params.values(id));
    let [gamma, beta] = op.norm.map_or([&[][..]; 2], values);
    let (x, cols) = (&op.x, op.x.cols());
    match &op.residual {
        Some(residual) => add_rows(
            x,
            residual,
            (sum, normed),
            #[inline(always)]
            |sum, y| norm_row(sum, gamma, beta, y),
        ),
        None => for_rows(
            normed,
            cols,
            #[inline(always)]
            |first, out| {
                for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                    norm_row(x.tensor().row(first + i), gamma, beta, y);
                }
            },
        ),
    }
}

/// Rows of x + dropout(z); `then` sees each with the row of `second` (if that is not empty) while it is in the cache.
fn add_rows(
    x: &Var,
    Residual { z, dropout }: &Residual,
    (sum, second): (&mut [f32], &mut [f32]),
    then: impl Fn(&[f32], &mut [f32]) + Sync,
) {
    let cols = x.cols();
    for_rows_of_two(
        (sum, second),
        cols,
        #[inline(always)]
        |first, rows, seconds| {
            let mut factors = RowFactors::new(cols);
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                let (x, z) = (x.tensor().row(first + i), z.tensor().row(first + i));
                match dropout {
                    None => row.iter_mut().zip(x).zip(z).for_each(|((s, x), z)| *s = x + z),
                    Some(dropout) => {
                        let factors = factors.of(dropout, first + i);
                        for (((s, x), z), f) in row.iter_mut().zip(x).zip(z).zip(factors) {
                            *s = z.mul_add(*f, *x);
                        }
                    }
                }
                if let Some(second) = seconds.get_mut(i * cols..(i + 1) * cols) {
                    then(row, second);
                }
            }
        },
    );
}

#[inline(always)]
fn norm_row(x: &[f32], gamma: &[f32], beta: &[f32], y: &mut [f32]) {
    let (mean, scale) = moments(x);
    for (((y, x), g), b) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
        *y = ((x - mean) * scale).mul_add(*g, *b);
    }
}

/// Mean and 1/√(variance + ε) of a row, in two passes: E[x²] − E[x]² would cancel.
#[inline(always)]
fn moments(x: &[f32]) -> (f32, f32) {
    let inverse = 1.0 / x.len() as f32;
    let mean = math::sum_by(x, |v| v) * inverse;
    let variance = math::sum_by(x, |v| (v - mean) * (v - mean)) * inverse;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

pub(super) fn backward(
    backward: &mut Backward<'_>,
    op: &Op,
    sum: &Tensor,
    d_sum: Option<Buffer>,
    d_normed: Option<Buffer>,
) {
    let norm = op.norm.zip(d_normed);
    match &op.residual {
        None => {
            if let Some((norm, dy)) = norm {
                norm_backward(backward, norm, &dy, sum, &op.x);
            }
        }
        Some(residual) => {
            let d_sum = match norm {
                Some((norm, dy)) => Some(norm_backward_into(backward, norm, &dy, sum, d_sum)),
                None => d_sum,
            };
            if let Some(d_sum) = d_sum {
                residual_backward(backward, d_sum, &op.x, residual);
            }
        }
    }
}

/// dz (+)= dropout(d_sum); dx (+)= d_sum.
fn residual_backward(
    backward: &mut Backward<'_>,
    d_sum: Buffer,
    x: &Var,
    Residual { z, dropout }: &Residual,
) {
    let cols = x.cols();
    backward.input(z, |dz, held| {
        for_rows(
            dz,
            cols,
            #[inline(always)]
            |first, rows| {
                let mut factors = RowFactors::new(cols);
                factors.factors.fill(1.0);
                for (i, dz) in rows.chunks_exact_mut(cols).enumerate() {
                    if let Some(dropout) = dropout {
                        factors.of(dropout, first + i);
                    }
                    let d_sum = &d_sum[(first + i) * cols..];
                    for ((dz, ds), f) in dz.iter_mut().zip(d_sum).zip(&factors.factors) {
                        *dz = if held { ds.mul_add(*f, *dz) } else { ds * f };
                    }
                }
            },
        );
    });
    backward.give(x, d_sum);
}

/// Layer norm of an input x of the op.
fn norm_backward(backward: &mut Backward<'_>, norm: LayerNorm, dy: &[f32], value: &Tensor, x: &Var) {
    if !x.tracked() {
        drop(norm_backward_into(backward, norm, dy, value, None));
        return;
    }
    let gamma = backward.params.values(norm.weight);
    let mut sums = Vec::new();
    backward.input(x, |dx, held| sums = norm_rows(gamma, dy, value, dx, held));
    add_to_params(backward, norm, &sums);
}

/// Layer norm of the sum: gives the sum's gradient, added to `d_sum`.
fn norm_backward_into(
    backward: &mut Backward<'_>,
    norm: LayerNorm,
    dy: &[f32],
    sum: &Tensor,
    d_sum: Option<Buffer>,
) -> Buffer {
    let held = d_sum.is_some();
    let mut d_sum = d_sum.unwrap_or_else(|| backward.device().scratch(dy.len()));
    let sums = norm_rows(backward.params.values(norm.weight), dy, sum, &mut d_sum, held);
    add_to_params(backward, norm, &sums);
    d_sum
}

/// With x̂ = (x − mean)·scale and dx̂ = dy·γ: dx = scale·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂)). Gives dγ = Σ dy·x̂, then
/// dβ = Σ dy.
fn norm_rows(gamma: &[f32], dy: &[f32], x: &Tensor, dx: &mut [f32], held: bool) -> Vec<f32> {
    let cols = x.cols();
    for_rows_summing(
        dx,
        cols,
        2 * cols,
        #[inline(always)]
        |first, out, sums| {
            let (inverse, (d_gamma, d_beta)) = (1.0 / cols as f32, sums.split_at_mut(cols));
            let (mut hat, mut d_hat) = (vec![0.0; cols], vec![0.0; cols]);
            for (i, dx) in out.chunks_exact_mut(cols).enumerate() {
                let (x, dy) = (x.row(first + i), &dy[(first + i) * cols..][..cols]);
                let (mean, scale) = moments(x);
                for c in 0..cols {
                    hat[c] = (x[c] - mean) * scale;
                    d_hat[c] = dy[c] * gamma[c];
                    d_gamma[c] = dy[c].mul_add(hat[c], d_gamma[c]);
                    d_beta[c] += dy[c];
                }
                let first_moment = math::sum_by(&d_hat, |v| v) * inverse;
                let second_moment = math::dot(&d_hat, &hat) * inverse;
                for ((dx, d), hat) in dx.iter_mut().zip(&d_hat).zip(&hat) {
                    let value = scale * (d - first_moment - hat * second_moment);
                    *dx = if held { *dx + value } else { value };
                }
            }
        },
    )
}

fn add_to_params(backward: &mut Backward<'_>, norm: LayerNorm, sums: &[f32]) {
    let (d_gamma, d_beta) = sums.split_at(sums.len() / 2);
    for (id, sum) in [(norm.weight, d_gamma), (norm.bias, d_beta)] {
        backward.param(id, |gradient, held| {
            gradient.iter_mut().zip(sum).for_each(|(g, s)| *g = if held { *g + s } else { *s });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_mean_does_not_cancel() {
        let (mean, scale) = moments(&[10_000.0, 10_001.0, 10_002.0]);
        assert_eq!(mean, 10_001.0);
        assert!((scale - (2.0f32 / 3.0).sqrt().recip()).abs() < 1e-4);
    }
}
