//! Residual, dropout and layer norm in one op, for both orders of the transformer.
//!
//! `sum = x + dropout(z)`, `normed = (sum − mean)/√(variance + ε)·γ + β` per row; x, z `[N, D]`. A post-norm transformer
//! continues with `normed` alone; a pre-norm one with both, `sum` being the stream and `normed` the next sublayer's
//! input. Either half is an op of its own, too.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::{Backend, Buffer};
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{ParamId, Tape, Tensor, Var};

/// Default of fairseq and PyTorch.
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

/// One of the three ops with its inputs. Without a residual, x itself is normalised.
struct Op {
    x: Var,
    residual: Option<Residual>,
    norm: Option<LayerNorm>,
}

struct Residual {
    z: Var,
    dropout: Option<Dropout>,
}

impl Tape<'_> {
    /// `x + dropout(z)` and its layer norm; x, z `[N, D]`.
    pub fn residual_norm(&mut self, x: &Var, z: &Var, dropout: f32, norm: LayerNorm) -> Normed {
        let residual = self.next_residual(x, z, dropout);
        let op = Op { x: x.clone(), residual: Some(residual), norm: Some(norm) };
        let (shape, mut sum, mut normed) = (x.shape(), self.like(x), self.like(x));
        op.forward(self, Some(&mut sum), Some(&mut normed));
        let below = x.tracked() || z.tracked();
        let sum = self.output(shape, sum, below);
        let normed = self.output(shape, normed, self.uses([norm.weight, norm.bias]) || below);
        let value = sum.tensor().clone();
        self.record_two([&sum, &normed], move |backward, d_sum, d_normed| {
            op.backward(backward, &value, d_sum, d_normed);
        });
        Normed { sum, normed }
    }

    /// `x + dropout(z)`; x, z `[N, D]`.
    pub fn residual(&mut self, x: &Var, z: &Var, dropout: f32) -> Var {
        let residual = self.next_residual(x, z, dropout);
        let op = Op { x: x.clone(), residual: Some(residual), norm: None };
        let mut sum = self.like(x);
        op.forward(self, Some(&mut sum), None);
        let sum = self.output(x.shape(), sum, x.tracked() || z.tracked());
        let value = sum.tensor().clone();
        self.record(&sum, move |backward, d_sum| op.backward(backward, &value, Some(d_sum), None));
        sum
    }

    /// Layer norm over the columns of x `[N, D]`.
    pub fn layer_norm(&mut self, x: &Var, norm: LayerNorm) -> Var {
        let op = Op { x: x.clone(), residual: None, norm: Some(norm) };
        let mut normed = self.like(x);
        op.forward(self, None, Some(&mut normed));
        let tracked = self.uses([norm.weight, norm.bias]) || x.tracked();
        let normed = self.output(x.shape(), normed, tracked);
        let value = x.tensor().clone();
        self.record(&normed, move |backward, d_normed| op.backward(backward, &value, None, Some(d_normed)));
        normed
    }

    fn next_residual(&mut self, x: &Var, z: &Var, dropout: f32) -> Residual {
        assert_eq!(x.shape(), z.shape(), "residual: shapes differ");
        Residual { z: z.clone(), dropout: self.next_dropout(dropout) }
    }
}

impl Op {
    fn forward(&self, tape: &Tape<'_>, sum: Option<&mut Buffer>, normed: Option<&mut Buffer>) {
        match tape.backend() {
            Backend::Cpu => {
                let [sum, normed] = [sum, normed].map(|buffer| buffer.map_or(&mut [][..], |b| &mut b[..]));
                cpu::forward(tape.params, self, sum, normed);
            }
            Backend::Gpu(gpu) => cuda::forward(gpu, tape.params, self, sum, normed),
        }
    }

    /// From the gradients of the sum and of its norm to those of x, z, γ and β; `sum` is what was normalised.
    fn backward(
        &self,
        backward: &mut Backward<'_>,
        sum: &Tensor,
        d_sum: Option<Buffer>,
        d_normed: Option<Buffer>,
    ) {
        match backward.backend() {
            Backend::Cpu => cpu::backward(backward, self, sum, d_sum, d_normed),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, self, sum, d_sum, d_normed),
        }
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
}
