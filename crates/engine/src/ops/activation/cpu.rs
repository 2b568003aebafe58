//! The CPU's implementation.

use super::Curve;
use crate::Var;
use crate::cpu::{for_rows, math};
use crate::ops::{RowFactors, drop_out_row};
use crate::rng::Dropout;

pub(super) fn forward(x: &Var, curve: Curve, dropout: Option<Dropout>, y: &mut [f32]) {
    let (cols, x) = (x.cols(), x.values());
    for_rows(
        y,
        cols,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(if dropout.is_some() { cols } else { 0 });
            for (i, y) in rows.chunks_exact_mut(cols).enumerate() {
                let x = &x[(first + i) * cols..][..cols];
                match curve {
                    Curve::Swish => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * math::sigmoid(x)),
                    Curve::Gelu => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * math::normal(x).0),
                }
                drop_out_row(y, &dropout, &mut factors, first + i);
            }
        },
    );
}

/// dY becomes dX = dY·factors·act'(X) in place.
pub(super) fn backward(x: &Var, curve: Curve, dropout: Option<Dropout>, dy: &mut [f32]) {
    let (cols, x) = (x.cols(), x.values());
    for_rows(
        dy,
        cols,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(if dropout.is_some() { cols } else { 0 });
            for (i, d) in rows.chunks_exact_mut(cols).enumerate() {
                drop_out_row(d, &dropout, &mut factors, first + i);
                let x = &x[(first + i) * cols..][..cols];
                match curve {
                    Curve::Swish => d.iter_mut().zip(x).for_each(|(d, &x)| {
                        let s = math::sigmoid(x);
                        *d *= (x * (1.0 - s)).mul_add(s, s);
                    }),
                    Curve::Gelu => d.iter_mut().zip(x).for_each(|(d, &x)| {
                        let (distribution, density) = math::normal(x);
                        *d *= x.mul_add(density, distribution);
                    }),
                }
            }
        },
    );
}
