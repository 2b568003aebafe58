//! Attention of single rows on the CPU.

mod row;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::ancestors::{Ancestors, RowStore};
use super::attention::Weighted;
use super::kept::Kept;
use super::keys::Memory;
use crate::Tensor;
use crate::cpu::panels::Half;
use crate::cpu::vectorised;
use crate::cuda::memory::Dtype;
use row::Row;

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
        Dtype::Bf16 => cached::<Half>(qkv, heads, kv, ancestors, out),
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
        Dtype::Bf16 => remembered::<Half>(q, heads, memory, out),
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
        out.fill(0.0);
        let (query, width, (count, rows)) = (&q.row(row)[..width], heads.width, source(row));
        // Hypotheses of a sentence have a source in common, and most of their past.
        let before = row.checked_sub(1).map(&source);
        let near = |j: usize| {
            let before = before.as_ref().filter(|(count, _)| j < *count);
            before.is_some_and(|(_, of_before)| std::ptr::eq(of_before(j), rows(j)))
        };
        let weights = heads.weights.map(|weights| weights.row(row));
        match weights.filter(|weights| weights.contains(&0.0)) {
            None => Row { query, width, count, rows: &rows, open: |_| true, near }.attend(out),
            Some(weights) => {
                Row { query, width, count, rows: &rows, open: |head| weights[head] != 0.0, near }.attend(out);
            }
        }
        if let Some(weights) = weights {
            weigh(out, heads.width, weights);
        }
    });
}

/// Multiplies heads of `width` values each by their weights.
pub(crate) fn weigh(heads: &mut [f32], width: usize, weights: &[f32]) {
    vectorised(
        #[inline(always)]
        || {
            for (head, weight) in heads.chunks_exact_mut(width).zip(weights) {
                head.iter_mut().for_each(|value| *value *= weight);
            }
        },
    );
}
