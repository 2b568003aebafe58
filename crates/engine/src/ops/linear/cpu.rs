//! The CPU's implementation: a product, then bias, activation and dropout row by row.

use super::{Activation, Op};
use crate::Tensor;
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cpu::{for_rows, for_rows_summing, math};
use crate::device::Buffer;
use crate::ops::RowFactors;
use crate::params::Params;
use crate::rng::Dropout;
use crate::tape::Backward;

pub(super) fn forward(params: &Params, op: &Op, y: &mut [f32], precision: Precision) {
    let (bias, rows) = (params.values(op.bias), op.x.rows());
    params.matrix(op.weight).product(rows, op.x.values(), y, precision);
    forward_tail(y, bias, op.act, op.dropout);
}

/// `y` is the output, where the slope of the activation is read off it.
pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, y: Option<Tensor>, mut dz: Buffer) {
    let (cols, [rows, inner]) = (backward.params.block(op.weight).rows, op.x.shape());
    let sums = backward_tail(&mut dz, y.as_ref(), cols, op.act, op.dropout);
    drop(y);
    backward.param(op.bias, |db, held| {
        db.iter_mut().zip(&sums).for_each(|(d, s)| *d = if held { *d + s } else { *s });
    });
    let (dz, x, precision) = (Mat::new(&dz, cols), Mat::new(op.x.values(), inner), backward.precision());
    backward.param(op.weight, |dw, held| {
        gemm([cols, inner, rows], dz.t(), x, dw, Into::held(held), precision);
    });
    let w = Mat::new(backward.params.values(op.weight), inner);
    backward.input(&op.x, |dx, held| {
        gemm([rows, inner, cols], dz, w, dx, Into::held(held), precision);
    });
}

/// Y = dropout(act(Z + b)), in place.
fn forward_tail(z: &mut [f32], bias: &[f32], act: Activation, dropout: Option<Dropout>) {
    let cols = bias.len();
    for_rows(
        z,
        cols,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(if dropout.is_some() { cols } else { 0 });
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                match act {
                    Activation::Identity => row.iter_mut().zip(bias).for_each(|(v, b)| *v += b),
                    Activation::Relu => row.iter_mut().zip(bias).for_each(|(v, b)| *v = (*v + b).max(0.0)),
                    Activation::Tanh => row.iter_mut().zip(bias).for_each(|(v, b)| *v = math::tanh(*v + b)),
                }
                if let Some(dropout) = &dropout {
                    row.iter_mut().zip(factors.of(dropout, first + i)).for_each(|(v, f)| *v *= f);
                }
            }
        },
    );
}

/// Turns dY into dZ in place, the activation's slope being read off Y; gives the sums of the columns of dZ.
fn backward_tail(
    dy: &mut [f32],
    y: Option<&Tensor>,
    cols: usize,
    act: Activation,
    dropout: Option<Dropout>,
) -> Vec<f32> {
    // With dropout Y is scaled; kept values times `back` are the activations themselves.
    let (scale, back) = dropout.map_or((1.0, 1.0), |d| (d.scale, 1.0 / d.scale));
    for_rows_summing(
        dy,
        cols,
        cols,
        #[inline(always)]
        |first, rows, sums| {
            let mut factors = RowFactors::new(cols);
            for (i, d) in rows.chunks_exact_mut(cols).enumerate() {
                let y = y.map_or(&[][..], |y| y.row(first + i));
                match (act, &dropout) {
                    (Activation::Identity, None) => {}
                    // A dropped unit has Y = 0, as one that is off.
                    (Activation::Relu, _) => {
                        d.iter_mut().zip(y).for_each(|(d, y)| *d = if *y > 0.0 { *d * scale } else { 0.0 });
                    }
                    (Activation::Tanh, None) => {
                        d.iter_mut().zip(y).for_each(|(d, y)| *d *= y.mul_add(-y, 1.0))
                    }
                    // The mask cannot be read off Y, where a kept value may be 0 as well.
                    (Activation::Identity | Activation::Tanh, Some(dropout)) => {
                        for ((d, y), f) in d.iter_mut().zip(y).zip(factors.of(dropout, first + i)) {
                            let value = y * back;
                            let slope =
                                if act == Activation::Tanh { value.mul_add(-value, 1.0) } else { 1.0 };
                            *d *= f * slope;
                        }
                    }
                }
                sums.iter_mut().zip(d.iter()).for_each(|(s, d)| *s += d);
            }
        },
    )
}
