//! The CPU's implementation of all but attention.

use std::ops::Range;

use rayon::prelude::*;

use super::ancestors::{Ancestors, RowStore};
use super::best::{Candidate, LiveRow, Next, Symbols};
use super::lineage::Lineage;
use crate::cpu::{for_rows, for_rows_of_two, math, vectorised};
use crate::device::Buffer;
use crate::ops::batch_norm::Running;
use crate::{Ids, Tensor};

pub(super) fn gather(x: &Tensor, rows: &Ids, y: &mut [f32]) {
    for (y, &row) in y.chunks_exact_mut(x.cols()).zip(rows.values()) {
        y.copy_from_slice(x.row(row as usize));
    }
}

/// Row `rows[i]` of y becomes row i of x.
pub(super) fn put(x: &Tensor, rows: &Ids, y: &mut Buffer) {
    for (i, &row) in rows.values().iter().enumerate() {
        y.write(row as usize * x.cols(), x.row(i));
    }
}

/// Sums `before + x`, `[N, D]`, each row with that of its parent, and the sums divided by the number of steps: those taken
/// before, and the newest; these normalised, if there is a norm.
pub(super) fn running(
    before: Option<&Tensor>,
    x: &Tensor,
    lineage: &Lineage,
    norm: Option<&Running<'_>>,
    (sums, means): (&mut [f32], &mut [f32]),
) {
    let cols = x.cols();
    for_rows_of_two(
        (sums, means),
        cols,
        #[inline(always)]
        |first, sums, means| {
            for (i, (sum, mean)) in sums.chunks_exact_mut(cols).zip(means.chunks_exact_mut(cols)).enumerate()
            {
                let row = first + i;
                let factor = 1.0 / (lineage.ages()[row] + 1) as f32;
                match (before, lineage.parent(row)) {
                    (Some(before), Some(parent)) => {
                        let terms = before.row(parent).iter().zip(x.row(row));
                        sum.iter_mut().zip(terms).for_each(|(sum, (a, b))| *sum = a + b);
                    }
                    _ => sum.copy_from_slice(x.row(row)),
                }
                mean.iter_mut().zip(sum.iter()).for_each(|(mean, sum)| *mean = sum * factor);
                if let Some(norm) = norm {
                    norm.apply(mean);
                }
            }
        },
    );
}

/// The mean of the inputs of the last `window` steps of each hypothesis.
pub(super) fn window_mean(
    read: &RowStore,
    window: usize,
    ancestors: &Ancestors,
    mean: &mut [f32],
    cols: usize,
) {
    for_rows(
        mean,
        cols,
        #[inline(always)]
        |first, rows| {
            for (i, mean) in rows.chunks_exact_mut(cols).enumerate() {
                let past = ancestors.of(first + i);
                let recent = &past[past.len().saturating_sub(window)..];
                mean.fill(0.0);
                for &row in recent {
                    mean.iter_mut().zip(read.row::<f32>(row)).for_each(|(m, v)| *m += v);
                }
                let inverse = 1.0 / recent.len() as f32;
                mean.iter_mut().for_each(|m| *m *= inverse);
            }
        },
    );
}

pub(super) fn continuations(
    logits: &Tensor,
    live: &[LiveRow],
    groups: &[Range<usize>],
    count: usize,
    symbols: Symbols,
) -> Vec<Vec<Candidate>> {
    let best_of = |group: &Range<usize>| {
        let mut best = Vec::with_capacity(count + 1);
        for row in group.clone() {
            vectorised(
                #[inline(always)]
                || match live[row].next {
                    Next::End => insert(close(logits.row(row), row, &live[row], symbols), count, &mut best),
                    _ => scan(logits.row(row), row as u32, &live[row], symbols, count, &mut best),
                },
            );
        }
        best
    };
    groups.par_iter().map(best_of).collect()
}

/// The hypothesis with the end mark.
fn close(logits: &[f32], row: usize, live: &LiveRow, symbols: Symbols) -> Candidate {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&v| f64::from(v - highest).exp()).sum();
    let log_prob = f64::from(logits[symbols.end as usize] - highest) - sum.ln();
    Candidate { score: live.score + log_prob as f32, row: row as u32, token: symbols.end }
}

/// Puts a candidate into the list of the best, if it is possible and good enough.
#[inline(always)]
fn insert(candidate: Candidate, count: usize, best: &mut Vec<Candidate>) {
    let worthwhile = best.len() < count || candidate.order(&best[count - 1]).is_lt();
    if worthwhile && candidate.score.is_finite() {
        let at = best.partition_point(|other| other.order(&candidate).is_lt());
        best.insert(at, candidate);
        best.truncate(count);
    }
}

#[inline(always)]
fn scan(logits: &[f32], row: u32, live: &LiveRow, symbols: Symbols, count: usize, best: &mut Vec<Candidate>) {
    const RUN: usize = 32;
    let highest = math::max(logits);
    let log_sum = highest + math::sum_by(logits, |v| math::exp(v - highest)).ln();
    let base = live.score - log_sum;
    let forbidden = |token: u32| token == symbols.pad || (live.next == Next::Words && token == symbols.end);
    // A penalty below 0 lifts its token above its run.
    let lift = (-live.unknown_penalty).max(0.0);
    for (run, values) in logits.chunks(RUN).enumerate() {
        // Most runs hold nothing good enough: one comparison passes over them.
        if best.len() == count && math::max(values) + base + lift <= best[count - 1].score {
            continue;
        }
        for (i, value) in values.iter().enumerate() {
            let token = (run * RUN + i) as u32;
            let penalty = if token == symbols.unknown { live.unknown_penalty } else { 0.0 };
            if !forbidden(token) {
                insert(Candidate { score: value + base - penalty, row, token }, count, best);
            }
        }
    }
}
