//! The CPU's implementation.

use rayon::prelude::*;

use super::{Op, Positions};
use crate::Segments;
use crate::cpu::for_rows;
use crate::ops::decode::Lineage;
use crate::ops::{RowFactors, drop_out, drop_out_row};
use crate::params::Params;
use crate::tape::Backward;

pub(super) fn forward(
    params: &Params,
    op: &Op,
    positions: Positions<'_>,
    after: Option<&Lineage>,
    y: &mut [f32],
) {
    let (width, places) = (positions.cols(params), places(&op.segments, after));
    let (table, ids) = (params.matrix(op.table), op.ids.values());
    let positions = match positions {
        Positions::Fixed(table) => table.values(),
        Positions::Stored(id) => params.values(id),
    };
    for_rows(
        y,
        width,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(width);
            for (i, row) in rows.chunks_exact_mut(width).enumerate() {
                table.row(ids[first + i] as usize, row);
                let place = &positions[places[first + i] * width..][..width];
                for (y, p) in row.iter_mut().zip(place) {
                    *y = y.mul_add(op.scale, *p);
                }
                drop_out_row(row, &op.dropout, &mut factors, first + i);
            }
        },
    );
}

pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, dy: &mut [f32]) {
    let width = backward.params.block(op.table).cols;
    drop_out(dy, width, &op.dropout);
    backward.param(op.table, |gradient, held| {
        scatter(gradient, held, op.ids.values(), dy, width, op.scale);
    });
}

/// The row of the position table for each token; in search, a sentence has one token after those of its past.
pub(crate) fn places(segments: &Segments, after: Option<&Lineage>) -> Vec<usize> {
    match after {
        Some(lineage) => lineage.ages().iter().map(|&age| age as usize).collect(),
        None => segments.ranges().flat_map(|range| 0..range.len()).collect(),
    }
}

/// dE[id] += scale·dy. Each task owns a range of the vocabulary and adds in token order: no races, fixed sums.
pub(crate) fn scatter(gradient: &mut [f32], held: bool, ids: &[u32], dy: &[f32], width: usize, scale: f32) {
    const WORDS_PER_TASK: usize = 512;
    gradient.par_chunks_mut(WORDS_PER_TASK * width).enumerate().for_each(|(task, words)| {
        if !held {
            words.fill(0.0);
        }
        let first = (task * WORDS_PER_TASK) as u32;
        let own = first..first + (words.len() / width) as u32;
        for (&id, d) in ids.iter().zip(dy.chunks_exact(width)).filter(|(id, _)| own.contains(id)) {
            let word = &mut words[(id - first) as usize * width..][..width];
            word.iter_mut().zip(d).for_each(|(g, d)| *g = d.mul_add(scale, *g));
        }
    });
}
