//! Attention of single rows on the CPU.

mod scores;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::ancestors::{Ancestors, RowStore};
use super::attention::Weighted;
use super::kept::Kept;
use super::keys::Memory;
use crate::Tensor;
use crate::cpu::{math, vectorised};
use crate::cuda::memory::Dtype;
use scores::Scores;

/// Each query, at the beginning of a row of qkv, against the keys and values of all steps of its hypothesis.
pub(super) fn attention_cached(
    qkv: &Tensor,
    heads: &Weighted<'_>,
    kv: &RowStore,
    ancestors: &Ancestors,
    out: &mut [f32],
) {
    match kv.dtype() {
        Dtype::F32 => cached::<f32>(qkv, heads, kv, ancestors, out),
        Dtype::Bf16 => cached::<u16>(qkv, heads, kv, ancestors, out),
    }
}

fn cached<T: Kept>(
    qkv: &Tensor,
    heads: &Weighted<'_>,
    kv: &RowStore,
    ancestors: &Ancestors,
    out: &mut [f32],
) {
    attend_rows::<T, _>(qkv, heads, out, |row| {
        let past = ancestors.of(row);
        (past.len(), move |step: usize| kv.row(past[step]))
    });
}

pub(super) fn attention_memory(q: &Tensor, heads: &Weighted<'_>, memory: &Memory<'_>, out: &mut [f32]) {
    match memory.kv.dtype() {
        Dtype::F32 => remembered::<f32>(q, heads, memory, out),
        Dtype::Bf16 => remembered::<u16>(q, heads, memory, out),
    }
}

fn remembered<T: Kept>(q: &Tensor, heads: &Weighted<'_>, memory: &Memory<'_>, out: &mut [f32]) {
    let (Memory { kv, spans, sentences, .. }, first_column) = (*memory, memory.first_column(heads));
    let (values, cols) = (T::all(kv.buffer()), kv.cols());
    attend_rows::<T, _>(q, heads, out, |row| {
        let [first, end] = spans.of(sentences.values()[row]);
        (end - first, move |j: usize| &values[(first + j) * cols..][first_column..cols])
    });
}

/// The query at the beginning of each row of q against rows of keys and values: `source(row)` gives their number and a
/// way to read them.
fn attend_rows<'a, T: Kept, K: Fn(usize) -> &'a [T]>(
    q: &Tensor,
    heads: &Weighted<'_>,
    out: &mut [f32],
    source: impl Fn(usize) -> (usize, K) + Sync,
) {
    let width = heads.count * heads.width;
    let [least, most] = if heads.beside_gate { [1, 1] } else { [2, usize::MAX] };
    let rows = out.par_chunks_exact_mut(width).enumerate();
    rows.with_min_len(least).with_max_len(most).for_each(|(row, out)| {
        vectorised(
            #[inline(always)]
            || {
                out.fill(0.0);
                let (query, kept) = (&q.row(row)[..width], source(row));
                match heads.weights.map(|weights| weights.row(row)) {
                    None => attend(query, heads.width, kept, |_| true, |_| 1.0, out),
                    Some(weights) if weights.contains(&0.0) => {
                        attend(
                            query,
                            heads.width,
                            kept,
                            |head| weights[head] != 0.0,
                            |head| weights[head],
                            out,
                        );
                    }
                    Some(weights) => attend(query, heads.width, kept, |_| true, |head| weights[head], out),
                }
            },
        );
    });
}

/// The heads of a query, of `k` values each, that are open, against `count` rows of keys and values; adds to `out`, which is
/// 0, and multiplies each head by its weight. Rows are read as they lie, all heads at once: they are often 2,048 or 4,096
/// bytes apart, and a cache keeps few of the same head.
#[inline(always)]
fn attend<'a, T: Kept>(
    query: &[f32],
    k: usize,
    (count, kv): (usize, impl Fn(usize) -> &'a [T]),
    open: impl Fn(usize) -> bool,
    weight: impl Fn(usize) -> f32,
    out: &mut [f32],
) {
    if count == 0 {
        return;
    }
    let width = query.len();
    let mut chances = vec![0.0; width / k * count];
    Scores { query, width: k, count, rows: &kv, open: &open }.compute(&mut chances);
    for (head, p) in chances.chunks_exact_mut(count).enumerate() {
        if open(head) {
            math::softmax(p);
        }
    }
    for first in (0..count).step_by(TOGETHER) {
        let some = TOGETHER.min(count - first);
        // What is beyond the last row is not used.
        let values: [&[T]; TOGETHER] = std::array::from_fn(|i| &kv(first + i.min(some - 1))[width..]);
        for (head, out) in out.chunks_exact_mut(k).enumerate().filter(|(head, _)| open(*head)) {
            let p = &chances[head * count + first..][..some];
            let factor = if first + some == count { weight(head) } else { 1.0 };
            add_values(out, p, values.map(|value| &value[head * k..][..k]), factor);
        }
    }
}

/// Multiplies the heads of a row by their weights.
#[inline(always)]
pub(crate) fn weigh(row: &mut [f32], weights: &[f32]) {
    let heads = row.chunks_exact_mut(row.len() / weights.len());
    heads.zip(weights).for_each(|(head, weight)| head.iter_mut().for_each(|value| *value *= weight));
}

/// Rows of keys and values that are read side by side.
const TOGETHER: usize = 4;
/// Values of a head that are summed at a time.
const RUN: usize = 32;

/// Adds rows of values times their chances, one after the other, and multiplies the sums by a factor.
#[inline(always)]
fn add_values<T: Kept>(out: &mut [f32], p: &[f32], values: [&[T]; TOGETHER], factor: f32) {
    let mut runs = out.chunks_exact_mut(RUN);
    for (run, out) in runs.by_ref().enumerate() {
        let mut sums = [0.0; RUN];
        sums.copy_from_slice(out);
        for (p, value) in p.iter().zip(values) {
            let value = &value[run * RUN..(run + 1) * RUN];
            sums.iter_mut().zip(value).for_each(|(sum, v)| *sum = v.get().mul_add(*p, *sum));
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * factor);
    }
    let out = runs.into_remainder();
    for (p, value) in p.iter().zip(values) {
        let value = &value[value.len() - out.len()..];
        out.iter_mut().zip(value).for_each(|(o, v)| *o = v.get().mul_add(*p, *o));
    }
    out.iter_mut().for_each(|out| *out *= factor);
}
