//! Linear layers: `Y = dropout(act(X·Wᵀ + b))`, X `[N, I]`, W `[O, I]`, b `[O]`, Y `[N, O]`.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::rng::Dropout;
use crate::{ParamId, Tape, Var};

/// Activation after the affine map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// max(0, z).
    Relu,
    /// tanh z.
    Tanh,
}

/// The op with its input.
struct Op {
    x: Var,
    weight: ParamId,
    bias: ParamId,
    act: Activation,
    dropout: Option<Dropout>,
}

impl Tape<'_> {
    /// `dropout(act(X·Wᵀ + b))`: X `[N, I]`, W `[O, I]`, b of O values.
    pub fn linear(&mut self, x: &Var, weight: ParamId, bias: ParamId, act: Activation, dropout: f32) -> Var {
        let (params, [rows, inner]) = (self.params, x.shape());
        let (block, bias_block) = (params.block(weight), params.block(bias));
        let cols = block.rows;
        assert_eq!(inner, block.cols, "linear: the input has {inner} columns, the weight {}", block.cols);
        assert_eq!(bias_block.rows * bias_block.cols, cols, "linear: the bias is not as wide as the output");
        let op = Op { x: x.clone(), weight, bias, act, dropout: self.next_dropout(dropout) };
        let mut y = self.device().scratch(rows * cols);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, &op, &mut y, self.precision()),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, &op, &y),
        }
        let tracked = self.uses([weight, bias]) || x.tracked();
        let y = self.output([rows, cols], y, tracked);
        let kept = op.slope_reads_output().then(|| y.tensor().clone());
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, kept, dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, kept, dy),
        });
        y
    }
}

impl Op {
    /// True if the backward pass needs the output; for dZ = dY it does not.
    fn slope_reads_output(&self) -> bool {
        self.act != Activation::Identity || self.dropout.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;

    #[test]
    fn gradients_match_finite_differences() {
        for act in [Activation::Identity, Activation::Relu, Activation::Tanh] {
            for dropout in [0.0, 0.3] {
                for [rows, inner, cols] in [[7, 5, 11], [1, 3, 2], [67, 17, 13]] {
                    let mut check = Check::new();
                    let weight = check.param("weight", [cols, inner]);
                    // ReLU has a kink at 0: half of the units far above it, half far below.
                    let bias = match act {
                        Activation::Relu => {
                            check.shifted("bias", [1, cols], |i| if i % 2 == 0 { 40.0 } else { -40.0 })
                        }
                        _ => check.param("bias", [1, cols]),
                    };
                    let x = check.param("x", [rows, inner]);
                    check.run(move |tape| {
                        let x = tape.parameter(x);
                        tape.linear(&x, weight, bias, act, dropout)
                    });
                }
            }
        }
    }
}
