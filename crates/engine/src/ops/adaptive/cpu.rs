//! The CPU's implementation.

use rayon::prelude::*;

use super::Bands;
use super::rows::EmbedBands;
use crate::cpu::{for_rows, math, vectorised};
use crate::ops::decode::Lineage;
use crate::ops::embed::cpu::{places, scatter};
use crate::ops::{RowFactors, drop_out, drop_out_row};
use crate::params::Matrix;
use crate::tape::Backward;
use crate::{Ids, ParamId, Segments, Tensor, Var};

/// The rows of `x`, which has `cols` columns, that `rows` names.
pub(super) fn take(x: &[f32], rows: &Ids, cols: usize, y: &mut [f32]) {
    for (y, &row) in y.chunks_exact_mut(cols).zip(rows.values()) {
        y.copy_from_slice(&x[row as usize * cols..][..cols]);
    }
}

/// The rows of a table that `rows` names.
pub(super) fn lookup(table: Matrix<'_>, rows: &Ids, cols: usize, y: &mut [f32]) {
    y.chunks_exact_mut(cols).zip(rows.values()).for_each(|(y, &row)| table.row(row as usize, y));
}

pub(super) fn lookup_backward(backward: &mut Backward<'_>, table: ParamId, ids: &Ids, dy: &[f32]) {
    let cols = backward.params.block(table).cols;
    backward.param(table, |gradient, held| scatter(gradient, held, ids.values(), dy, cols, 1.0));
}

pub(super) fn take_backward(backward: &mut Backward<'_>, x: &Var, rows: &Ids, dy: &[f32]) {
    let cols = x.cols();
    backward.input(x, |dx, held| {
        if !held {
            dx.fill(0.0);
        }
        for (dy, &row) in dy.chunks_exact(cols).zip(rows.values()) {
            let dx = &mut dx[row as usize * cols..][..cols];
            dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
        }
    });
}

pub(super) fn embed_bands(
    op: &EmbedBands,
    positions: &Tensor,
    segments: &Segments,
    after: Option<&Lineage>,
    y: &mut [f32],
) {
    let EmbedBands { parts, ids, scale, dropout } = op;
    let (cols, places) = (positions.cols(), places(segments, after));
    let row_of = |mut place: usize| {
        let found = parts.iter().find_map(|part| {
            let own = (place < part.rows()).then(|| part.tensor().row(place));
            place = place.saturating_sub(part.rows());
            own
        });
        found.expect("every place lies in a band")
    };
    for_rows(
        y,
        cols,
        #[inline(always)]
        |first, out| {
            let mut factors = RowFactors::new(cols);
            for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                let word = row_of(ids.places().values()[first + i] as usize);
                let position = positions.row(places[first + i]);
                for ((y, w), p) in y.iter_mut().zip(word).zip(position) {
                    *y = w.mul_add(*scale, *p);
                }
                drop_out_row(y, dropout, &mut factors, first + i);
            }
        },
    );
}

pub(super) fn embed_bands_backward(backward: &mut Backward<'_>, op: &EmbedBands, dy: &mut [f32]) {
    let Some(cols) = op.parts.first().map(Var::cols) else { return };
    drop_out(dy, cols, &op.dropout);
    for (band, part) in op.parts.iter().enumerate() {
        backward.input(part, |dz, held| {
            let rows = op.ids.rows(band).values();
            dz.par_chunks_exact_mut(cols).zip(rows).for_each(|(dz, &row)| {
                let dy = &dy[row as usize * cols..][..cols];
                dz.iter_mut()
                    .zip(dy)
                    .for_each(|(dz, dy)| *dz = dy.mul_add(op.scale, if held { *dz } else { 0.0 }));
            });
        });
    }
}

/// ln p of all words from the logits of every band.
pub(super) fn log_probs(logits: &[Tensor], bands: &Bands, y: &mut [f32]) {
    y.par_chunks_exact_mut(bands.types()).enumerate().for_each(|(row, y)| {
        vectorised(
            #[inline(always)]
            || {
                let head = logits[0].row(row);
                let words = bands.range(0).len();
                let log_sum = log_sum(head);
                y[..words].iter_mut().zip(head).for_each(|(y, l)| *y = l - log_sum);
                for (band, tail) in logits.iter().enumerate().skip(1) {
                    let offset = head[words + band - 1] - log_sum - self::log_sum(tail.row(row));
                    let own = y[bands.range(band)].iter_mut();
                    own.zip(tail.row(row)).for_each(|(y, l)| *y = l + offset);
                }
            },
        );
    });
}

/// ln Σ exp.
#[inline(always)]
fn log_sum(logits: &[f32]) -> f32 {
    let highest = math::max(logits);
    highest + math::sum_by(logits, |v| math::exp(v - highest)).ln()
}
