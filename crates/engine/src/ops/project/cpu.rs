//! The CPU's implementation.

use super::{Op, Orientation};
use crate::Var;
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::ops::drop_out;
use crate::params::Params;
use crate::rng::Dropout;
use crate::tape::Backward;

/// The factor `[I, O]` of X.
fn factor<'a>(params: &'a Params, op: &Op) -> Mat<'a> {
    let weight = Mat::new(params.values(op.weight), params.block(op.weight).cols);
    match op.way {
        Orientation::Straight => weight.t(),
        Orientation::Transposed => weight,
    }
}

pub(super) fn forward(params: &Params, op: &Op, y: &mut [f32], precision: Precision) {
    let (rows, [inner, cols]) = (op.x.rows(), op.widths(params));
    let weight = params.matrix(op.weight);
    match op.way {
        Orientation::Straight => weight.product(rows, op.x.values(), y, precision),
        Orientation::Transposed => {
            let (x, weight) = (Mat::new(op.x.values(), inner), weight.values());
            gemm([rows, cols, inner], x, Mat::new(&weight, cols), y, Into::Overwrite, precision);
        }
    }
    drop_out(y, cols, &op.dropout);
}

pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, dy: &mut [f32]) {
    let (rows, [inner, cols]) = (op.x.rows(), op.widths(backward.params));
    drop_out(dy, cols, &op.dropout);
    let (dy, x, precision) = (Mat::new(dy, cols), Mat::new(op.x.values(), inner), backward.precision());
    backward.param(op.weight, |dw, held| match op.way {
        Orientation::Straight => {
            gemm([cols, inner, rows], dy.t(), x, dw, Into::held(held), precision);
        }
        Orientation::Transposed => {
            gemm([inner, cols, rows], x.t(), dy, dw, Into::held(held), precision);
        }
    });
    let w = factor(backward.params, op).t();
    backward.input(&op.x, |dx, held| {
        gemm([rows, inner, cols], dy, w, dx, Into::held(held), precision);
    });
}

pub(super) fn dropout(x: &Var, dropout: Dropout, y: &mut [f32]) {
    y.copy_from_slice(x.values());
    drop_out(y, x.cols(), &Some(dropout));
}

pub(super) fn dropout_in_place(dy: &mut [f32], [_, cols]: [usize; 2], dropout: Dropout) {
    drop_out(dy, cols, &Some(dropout));
}
