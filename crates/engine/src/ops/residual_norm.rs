//! Residual, dropout and layer norm in one op, for both orders of the transformer.
//!
//! `sum = x + dropout(z)`, `y = (sum − mean)/√(var + ε)·γ + β` per row. Post-norm goes on with `y` alone; pre-norm
//! goes on with both, `sum` being the stream and `y` the next sublayer's input.

use crate::cpu::{for_rows, for_rows_of_two, for_rows_summing, math};
use crate::device::Buffer;
use crate::ops::RowFactors;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{Device, ParamId, Tape, Var};

/// fairseq's and PyTorch's default.
pub const EPSILON: f32 = 1e-5;

/// The scale γ and shift β of a layer norm, D values each.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// γ.
    pub weight: ParamId,
    /// β.
    pub bias: ParamId,
}

/// A sum and its layer norm.
pub struct Normed {
    /// x + dropout(z).
    pub sum: Var,
    /// Its layer norm.
    pub normed: Var,
}

impl Tape<'_> {
    /// `x + dropout(z)` and its layer norm; x, z `[N, D]`.
    pub fn residual_norm(&mut self, x: &Var, z: &Var, dropout: f32, norm: LayerNorm) -> Normed {
        let dropout = self.next_dropout(dropout);
        let (rows, cols) = (x.rows(), x.cols());
        assert_eq!([rows, cols], [z.rows(), z.cols()], "residual: shapes differ");
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::residual_norm::residual_norm(self, &gpu, x, z, dropout, norm);
        }
        let (gamma, beta) = (self.params.values(norm.weight), self.params.values(norm.bias));
        let mut y = self.device().scratch(rows * cols);
        let sum = add_rows(
            self.device(),
            x,
            z,
            dropout,
            &mut y,
            #[inline(always)]
            |sum, y| norm_row(sum, gamma, beta, y),
        );
        let sum = self.record_residual(x, z, sum, dropout);
        let normed = self.record_norm(&sum, y, norm);
        Normed { sum, normed }
    }

    /// `x + dropout(z)`; x, z `[N, D]`.
    pub fn residual(&mut self, x: &Var, z: &Var, dropout: f32) -> Var {
        let dropout = self.next_dropout(dropout);
        assert_eq!([x.rows(), x.cols()], [z.rows(), z.cols()], "residual: shapes differ");
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::residual_norm::residual(self, &gpu, x, z, dropout);
        }
        let mut nothing = self.device().scratch(0);
        let sum = add_rows(self.device(), x, z, dropout, &mut nothing, |_, _| {});
        self.record_residual(x, z, sum, dropout)
    }

    /// Layer norm over the columns of x `[N, D]`.
    pub fn layer_norm(&mut self, x: &Var, norm: LayerNorm) -> Var {
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::residual_norm::layer_norm(self, &gpu, x, norm);
        }
        let (rows, cols) = (x.rows(), x.cols());
        let (gamma, beta) = (self.params.values(norm.weight), self.params.values(norm.bias));
        let mut y = self.device().scratch(rows * cols);
        for_rows(
            &mut y,
            cols,
            #[inline(always)]
            |first, out| {
                for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                    norm_row(x.tensor().row(first + i), gamma, beta, y);
                }
            },
        );
        self.record_norm(x, y, norm)
    }

    fn record_residual(&mut self, x: &Var, z: &Var, sum: Buffer, dropout: Option<Dropout>) -> Var {
        let sum = self.output([x.rows(), x.cols()], sum, x.tracked() || z.tracked());
        let (x, z) = (x.clone(), z.clone());
        self.record(&sum, move |backward, ds| residual_backward(backward, ds, &x, &z, dropout));
        sum
    }

    fn record_norm(&mut self, x: &Var, y: Buffer, norm: LayerNorm) -> Var {
        let tracked = x.tracked() || self.is_free(norm.weight) || self.is_free(norm.bias);
        let y = self.output([x.rows(), x.cols()], y, tracked);
        let x = x.clone();
        self.record(&y, move |backward, dy| layer_norm_backward(backward, &dy, &x, norm));
        y
    }
}

/// Rows of x + dropout(z); `then` sees each with the row of `second` (if that is not empty) while it is in the cache.
fn add_rows(
    device: &Device,
    x: &Var,
    z: &Var,
    dropout: Option<Dropout>,
    second: &mut [f32],
    then: impl Fn(&[f32], &mut [f32]) + Sync,
) -> Buffer {
    let (rows, cols) = (x.rows(), x.cols());
    let mut sum = device.scratch(rows * cols);
    for_rows_of_two(
        (&mut sum, second),
        cols,
        #[inline(always)]
        |first, rows, seconds| {
            let mut factors = RowFactors::new(cols);
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                let (x, z) = (x.tensor().row(first + i), z.tensor().row(first + i));
                match &dropout {
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
    sum
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

fn residual_backward(backward: &mut Backward<'_>, ds: Buffer, x: &Var, z: &Var, dropout: Option<Dropout>) {
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
                    if let Some(dropout) = &dropout {
                        factors.of(dropout, first + i);
                    }
                    let ds = &ds[(first + i) * cols..];
                    for ((dz, ds), f) in dz.iter_mut().zip(ds).zip(&factors.factors) {
                        *dz = if held { ds.mul_add(*f, *dz) } else { ds * f };
                    }
                }
            },
        );
    });
    backward.give(x, ds);
}

/// With x̂ = (x − mean)·scale and dx̂ = dy·γ: dx = scale·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂)); dγ = Σ dy·x̂; dβ = Σ dy.
fn layer_norm_backward(backward: &mut Backward<'_>, dy: &[f32], x: &Var, norm: LayerNorm) {
    let cols = x.cols();
    let gamma = backward.params.values(norm.weight);
    let mut unwanted = backward.device().scratch(if x.tracked() { 0 } else { dy.len() });
    let mut sums = vec![0.0; 2 * cols];
    let mut rows = |dx: &mut [f32], held: bool| {
        sums = for_rows_summing(
            dx,
            cols,
            2 * cols,
            #[inline(always)]
            |first, out, sums| {
                let (inverse, (d_gamma, d_beta)) = (1.0 / cols as f32, sums.split_at_mut(cols));
                let (mut hat, mut d_hat) = (vec![0.0; cols], vec![0.0; cols]);
                for (i, dx) in out.chunks_exact_mut(cols).enumerate() {
                    let (x, dy) = (x.tensor().row(first + i), &dy[(first + i) * cols..][..cols]);
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
        );
    };
    if x.tracked() {
        backward.input(x, rows);
    } else {
        rows(&mut unwanted, false);
    }
    for (id, sum) in [(norm.weight, &sums[..cols]), (norm.bias, &sums[cols..])] {
        backward.param(id, |gradient, held| {
            gradient.iter_mut().zip(sum).for_each(|(g, s)| *g = if held { *g + s } else { *s });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;

    #[test]
    fn gradients_match_finite_differences() {
        for (dropout, [rows, cols]) in [(0.0, [3, 7]), (0.4, [5, 19]), (0.2, [1, 33])] {
            for use_sum in [false, true] {
                let mut check = Check::new();
                let (x, z) = (check.param("x", [rows, cols]), check.param("z", [rows, cols]));
                let norm = LayerNorm {
                    weight: check.param("weight", [1, cols]),
                    bias: check.param("bias", [1, cols]),
                };
                check.run(move |tape| {
                    let (x, z) = (tape.parameter(x), tape.parameter(z));
                    let Normed { sum, normed } = tape.residual_norm(&x, &z, dropout, norm);
                    // Pre-norm uses both outputs: here one is added to the other.
                    if use_sum { tape.residual(&sum, &normed, 0.0) } else { normed }
                });
            }
        }
    }

    #[test]
    fn a_large_mean_does_not_cancel() {
        let (mean, scale) = moments(&[10_000.0, 10_001.0, 10_002.0]);
        assert_eq!(mean, 10_001.0);
        assert!((scale - (2.0f32 / 3.0).sqrt().recip()).abs() < 1e-4);
    }
}
