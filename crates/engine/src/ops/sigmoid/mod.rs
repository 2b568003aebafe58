//! A scaled sigmoid: `y = scale·σ(x)`; x `[N, H]`. Turns the logits of gates into head weights, which are f32.

mod cpu;
pub(crate) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::{Tape, Var};

impl Tape<'_> {
    /// `scale·σ(x)`, value by value.
    pub fn sigmoid(&mut self, x: &Var, scale: f32) -> Var {
        let shape = x.shape();
        let mut y = self.device().scratch_floats(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => cpu::forward(x, scale, &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, x, scale, &y),
        }
        let y = self.output(shape, y, x.tracked());
        let (x, value) = (x.clone(), y.tensor().clone());
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &x, &value, scale, &dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &x, &value, scale, &dy),
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
        for (scale, shape) in [(1.0, [1, 1]), (2.0, [7, 5]), (0.5, [131, 3])] {
            let mut check = Check::new();
            let x = check.param("x", shape);
            check.run(move |tape| {
                let x = tape.parameter(x);
                tape.sigmoid(&x, scale)
            });
        }
    }

    #[test]
    fn values_are_those_of_the_formula_and_stay_in_range() {
        let device = Device::cpu();
        let params = ParamsBuilder::default().finish(&device);
        let x = [0.0, 1.0, -1.0, 4.5, 300.0, -300.0];
        let input = Var::constant(Tensor::from_host(&device, [3, 2], &x));
        let y = Tape::evaluation(&params).sigmoid(&input, 2.0).tensor().to_host();
        for (x, y) in x.into_iter().zip(y) {
            let want = 2.0 / (1.0 + f64::from(-x).exp());
            assert!((f64::from(y) - want).abs() < 1e-6 && (0.0..=2.0).contains(&y), "x {x}: {y}, {want}");
        }
        let none = Var::constant(Tensor::from_host(&device, [0, 2], &[]));
        assert_eq!(Tape::evaluation(&params).sigmoid(&none, 2.0).rows(), 0);
    }
}
