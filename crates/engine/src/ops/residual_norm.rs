//! Residual, dropout and layer norm in one op, for both orders of the transformer.
//!
//! `sum = x + dropout(z)`, `y = (sum − mean)/√(var + ε)·γ + β` per row. Post-norm goes on with `y` alone; pre-norm
//! goes on with both, `sum` being the stream and `y` the next sublayer's input.

use crate::cpu::{for_rows, math, sum_rows};
use crate::device::Buffer;
use crate::ops::RowFactors;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{ParamId, Tape, Var};

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
        let sum = self.residual(x, z, dropout);
        let normed = self.layer_norm(&sum, norm);
        Normed { sum, normed }
    }

    /// `x + dropout(z)`; x, z `[N, D]`.
    pub fn residual(&mut self, x: &Var, z: &Var, dropout: f32) -> Var {
        let shape = [x.rows(), x.cols()];
        assert_eq!(shape, [z.rows(), z.cols()], "residual: shapes differ");
        let dropout = self.next_dropout(dropout);
        let mut sum = self.device().scratch(shape[0] * shape[1]);
        let cols = shape[1];
        for_rows(
            &mut sum,
            cols,
            #[inline(always)]
            |first, rows| {
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
                }
            },
        );
        let sum = self.output(shape, sum, x.tracked() || z.tracked());
        let (x, z) = (x.clone(), z.clone());
        self.record(&sum, move |backward, ds| residual_backward(backward, ds, &x, &z, dropout));
        sum
    }

    /// Layer norm over the columns of x `[N, D]`.
    pub fn layer_norm(&mut self, x: &Var, norm: LayerNorm) -> Var {
        let (rows, cols) = (x.rows(), x.cols());
        let (gamma, beta) = (self.params.values(norm.weight), self.params.values(norm.bias));
        assert_eq!(gamma.len(), cols, "layer_norm: γ has {} values, the input {cols} columns", gamma.len());
        let mut y = self.device().scratch(rows * cols);
        for_rows(
            &mut y,
            cols,
            #[inline(always)]
            |first, out| {
                for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                    let x = x.tensor().row(first + i);
                    let (mean, scale) = moments(x);
                    for (((y, x), g), b) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                        *y = ((x - mean) * scale).mul_add(*g, *b);
                    }
                }
            },
        );
        let tracked = x.tracked() || self.is_free(norm.weight) || self.is_free(norm.bias);
        let y = self.output([rows, cols], y, tracked);
        let x = x.clone();
        self.record(&y, move |backward, dy| layer_norm_backward(backward, dy, &x, norm));
        y
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
fn layer_norm_backward(backward: &mut Backward<'_>, dy: Buffer, x: &Var, norm: LayerNorm) {
    let (rows, cols) = (x.rows(), x.cols());
    if backward.is_free(norm.weight) || backward.is_free(norm.bias) {
        let mut both = backward.device().scratch(2 * cols);
        sum_rows(
            rows,
            2 * cols,
            &mut both,
            false,
            #[inline(always)]
            |range, partial| {
                let (gamma, beta) = partial.split_at_mut(cols);
                for row in range {
                    let (x, dy) = (x.tensor().row(row), &dy[row * cols..(row + 1) * cols]);
                    let (mean, scale) = moments(x);
                    for (((g, b), x), dy) in gamma.iter_mut().zip(beta.iter_mut()).zip(x).zip(dy) {
                        *g = ((x - mean) * scale).mul_add(*dy, *g);
                        *b += dy;
                    }
                }
            },
        );
        for (id, sum) in [(norm.weight, &both[..cols]), (norm.bias, &both[cols..])] {
            backward.param(id, |gradient, held| {
                gradient.iter_mut().zip(sum).for_each(|(g, s)| *g = if held { *g + s } else { *s });
            });
        }
    }
    let gamma = backward.params.values(norm.weight);
    backward.input(x, |dx, held| {
        for_rows(
            dx,
            cols,
            #[inline(always)]
            |first, out| {
                let inverse = 1.0 / cols as f32;
                let mut scaled = vec![0.0; cols];
                for (i, dx) in out.chunks_exact_mut(cols).enumerate() {
                    let (x, dy) = (x.tensor().row(first + i), &dy[(first + i) * cols..][..cols]);
                    let (mean, scale) = moments(x);
                    scaled.iter_mut().zip(dy).zip(gamma).for_each(|((s, dy), g)| *s = dy * g);
                    let first_moment = math::sum_by(&scaled, |v| v) * inverse;
                    // mean(dx̂·x̂) = scale·(Σ dx̂·x − mean·Σ dx̂)/D would cancel for large means: sum the centred product.
                    let mut lanes = [0.0f32; 16];
                    for (j, (s, x)) in scaled.iter().zip(x).enumerate() {
                        lanes[j % 16] = s.mul_add(x - mean, lanes[j % 16]);
                    }
                    let second = lanes.iter().sum::<f32>() * scale * inverse;
                    for ((dx, s), x) in dx.iter_mut().zip(&scaled).zip(x) {
                        let value = scale * (s - first_moment - (x - mean) * scale * second);
                        *dx = if held { *dx + value } else { value };
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
