//! The CPU's implementation.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;

use super::attention::{Heads, Memory};
use super::best::{Candidate, Constraints, Continuations, Groups, ranked};
use super::lineage::Lineage;
use crate::cpu::{for_rows, math, vectorised};
use crate::{Device, Ids, Tensor};

pub(super) fn gather(x: &Tensor, rows: &Ids, y: &mut [f32]) {
    for (y, &row) in y.chunks_exact_mut(x.cols()).zip(rows.values()) {
        y.copy_from_slice(x.row(row as usize));
    }
}

/// The columns `range` of `x`.
pub(super) fn columns(device: &Device, x: &Tensor, range: Range<usize>) -> Tensor {
    let mut y = device.scratch(x.rows() * range.len());
    for (row, y) in y.chunks_exact_mut(range.len()).enumerate() {
        y.copy_from_slice(&x.row(row)[range.clone()]);
    }
    Tensor::new([x.rows(), range.len()], y)
}

/// `a + b`, `[N, D]`.
pub(super) fn sum(device: &Device, a: &Tensor, b: &Tensor) -> Tensor {
    assert_eq!([a.rows(), a.cols()], [b.rows(), b.cols()], "sum: shapes differ");
    let mut y = device.scratch(a.values().len());
    y.iter_mut().zip(a.values()).zip(b.values()).for_each(|((y, a), b)| *y = a + b);
    Tensor::new([a.rows(), a.cols()], y)
}

/// `factor·a`.
pub(super) fn scale(a: &Tensor, factor: f32, y: &mut [f32]) {
    y.iter_mut().zip(a.values()).for_each(|(y, a)| *y = a * factor);
}

/// Each row of q against the keys and values of all steps of its lineage, one matrix `[rows, 2D]` per step.
pub(super) fn attention_cached(
    q: &Tensor,
    heads: &Heads<'_>,
    steps: &[Tensor],
    lineage: &Lineage,
    out: &mut [f32],
) {
    attend_rows(q, heads, out, |row| {
        let past = lineage.past(row);
        (past.len(), move |step: usize| steps[step].row(past[step] as usize))
    });
}

pub(super) fn attention_memory(q: &Tensor, heads: &Heads<'_>, memory: &Memory<'_>, out: &mut [f32]) {
    let Memory { kv, keys, sentences } = memory;
    attend_rows(q, heads, out, |row| {
        let range = keys.range(sentences.values()[row] as usize);
        (range.len(), move |j: usize| kv.row(range.start + j))
    });
}

/// Each row of q against rows of keys and values: `source(row)` gives their number and a way to read them.
fn attend_rows<'a, K: Fn(usize) -> &'a [f32]>(
    q: &Tensor,
    heads: &Heads<'_>,
    out: &mut [f32],
    source: impl Fn(usize) -> (usize, K) + Sync,
) {
    let width = q.cols();
    let k = width / heads.count;
    let scale = 1.0 / (k as f32).sqrt();
    out.par_chunks_exact_mut(width).enumerate().with_min_len(4).for_each(|(row, out)| {
        vectorised(
            #[inline(always)]
            || {
                let (count, kv) = source(row);
                let mut p = vec![0.0; count];
                for head in 0..heads.count {
                    let at = head * k..(head + 1) * k;
                    let out = &mut out[at.clone()];
                    out.fill(0.0);
                    let weight = heads.weights.map_or(1.0, |w| w.row(row)[head]);
                    if weight == 0.0 {
                        continue;
                    }
                    let query = &q.row(row)[at.clone()];
                    for (j, p) in p.iter_mut().enumerate() {
                        *p = scale * math::dot(query, &kv(j)[at.clone()]);
                    }
                    math::softmax(&mut p);
                    for (j, p) in p.iter().enumerate() {
                        let value = &kv(j)[width + at.start..width + at.end];
                        out.iter_mut().zip(value).for_each(|(o, v)| *o = v.mul_add(p * weight, *o));
                    }
                }
            },
        );
    });
}

/// The mean of the inputs of the last steps, one matrix `[rows, D]` per step.
pub(super) fn window_mean(steps: &VecDeque<Tensor>, lineage: &Lineage, cols: usize, mean: &mut [f32]) {
    for_rows(
        mean,
        cols,
        #[inline(always)]
        |first, rows| {
            for (i, mean) in rows.chunks_exact_mut(cols).enumerate() {
                let past = lineage.past(first + i);
                let recent = &past[past.len() - steps.len()..];
                mean.fill(0.0);
                for (step, &row) in steps.iter().zip(recent) {
                    mean.iter_mut().zip(step.row(row as usize)).for_each(|(m, v)| *m += v);
                }
                let inverse = 1.0 / steps.len() as f32;
                mean.iter_mut().for_each(|m| *m *= inverse);
            }
        },
    );
}

pub(super) fn continuations(
    logits: &Tensor,
    groups: &Groups<'_>,
    count: usize,
    constraints: &Constraints,
    end: u32,
) -> Continuations {
    let scores = groups.scores;
    let open = groups.going_on.par_iter().map(|group| {
        let mut best = Vec::with_capacity(count + 1);
        for row in group.clone() {
            vectorised(
                #[inline(always)]
                || scan(logits.row(row), row as u32, scores[row], count, constraints, &mut best),
            );
        }
        best
    });
    let close = |row: usize| {
        let logits = logits.row(row);
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&v| f64::from(v - highest).exp()).sum();
        let log_prob = f64::from(logits[end as usize] - highest) - sum.ln();
        Candidate { score: scores[row] + log_prob as f32, row: row as u32, token: end }
    };
    let closed = groups.at_limit.iter().map(|group| ranked(group.clone().map(close).collect()));
    Continuations { open: open.collect(), closed: closed.collect() }
}

#[inline(always)]
fn scan(
    logits: &[f32],
    row: u32,
    score: f32,
    count: usize,
    constraints: &Constraints,
    best: &mut Vec<Candidate>,
) {
    const RUN: usize = 32;
    let highest = math::max(logits);
    let log_sum = highest + math::sum_by(logits, |v| math::exp(v - highest)).ln();
    let base = score - log_sum;
    // A penalty below 0 lifts its token above its run.
    let lift = constraints.penalties.iter().fold(0.0_f32, |lift, (_, penalty)| lift.max(-penalty));
    for (run, values) in logits.chunks(RUN).enumerate() {
        // Most runs hold nothing good enough: one comparison passes over them.
        if best.len() == count && math::max(values) + base + lift <= best[count - 1].score {
            continue;
        }
        for (i, value) in values.iter().enumerate() {
            let token = (run * RUN + i) as u32;
            let penalty = constraints.penalties.iter().find(|(id, _)| *id == token).map_or(0.0, |(_, p)| *p);
            let candidate = Candidate { score: value + base - penalty, row, token };
            let worthwhile = best.len() < count || candidate.order(&best[count - 1]).is_lt();
            if worthwhile && candidate.score.is_finite() && !constraints.forbidden.contains(&token) {
                let at = best.partition_point(|other| other.order(&candidate).is_lt());
                best.insert(at, candidate);
                best.truncate(count);
            }
        }
    }
}
