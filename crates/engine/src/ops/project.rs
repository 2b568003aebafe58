//! Linear maps without a bias: `Y = dropout(X·Wᵀ)`, or `dropout(X·W)` where one matrix serves both ways; and dropout
//! alone.

use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cuda::ops::project as gpu_ops;
use crate::ops::drop_out;
use crate::ops::linear::into;
use crate::{ParamId, Tape, Var};

/// Which way round a weight is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// X·Wᵀ with W `[O, I]`, as linear layers store it.
    Straight,
    /// X·W with W `[I, O]`: a map from O to I used backwards.
    Transposed,
}

impl Orientation {
    /// The factor `[I, O]` of X that a weight is.
    fn turn(self, weight: Mat<'_>) -> Mat<'_> {
        if self == Self::Straight { weight.t() } else { weight }
    }
}

impl Tape<'_> {
    /// `dropout(X·Wᵀ)` or `dropout(X·W)`: X `[N, I]` to `[N, O]`.
    pub(crate) fn project(&mut self, x: &Var, weight: ParamId, way: Orientation, dropout: f32) -> Var {
        let block = self.params.block(weight);
        let (rows, weight_cols) = (x.rows(), block.cols);
        let (inner, cols) = match way {
            Orientation::Straight => (block.cols, block.rows),
            Orientation::Transposed => (block.rows, block.cols),
        };
        assert_eq!(x.cols(), inner, "project: the input has {} columns, the weight takes {inner}", x.cols());
        let dropout = self.next_dropout(dropout);
        if let Some(gpu) = self.gpu() {
            return gpu_ops::project(self, &gpu, x, weight, way, dropout);
        }
        let mut y = self.device().scratch(rows * cols);
        let w = Mat::new(self.params.values(weight), weight_cols);
        let x_mat = Mat::new(x.values(), inner);
        gemm([rows, cols, inner], x_mat, way.turn(w), &mut y, Into::Overwrite, self.precision());
        drop_out(&mut y, cols, &dropout);
        let tracked = x.tracked() || self.is_free(weight);
        let y = self.output([rows, cols], y, tracked);
        let x = x.clone();
        self.record(&y, move |backward, mut dy| {
            drop_out(&mut dy, cols, &dropout);
            let (dy, x_mat) = (Mat::new(&dy, cols), Mat::new(x.values(), inner));
            backward.param(weight, |dw, held| match way {
                Orientation::Straight => {
                    gemm([cols, inner, rows], dy.t(), x_mat, dw, into(held), Precision::Training);
                }
                Orientation::Transposed => {
                    gemm([inner, cols, rows], x_mat.t(), dy, dw, into(held), Precision::Training);
                }
            });
            let w = Mat::new(backward.params.values(weight), weight_cols);
            backward.input(&x, |dx, held| {
                gemm([rows, inner, cols], dy, way.turn(w).t(), dx, into(held), Precision::Training);
            });
        });
        y
    }

    /// `dropout(X)`.
    pub(crate) fn dropout(&mut self, x: &Var, p: f32) -> Var {
        let dropout = self.next_dropout(p);
        let Some(own) = dropout else {
            return x.clone();
        };
        if let Some(gpu) = self.gpu() {
            return gpu_ops::dropout(self, &gpu, x, own);
        }
        let cols = x.cols();
        let mut y = self.device().scratch(x.values().len());
        y.copy_from_slice(x.values());
        drop_out(&mut y, cols, &dropout);
        let y = self.output([x.rows(), cols], y, x.tracked());
        let x = x.clone();
        self.record(&y, move |backward, mut dy| {
            drop_out(&mut dy, cols, &dropout);
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
