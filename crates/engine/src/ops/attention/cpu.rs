//! The CPU's implementation: one task per sentence, its heads one after the other. Every product is a sum of rows
//! times coefficients ([`product`]), which needs keys and values transposed for the scores.

use rayon::prelude::*;

use super::{Gradients, HeadWeights, Inputs, Op, Plan};
use crate::Tensor;
use crate::cpu::{math, split_segments, vectorised};
use crate::ops::RowFactors;

/// Score rows are padded to this many values.
const LANES: usize = 16;

/// Rows that products make at a time: each row of the second factor is loaded once for all of them.
const BLOCK: usize = 4;

/// The first factor of a product: entry (i, t) is `data[i·row + t·step]`, so it may be read transposed.
#[derive(Clone, Copy)]
struct Coefficients<'a> {
    data: &'a [f32],
    row: usize,
    step: usize,
}

/// `out[i·out_stride..][..width] = Σ_t c(i, t)·rows[t·row_stride..][..width]` for `out_rows` rows i, over `count` t.
#[inline(always)]
fn product(
    (out, out_stride, out_rows, width): (&mut [f32], usize, usize, usize),
    c: Coefficients<'_>,
    (rows, row_stride, count): (&[f32], usize, usize),
) {
    let (mut i, wide) = (0, has_wide_registers());
    while i < out_rows {
        let (block, from) = (out_rows - i, &c.data[i * c.row..]);
        let c = Coefficients { data: from, ..c };
        let out = &mut out[i * out_stride..];
        let mut at = 0;
        while at < width {
            let left = width - at;
            at += match (block >= BLOCK, wide && left >= 32, left >= LANES) {
                (true, true, _) => columns::<BLOCK, 32>(out, out_stride, c, rows, row_stride, count, at),
                (true, _, true) => columns::<BLOCK, LANES>(out, out_stride, c, rows, row_stride, count, at),
                (true, _, _) => columns::<BLOCK, 1>(out, out_stride, c, rows, row_stride, count, at),
                (false, true, _) => columns::<1, 32>(out, out_stride, c, rows, row_stride, count, at),
                (false, _, true) => columns::<1, LANES>(out, out_stride, c, rows, row_stride, count, at),
                (false, _, _) => columns::<1, 1>(out, out_stride, c, rows, row_stride, count, at),
            };
        }
        i += if block >= BLOCK { BLOCK } else { 1 };
    }
}

/// True if 128 sums fit into the registers: those of AVX2 hold 128 values in all.
#[inline(always)]
fn has_wide_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// `R` rows and `W` columns from `at`, accumulated in registers; gives `W`.
#[inline(always)]
fn columns<const R: usize, const W: usize>(
    out: &mut [f32],
    out_stride: usize,
    c: Coefficients<'_>,
    rows: &[f32],
    row_stride: usize,
    count: usize,
    at: usize,
) -> usize {
    let mut sums = [[0.0f32; W]; R];
    for t in 0..count {
        let row: &[f32; W] = rows[t * row_stride + at..][..W].try_into().expect("W values were taken");
        for (i, sums) in sums.iter_mut().enumerate() {
            let factor = c.data[i * c.row + t * c.step];
            for (sum, r) in sums.iter_mut().zip(row) {
                *sum = r.mul_add(factor, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        out[i * out_stride + at..][..W].copy_from_slice(sums);
    }
    W
}

/// The inputs of one sentence and head: where its first query, key and value lie, and the distance of rows.
struct Head<'a> {
    q: &'a [f32],
    q_stride: usize,
    k: &'a [f32],
    v: &'a [f32],
    kv_stride: usize,
    queries: usize,
    keys: usize,
    width: usize,
    causal: bool,
}

impl<'a> Head<'a> {
    fn new(plan: &Plan, inputs: &'a Inputs, sentence: usize, head: usize) -> Self {
        let (queries, keys) = (plan.queries.range(sentence), plan.keys.range(sentence));
        let (d, k) = (plan.width, plan.head_width());
        let (Inputs::Packed(first) | Inputs::Apart(first, _) | Inputs::Shared(first, _)) = inputs;
        let (q, q_stride) = (first.values(), first.cols());
        let (kv, kv_stride, k_at) = match inputs.keys_and_values() {
            None => (q, q_stride, d),
            Some((kv, column)) => (kv.values(), kv.cols(), column),
        };
        // A sentence without rows may begin at the end of the matrix.
        let from = |data: &'a [f32], begin: usize| data.get(begin..).unwrap_or(&[]);
        Self {
            q: from(q, queries.start * q_stride + head * k),
            q_stride,
            k: from(kv, keys.start * kv_stride + k_at + head * k),
            v: from(kv, keys.start * kv_stride + k_at + d + head * k),
            kv_stride,
            queries: queries.len(),
            keys: keys.len(),
            width: k,
            causal: plan.causal,
        }
    }

    /// Number of keys that query `i` sees.
    fn visible(&self, i: usize) -> usize {
        if self.causal { self.keys.min(i + 1) } else { self.keys }
    }

    fn padded_keys(&self) -> usize {
        self.keys.next_multiple_of(LANES)
    }

    /// `rows` (keys or values) as `[K, padded keys]`, times `scale`.
    #[inline(always)]
    fn transpose(&self, rows: &[f32], scale: f32, out: &mut Vec<f32>) {
        let padded = self.padded_keys();
        out.clear();
        out.resize(self.width * padded, 0.0);
        for j in 0..self.keys {
            for (c, value) in rows[j * self.kv_stride..][..self.width].iter().enumerate() {
                out[c * padded + j] = value * scale;
            }
        }
    }

    /// Scores of `count` queries from `i` on against the transposed keys, `[count, padded keys]`; as many columns as
    /// the last of them sees, rounded up to lanes.
    #[inline(always)]
    fn scores(&self, i: usize, count: usize, keys_t: &[f32], out: &mut [f32]) {
        let (padded, wide) = (self.padded_keys(), self.visible(i + count - 1).next_multiple_of(LANES));
        let queries = Coefficients { data: &self.q[i * self.q_stride..], row: self.q_stride, step: 1 };
        product((out, padded, count, wide), queries, (keys_t, padded, self.width));
    }
}

pub(super) fn forward(plan: &Plan, inputs: &Inputs, out: &mut [f32], log_sums: &mut [f32]) {
    let out = split_segments(out, plan.width, &plan.queries);
    let log_sums = split_segments(log_sums, plan.heads, &plan.queries);
    out.into_par_iter().zip(log_sums).enumerate().for_each(|(sentence, (out, log_sums))| {
        vectorised(
            #[inline(always)]
            || {
                let mut scratch = Vec::new();
                for head in 0..plan.heads {
                    forward_head(plan, inputs, sentence, head, out, log_sums, &mut scratch);
                }
            },
        );
    });
}

#[inline(always)]
fn forward_head(
    plan: &Plan,
    inputs: &Inputs,
    sentence: usize,
    head: usize,
    out: &mut [f32],
    log_sums: &mut [f32],
    keys_t: &mut Vec<f32>,
) {
    let first = plan.queries.range(sentence).start;
    let k = plan.head_width();
    let h = Head::new(plan, inputs, sentence, head);
    // The gradient of a weight needs the log-sums of its head, even where the weight is 0.
    let every_head = plan.tracked_weights().is_some();
    let dropped = |i: usize| !every_head && plan.weight(sentence, first + i, head) == 0.0;
    if matches!(plan.weights, HeadWeights::One) || !(0..h.queries).all(dropped) {
        h.transpose(h.k, scale(k), keys_t);
    }
    let padded = h.padded_keys();
    let mut p = vec![0.0; BLOCK * padded];
    let mut factors = RowFactors::new(if plan.dropout.is_some() { h.keys } else { 0 });
    for from in (0..h.queries).step_by(BLOCK) {
        let count = BLOCK.min(h.queries - from);
        let block = &mut out[from * plan.width + head * k..];
        if h.keys == 0 || (from..from + count).all(dropped) {
            for i in 0..count {
                block[i * plan.width..][..k].fill(0.0);
                log_sums[(from + i) * plan.heads + head] = 0.0;
            }
            continue;
        }
        h.scores(from, count, keys_t, &mut p);
        let seen = h.visible(from + count - 1);
        for (i, row) in p.chunks_exact_mut(padded).enumerate().take(count) {
            let (visible, place) = (h.visible(from + i), (first + from + i) * plan.heads + head);
            log_sums[(from + i) * plan.heads + head] = math::softmax(&mut row[..visible]);
            row[visible..seen].fill(0.0);
            if let Some(dropout) = &plan.dropout {
                row.iter_mut().zip(factors.of(dropout, place)).for_each(|(p, f)| *p *= f);
            }
            // A dropped head's row comes out as zeros.
            let weight = plan.weight(sentence, first + from + i, head);
            row[..seen].iter_mut().for_each(|p| *p *= weight);
        }
        let p = Coefficients { data: &p, row: padded, step: 1 };
        product((block, plan.width, count, k), p, (h.v, h.kv_stride, seen));
    }
}

fn scale(head_width: usize) -> f32 {
    1.0 / (head_width as f32).sqrt()
}

/// Gradients of one sentence, to be added to.
struct Sink<'a> {
    q: Rows<'a>,
    /// `None`: keys and values lie in the rows of `q`.
    kv: Option<Rows<'a>>,
    /// Column of the first key in its row.
    keys_at: usize,
    width: usize,
}

struct Rows<'a> {
    data: &'a mut [f32],
    stride: usize,
}

impl Sink<'_> {
    /// Gradients of the queries from row `i` and column `at` on, and the distance of rows.
    fn q(&mut self, i: usize, at: usize) -> (&mut [f32], usize) {
        (&mut self.q.data[i * self.q.stride + at..], self.q.stride)
    }

    /// The same for keys.
    fn k(&mut self, j: usize, at: usize) -> (&mut [f32], usize) {
        let rows = self.kv.as_mut().unwrap_or(&mut self.q);
        (&mut rows.data[j * rows.stride + self.keys_at + at..], rows.stride)
    }

    /// The same for values.
    fn v(&mut self, j: usize, at: usize) -> (&mut [f32], usize) {
        let width = self.width;
        self.k(j, at + width)
    }
}

/// Places for the gradients of all sentences, set to zero. `d_kv`, where keys and values do not lie beside the queries: a
/// matrix, its columns and the first column of the keys; columns of other attentions stay as they are.
fn sinks<'a>(plan: &Plan, d_q: &'a mut [f32], d_kv: Option<(&'a mut [f32], usize, usize)>) -> Vec<Sink<'a>> {
    let width = plan.width;
    d_q.fill(0.0);
    let Some((d_kv, stride, keys_at)) = d_kv else {
        let parts = split_segments(d_q, 3 * width, &plan.queries).into_iter();
        let sink = |data| Sink { q: Rows { data, stride: 3 * width }, kv: None, keys_at: width, width };
        return parts.map(sink).collect();
    };
    d_kv.par_chunks_exact_mut(stride).for_each(|row| row[keys_at..][..2 * width].fill(0.0));
    let queries = split_segments(d_q, width, &plan.queries).into_iter();
    let keys = split_segments(d_kv, stride, &plan.keys);
    let sink = |(q, kv)| {
        let kv = Some(Rows { data: kv, stride });
        Sink { q: Rows { data: q, stride: width }, kv, keys_at, width }
    };
    queries.zip(keys).map(sink).collect()
}

/// Gradients of all inputs.
pub(super) fn backward(op: &Op, d_out: &[f32], gradients: &mut Gradients) {
    let Gradients { first, second, weights } = gradients;
    weights.iter_mut().for_each(|weights| weights.fill(0.0));
    let place = op.inputs.keys_and_values().map(|(kv, column)| (kv.cols(), column));
    let d_kv = second.as_deref_mut().zip(place).map(|(d_kv, (stride, keys_at))| (d_kv, stride, keys_at));
    let sinks = sinks(&op.plan, first, d_kv);
    by_sentences(&op.plan, &op.inputs, &op.log_sums, d_out, sinks, weights.as_deref_mut());
}

/// Adds to `sinks` and `d_weights`.
fn by_sentences(
    plan: &Plan,
    inputs: &Inputs,
    log_sums: &Tensor,
    d_out: &[f32],
    sinks: Vec<Sink<'_>>,
    d_weights: Option<&mut [f32]>,
) {
    let mut weight_rows: Vec<Option<&mut [f32]>> = match (d_weights, &plan.weights) {
        (Some(d), HeadWeights::PerRow(_)) => {
            split_segments(d, plan.heads, &plan.queries).into_iter().map(Some).collect()
        }
        (Some(d), _) => d.chunks_exact_mut(plan.heads).map(Some).collect(),
        (None, _) => Vec::new(),
    };
    weight_rows.resize_with(plan.queries.count(), || None);
    let tasks: Vec<_> = sinks.into_iter().zip(weight_rows).collect();
    tasks.into_par_iter().enumerate().for_each(|(sentence, (mut sink, mut d_weights))| {
        vectorised(
            #[inline(always)]
            || {
                let mut scratch = Scratch::default();
                for head in 0..plan.heads {
                    let d_weights = d_weights.as_deref_mut();
                    backward_head(
                        plan,
                        inputs,
                        (sentence, head),
                        log_sums,
                        d_out,
                        &mut sink,
                        d_weights,
                        &mut scratch,
                    );
                }
            },
        );
    });
}

/// Reused between the heads of a sentence.
#[derive(Default)]
struct Scratch {
    keys_t: Vec<f32>,
    values_t: Vec<f32>,
    /// `[queries, padded keys]`: w·P after dropout, and the gradient of the scores.
    probabilities: Vec<f32>,
    d_scores: Vec<f32>,
}

/// With dP_j = dO·v_j: dw = Σ_j Pd_j·dP_j, dS_j = w·P_j·(f_j·dP_j − dw), f the dropout factors and Pd = f·P.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the inner loop of one op; a struct would only rename them")]
fn backward_head(
    plan: &Plan,
    inputs: &Inputs,
    (sentence, head): (usize, usize),
    log_sums: &Tensor,
    d_out: &[f32],
    sink: &mut Sink<'_>,
    mut d_weights: Option<&mut [f32]>,
    scratch: &mut Scratch,
) {
    let first = plan.queries.range(sentence).start;
    let (k, h) = (plan.head_width(), Head::new(plan, inputs, sentence, head));
    let weight = |i: usize| plan.weight(sentence, first + i, head);
    let weights_wanted = d_weights.is_some();
    let skipped = |i: usize| weight(i) == 0.0 && !weights_wanted;
    if h.keys == 0 || (0..h.queries).all(skipped) {
        return;
    }
    let (at, padded) = (head * k, h.padded_keys());
    h.transpose(h.k, scale(k), &mut scratch.keys_t);
    h.transpose(h.v, 1.0, &mut scratch.values_t);
    for matrix in [&mut scratch.probabilities, &mut scratch.d_scores] {
        matrix.clear();
        matrix.resize(h.queries * padded, 0.0);
    }
    let mut d_probabilities = vec![0.0; BLOCK * padded];
    let mut factors = RowFactors::new(h.keys);
    factors.factors.fill(1.0);
    for from in (0..h.queries).step_by(BLOCK) {
        let count = BLOCK.min(h.queries - from);
        if (from..from + count).all(skipped) {
            continue;
        }
        let p = &mut scratch.probabilities[from * padded..][..count * padded];
        h.scores(from, count, &scratch.keys_t, p);
        let seen = h.visible(from + count - 1).next_multiple_of(LANES);
        let d_o = Coefficients { data: &d_out[(first + from) * plan.width + at..], row: plan.width, step: 1 };
        product((&mut d_probabilities, padded, count, seen), d_o, (&scratch.values_t, padded, k));
        for (i, p) in p.chunks_exact_mut(padded).enumerate() {
            let i = from + i;
            if skipped(i) {
                p.fill(0.0);
                continue;
            }
            let (w, visible) = (weight(i), h.visible(i));
            let (p, hidden) = p.split_at_mut(visible);
            hidden.fill(0.0);
            let log_sum = log_sums.row(first + i)[head];
            // A loop, not a closure: one that is not inlined here is not compiled for vectors.
            for p in p.iter_mut() {
                *p = math::exp(*p - log_sum);
            }
            let dp = &mut d_probabilities[(i - from) * padded..][..visible];
            if let Some(dropout) = &plan.dropout {
                factors.of(dropout, (first + i) * plan.heads + head);
                dp.iter_mut().zip(&factors.factors).for_each(|(d, f)| *d *= f);
            }
            let dw = math::dot(p, dp);
            if let Some(d_weights) = &mut d_weights {
                match plan.weights {
                    HeadWeights::PerRow(_) => d_weights[i * plan.heads + head] = dw,
                    _ => d_weights[head] += dw,
                }
            }
            // The factor 1/√K of the scores is taken into their gradient.
            let ds = &mut scratch.d_scores[i * padded..][..visible];
            let scaled = w * scale(k);
            for ((ds, p), d) in ds.iter_mut().zip(p.iter()).zip(dp.iter()) {
                *ds = scaled * p * (d - dw);
            }
            p.iter_mut().zip(&factors.factors).for_each(|(p, f)| *p *= w * f);
        }
        let ds = Coefficients { data: &scratch.d_scores[from * padded..], row: padded, step: 1 };
        let (dq, stride) = sink.q(from, at);
        product((dq, stride, count, k), ds, (h.k, h.kv_stride, h.visible(from + count - 1)));
    }
    for from in (0..h.keys).step_by(BLOCK) {
        let count = BLOCK.min(h.keys - from);
        // Queries before a key do not see it.
        let first_query = if h.causal { from.min(h.queries) } else { 0 };
        let queries = h.queries - first_query;
        let column = |matrix| Coefficients { data: matrix, row: 1, step: padded };
        let begin = (first_query * padded + from).min(scratch.d_scores.len());
        let (dk, stride) = sink.k(from, at);
        let q = h.q.get(first_query * h.q_stride..).unwrap_or(&[]);
        product((dk, stride, count, k), column(&scratch.d_scores[begin..]), (q, h.q_stride, queries));
        let (dv, stride) = sink.v(from, at);
        let d_o = d_out.get((first + first_query) * plan.width + at..).unwrap_or(&[]);
        product((dv, stride, count, k), column(&scratch.probabilities[begin..]), (d_o, plan.width, queries));
    }
}
