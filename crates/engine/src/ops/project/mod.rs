//! Linear maps without a bias: `Y = dropout(X·Wᵀ)`, or `dropout(X·W)` where one matrix serves both ways; and dropout
//! alone. X `[N, I]`, Y `[N, O]`.

mod cpu;
mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::params::Params;
use crate::rng::Dropout;
use crate::{ParamId, Tape, Var};

/// The direction in which a weight is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// X·Wᵀ with W `[O, I]`, as linear layers store it.
    Straight,
    /// X·W with W `[I, O]`: a map from O to I used backwards.
    Transposed,
}

/// The op with its input.
struct Op {
    x: Var,
    weight: ParamId,
    way: Orientation,
    dropout: Option<Dropout>,
}

impl Op {
    /// I and O.
    fn widths(&self, params: &Params) -> [usize; 2] {
        let block = params.block(self.weight);
        match self.way {
            Orientation::Straight => [block.cols, block.rows],
            Orientation::Transposed => [block.rows, block.cols],
        }
    }
}

impl Tape<'_> {
    /// `dropout(X·Wᵀ)` or `dropout(X·W)`: X `[N, I]` to `[N, O]`.
    pub fn project(&mut self, x: &Var, weight: ParamId, way: Orientation, dropout: f32) -> Var {
        let op = Op { x: x.clone(), weight, way, dropout: self.next_dropout(dropout) };
        let (params, rows, [inner, cols]) = (self.params, x.rows(), op.widths(self.params));
        assert_eq!(x.cols(), inner, "project: the input has {} columns, the weight takes {inner}", x.cols());
        let mut y = self.device().scratch(rows * cols);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, &op, &mut y, self.precision()),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, &op, &y),
        }
        let y = self.output([rows, cols], y, self.uses([weight]) || x.tracked());
        let y = y.with_rows(x.real_rows().clone());
        self.record(&y, move |backward, mut dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, &mut dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, &dy),
        });
        y
    }

    /// `dropout(X)`.
    pub(crate) fn dropout(&mut self, x: &Var, p: f32) -> Var {
        let Some(dropout) = self.next_dropout(p) else {
            return x.clone();
        };
        let (shape, mut y) = (x.shape(), self.like(x));
        match self.backend() {
            Backend::Cpu => cpu::dropout(x, dropout, &mut y),
            Backend::Gpu(gpu) => cuda::dropout(gpu, x, dropout, &y),
        }
        let y = self.output(shape, y, x.tracked());
        let x = x.clone();
        self.record(&y, move |backward, mut dy| {
            match backward.backend() {
                Backend::Cpu => cpu::dropout_in_place(&mut dy, shape, dropout),
                Backend::Gpu(gpu) => cuda::dropout_in_place(gpu, &dy, shape, dropout),
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

    #[test]
    fn gradients_match_finite_differences() {
        for way in [Orientation::Straight, Orientation::Transposed] {
            for (dropout, [rows, inner, cols]) in [(0.0, [7, 5, 11]), (0.3, [67, 3, 2]), (0.0, [1, 2, 3])] {
                let mut check = Check::new();
                let shape = if way == Orientation::Straight { [cols, inner] } else { [inner, cols] };
                let (weight, x) = (check.param("weight", shape), check.param("x", [rows, inner]));
                check.run(move |tape| {
                    let x = tape.parameter(x);
                    let x = tape.dropout(&x, dropout);
                    tape.project(&x, weight, way, dropout)
                });
            }
        }
    }
}
