//! The CPU's implementation.

use crate::cpu::{for_rows, math};
use crate::tape::Backward;
use crate::{Tensor, Var};

pub(super) fn forward(x: &Var, scale: f32, y: &mut [f32]) {
    let (cols, x) = (x.cols(), x.values());
    for_rows(
        y,
        cols,
        #[inline(always)]
        |first, rows| {
            for (y, x) in rows.iter_mut().zip(&x[first * cols..]) {
                *y = scale / (1.0 + math::exp(-x.clamp(-80.0, 80.0)));
            }
        },
    );
}

/// dx = dy·y·(1 − y/scale).
pub(super) fn backward(backward: &mut Backward<'_>, x: &Var, y: &Tensor, scale: f32, dy: &[f32]) {
    let (cols, y, inverse) = (x.cols(), y.values(), 1.0 / scale);
    backward.input(x, |dx, held| {
        for_rows(
            dx,
            cols,
            #[inline(always)]
            |first, rows| {
                let at = first * cols;
                for ((dx, y), dy) in rows.iter_mut().zip(&y[at..]).zip(&dy[at..]) {
                    let value = dy * y * (1.0 - y * inverse);
                    *dx = if held { *dx + value } else { value };
                }
            },
        );
    });
}
