//! Smooth activations: `Y = dropout(act(X))`, value by value; X `[N, F]`. [`linear`](crate::ops::linear) has the
//! activations whose slope can be read off their value; these keep their input.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::{Tape, Var};

/// An activation whose slope depends on its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// x·σ(x), also called SiLU.
    Swish,
    /// x·Φ(x), with the distribution function Φ of the normal distribution.
    Gelu,
}

impl Tape<'_> {
    /// `dropout(act(X))`, value by value.
    pub fn activate(&mut self, x: &Var, curve: Curve, dropout: f32) -> Var {
        let (shape, dropout, mut y) = (x.shape(), self.next_dropout(dropout), self.like(x));
        match self.backend() {
            Backend::Cpu => cpu::forward(x, curve, dropout, &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, x, curve, dropout, &y),
        }
        let y = self.output(shape, y, x.tracked());
        let x = x.clone();
        self.record(&y, move |backward, mut dy| {
            match backward.backend() {
                Backend::Cpu => cpu::backward(&x, curve, dropout, &mut dy),
                Backend::Gpu(gpu) => cuda::backward(gpu, &x, curve, dropout, &dy),
            }
            backward.give(&x, dy);
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::{Device, ParamsBuilder, Tensor};

    #[test]
    fn gradients_match_finite_differences() {
        for curve in [Curve::Swish, Curve::Gelu] {
            for (dropout, shape) in [(0.0, [1, 1]), (0.0, [7, 5]), (0.3, [61, 13])] {
                let mut check = Check::new();
                let x = check.param("x", shape);
                check.run(move |tape| {
                    let x = tape.parameter(x);
                    tape.activate(&x, curve, dropout)
                });
            }
        }
    }

    /// Values by PyTorch 2 in double precision: `x * sigmoid(x)` and `gelu(x)`.
    #[test]
    fn values_are_those_of_pytorch() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let x = [0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 300.0, -300.0];
        let swish = [
            0.0,
            0.311_229_67,
            -0.188_770_33,
            0.731_058_6,
            -0.268_941_42,
            2.857_722_4,
            -0.142_277_62,
            300.0,
            0.0,
        ];
        let gelu = [
            0.0,
            0.345_731_23,
            -0.154_268_77,
            0.841_344_8,
            -0.158_655_25,
            2.995_950_3,
            -0.004_049_694,
            300.0,
            0.0,
        ];
        for (curve, want) in [(Curve::Swish, swish), (Curve::Gelu, gelu)] {
            let input = Var::constant(Tensor::from_host(&device, [3, 3], &x));
            let y = Tape::evaluation(&params).activate(&input, curve, 0.0).tensor().to_host();
            for ((x, y), want) in x.into_iter().zip(y).zip(want) {
                assert!((y - want).abs() < 4e-7 * want.abs().max(1.0), "{curve:?}({x}) = {y}, not {want}");
            }
        }
        let none = Var::constant(Tensor::from_host(&device, [0, 2], &[]));
        assert_eq!(Tape::evaluation(&params).activate(&none, Curve::Gelu, 0.1).rows(), 0);
    }
}
