//! The CPU's implementation.

use std::ops::Range;

use rayon::prelude::*;

use super::ancestors::{Ancestors, RowStore};
use super::attention::{Memory, Weighted};
use super::best::{Candidate, LiveRow, Next, Symbols};
use super::lineage::Lineage;
use crate::cpu::{for_rows, for_rows_of_two, math, prefetch, vectorised};
use crate::ops::batch_norm::Running;
use crate::{Ids, Tensor};

pub(super) fn gather(x: &Tensor, rows: &Ids, y: &mut [f32]) {
    for (y, &row) in y.chunks_exact_mut(x.cols()).zip(rows.values()) {
        y.copy_from_slice(x.row(row as usize));
    }
}

/// Row `rows[i]` of y becomes row i of x.
pub(super) fn put(x: &Tensor, rows: &Ids, y: &mut [f32]) {
    for (i, &row) in rows.values().iter().enumerate() {
        y[row as usize * x.cols()..][..x.cols()].copy_from_slice(x.row(i));
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

/// Each query, at the beginning of a row of qkv, against the keys and values of all steps of its hypothesis.
pub(super) fn attention_cached(
    qkv: &Tensor,
    heads: &Weighted<'_>,
    kv: &RowStore,
    ancestors: &Ancestors,
    out: &mut [f32],
) {
    attend_rows(qkv, heads, out, |row| {
        let past = ancestors.of(row);
        (past.len(), move |step: usize| kv.row(past[step]))
    });
}

pub(super) fn attention_memory(q: &Tensor, heads: &Weighted<'_>, memory: &Memory<'_>, out: &mut [f32]) {
    let Memory { kv, first_column, spans, sentences } = *memory;
    attend_rows(q, heads, out, |row| {
        let [first, end] = spans.of(sentences.values()[row]);
        (end - first, move |j: usize| &kv.row(first + j)[first_column..])
    });
}

/// The query at the beginning of each row of q against rows of keys and values: `source(row)` gives their number and a way to
/// read them. They are read as they lie, all heads of a row at once: rows are often 4,096 bytes apart, and a cache keeps few
/// of the same head.
fn attend_rows<'a, K: Fn(usize) -> &'a [f32]>(
    q: &Tensor,
    heads: &Weighted<'_>,
    out: &mut [f32],
    source: impl Fn(usize) -> (usize, K) + Sync,
) {
    let (k, width) = (heads.width, heads.count * heads.width);
    let scale = 1.0 / (k as f32).sqrt();
    out.par_chunks_exact_mut(width).enumerate().with_min_len(4).for_each(|(row, out)| {
        vectorised(
            #[inline(always)]
            || {
                out.fill(0.0);
                let (count, kv) = source(row);
                if count == 0 {
                    return;
                }
                let (query, weights) = (&q.row(row)[..width], heads.weights.map(|weights| weights.row(row)));
                let weight = |head: usize| weights.map_or(1.0, |weights| weights[head]);
                let mut chances = vec![0.0; heads.count * count];
                for j in 0..count {
                    // Keys now, and values soon.
                    if j + AHEAD < count {
                        kv(j + AHEAD)[..2 * width].chunks(16).for_each(|line| prefetch(line.as_ptr().cast()));
                    }
                    let keys = kv(j)[..width].chunks_exact(k).zip(query.chunks_exact(k));
                    for (head, (key, query)) in keys.enumerate().filter(|(head, _)| weight(*head) != 0.0) {
                        chances[head * count + j] = scale * short_dot(query, key);
                    }
                }
                for (head, p) in chances.chunks_exact_mut(count).enumerate() {
                    if weight(head) != 0.0 {
                        math::softmax(p);
                        p.iter_mut().for_each(|p| *p *= weight(head));
                    }
                }
                for first in (0..count).step_by(TOGETHER) {
                    let some = TOGETHER.min(count - first);
                    // What is beyond the last row is not used.
                    let values: [&[f32]; TOGETHER] =
                        std::array::from_fn(|i| &kv(first + i.min(some - 1))[width..]);
                    for (head, out) in out.chunks_exact_mut(k).enumerate() {
                        if weight(head) != 0.0 {
                            let p = &chances[head * count + first..][..some];
                            add_values(out, p, values.map(|value| &value[head * k..][..k]));
                        }
                    }
                }
            },
        );
    });
}

/// Rows of keys and values that are asked for ahead of their use.
const AHEAD: usize = 2;
/// Rows of keys and values that are read side by side.
const TOGETHER: usize = 4;
/// Values of a head that are summed at a time.
const RUN: usize = 32;

/// Adds rows of values times their chances, one after the other.
#[inline(always)]
fn add_values(out: &mut [f32], p: &[f32], values: [&[f32]; TOGETHER]) {
    let mut runs = out.chunks_exact_mut(RUN);
    for (run, out) in runs.by_ref().enumerate() {
        let mut sums = [0.0; RUN];
        sums.copy_from_slice(out);
        for (p, value) in p.iter().zip(values) {
            let value = &value[run * RUN..(run + 1) * RUN];
            sums.iter_mut().zip(value).for_each(|(sum, v)| *sum = v.mul_add(*p, *sum));
        }
        out.copy_from_slice(&sums);
    }
    let out = runs.into_remainder();
    for (p, value) in p.iter().zip(values) {
        let value = &value[value.len() - out.len()..];
        out.iter_mut().zip(value).for_each(|(o, v)| *o = v.mul_add(*p, *o));
    }
}

/// Σ a·b in 16 lanes, which are summed in pairs: for vectors so short that summing the lanes takes most of the time.
#[inline(always)]
fn short_dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (x, y) in a.iter().zip(b) {
        lanes.iter_mut().zip(x.iter().zip(y)).for_each(|(lane, (x, y))| *lane = x.mul_add(*y, *lane));
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    ((four[0] + four[2]) + (four[1] + four[3])) + rest
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
                    mean.iter_mut().zip(read.row(row)).for_each(|(m, v)| *m += v);
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
