//! Inputs of gates: the mean of a sentence's rows, or the causal running mean at each row.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::tape::RealRows;
use crate::{Segments, Tape, Var};

/// A running mean with its input.
struct Running {
    x: Var,
    segments: Segments,
    /// Rows that a mean reaches back, itself included.
    window: Option<usize>,
}

impl Tape<'_> {
    /// Mean over each sentence: x `[N, D]` to `[B, D]`. A sentence without rows gives zeros.
    pub fn segment_mean(&mut self, x: &Var, segments: &Segments) -> Var {
        assert_eq!(x.rows(), segments.rows(), "segment_mean: rows and segments disagree");
        let shape = [segments.count(), x.cols()];
        let mut y = self.device().scratch(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => cpu::segment_mean(x, segments, &mut y),
            Backend::Gpu(gpu) => cuda::segment_mean(gpu, x, segments, &y),
        }
        let y = self.output(shape, y, x.tracked()).with_rows(RealRows::Sentences(segments.clone()));
        let (x, segments) = (x.clone(), segments.clone());
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::segment_mean_backward(backward, &x, &segments, &dy),
            Backend::Gpu(gpu) => cuda::segment_mean_backward(gpu, backward, &x, &segments, &dy),
        });
        y
    }

    /// Mean over each row and those before it in its sentence, at most the last `window` of them:
    /// `y_t = (1/c_t)·Σ x_s` over `t − window < s ≤ t`; x and the result are `[N, D]`.
    pub fn running_mean(&mut self, x: &Var, segments: &Segments, window: Option<usize>) -> Var {
        assert_eq!(x.rows(), segments.rows(), "running_mean: rows and segments disagree");
        let op = Running { x: x.clone(), segments: segments.clone(), window };
        let mut y = self.like(x);
        match self.backend() {
            Backend::Cpu => cpu::running_mean(&op, &mut y),
            Backend::Gpu(gpu) => cuda::running_mean(gpu, &op, &y),
        }
        let y = self.output(x.shape(), y, x.tracked()).with_rows(RealRows::Rows(segments.clone()));
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::running_mean_backward(backward, &op, dy),
            Backend::Gpu(gpu) => cuda::running_mean_backward(gpu, backward, &op, &dy),
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::{Device, Params, ParamsBuilder, Tensor};

    fn nothing() -> Params {
        ParamsBuilder::default().finish(&Device::cpu())
    }

    #[test]
    fn gradients_match_finite_differences() {
        for starts in [&[0u32, 4, 5, 11][..], &[0, 1], &[0, 3, 3, 7]] {
            let segments = Segments::from_host(&Device::cpu(), starts);
            for window in [None, Some(1), Some(2), Some(3)] {
                let mut check = Check::new();
                let x = check.param("x", [segments.rows(), 5]);
                let own = segments.clone();
                check.run(move |tape| {
                    let x = tape.parameter(x);
                    tape.running_mean(&x, &own, window)
                });
            }
            let mut check = Check::new();
            let x = check.param("x", [segments.rows(), 5]);
            check.run(move |tape| {
                let x = tape.parameter(x);
                tape.segment_mean(&x, &segments)
            });
        }
    }

    #[test]
    fn the_running_mean_looks_back_only() {
        let (params, device) = (nothing(), Device::cpu());
        let mut tape = Tape::evaluation(&params);
        let x = Var::constant(Tensor::from_host(&device, [5, 1], &[1.0, 3.0, 5.0, 10.0, 20.0]));
        let segments = Segments::from_host(&device, &[0, 3, 5]);
        assert_eq!(tape.running_mean(&x, &segments, None).tensor().to_host(), [1.0, 2.0, 3.0, 10.0, 15.0]);
        assert_eq!(tape.running_mean(&x, &segments, Some(2)).tensor().to_host(), [1.0, 2.0, 4.0, 10.0, 15.0]);
        assert_eq!(tape.segment_mean(&x, &segments).tensor().to_host(), [3.0, 15.0]);
    }
}
