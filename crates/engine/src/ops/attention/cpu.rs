//! Attention on the CPU: one task per sentence, its heads one after the other. Every product is a sum of rows
//! times coefficients ([`weighted_rows`]), which needs keys and values transposed for the scores.

use rayon::prelude::*;

use super::{HeadWeights, Inputs, Plan};
use crate::Tensor;
use crate::cpu::{math, split_segments, vectorised};
use crate::ops::RowFactors;

/// Score rows are padded to this many values.
const LANES: usize = 16;

/// `out[..] = Σ_t coefficients[t·stride]·rows[t·row_stride..]` over `count` rows, as wide as `out`.
#[inline(always)]
fn weighted_rows(
    out: &mut [f32],
    (coefficients, stride): (&[f32], usize),
    (rows, row_stride): (&[f32], usize),
    count: usize,
) {
    let mut at = 0;
    while at + 64 <= out.len() {
        fixed_width::<64>(&mut out[at..at + 64], (coefficients, stride), (rows, row_stride), count, at);
        at += 64;
    }
    while at + LANES <= out.len() {
        fixed_width::<LANES>(&mut out[at..at + LANES], (coefficients, stride), (rows, row_stride), count, at);
        at += LANES;
    }
    if at < out.len() {
        let rest = &mut out[at..];
        rest.fill(0.0);
        for t in 0..count {
            let c = coefficients[t * stride];
            rest.iter_mut().zip(&rows[t * row_stride + at..]).for_each(|(o, r)| *o = r.mul_add(c, *o));
        }
    }
}

/// `W` columns from `at`, accumulated in registers.
#[inline(always)]
fn fixed_width<const W: usize>(
    out: &mut [f32],
    (coefficients, stride): (&[f32], usize),
    (rows, row_stride): (&[f32], usize),
    count: usize,
    at: usize,
) {
    let mut sums = [0.0f32; W];
    for t in 0..count {
        let c = coefficients[t * stride];
        let row = &rows[t * row_stride + at..][..W];
        for (sum, r) in sums.iter_mut().zip(row) {
            *sum = r.mul_add(c, *sum);
        }
    }
    out.copy_from_slice(&sums);
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
        let ((q, q_stride), (kv, kv_stride, k_at)) = match inputs {
            Inputs::Packed(qkv) => ((qkv.values(), 3 * d), (qkv.values(), 3 * d, d)),
            Inputs::Apart(q, kv) => ((q.values(), d), (kv.values(), 2 * d, 0)),
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

    fn query(&self, i: usize) -> &'a [f32] {
        &self.q[i * self.q_stride..][..self.width]
    }

    /// How many keys query `i` sees.
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

    /// Scores of query `i` against the transposed keys; as many as are visible, rounded up to lanes.
    #[inline(always)]
    fn scores(&self, i: usize, keys_t: &[f32], out: &mut [f32]) {
        let wide = self.visible(i).next_multiple_of(LANES);
        weighted_rows(&mut out[..wide], (self.query(i), 1), (keys_t, self.padded_keys()), self.width);
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
    let dropped = |i: usize| plan.weight(sentence, first + i, head) == 0.0;
    if matches!(plan.weights, HeadWeights::One) || !(0..h.queries).all(dropped) {
        h.transpose(h.k, scale(k), keys_t);
    }
    let mut row = vec![0.0; h.padded_keys()];
    let mut factors = RowFactors::new(if plan.dropout.is_some() { h.keys } else { 0 });
    for i in 0..h.queries {
        let o = &mut out[i * plan.width + head * k..][..k];
        let weight = plan.weight(sentence, first + i, head);
        if weight == 0.0 || h.keys == 0 {
            o.fill(0.0);
            log_sums[i * plan.heads + head] = 0.0;
            continue;
        }
        h.scores(i, keys_t, &mut row);
        let visible = h.visible(i);
        log_sums[i * plan.heads + head] = math::softmax(&mut row[..visible]);
        if let Some(dropout) = &plan.dropout {
            let factors = factors.of(dropout, (first + i) * plan.heads + head);
            row.iter_mut().zip(factors).for_each(|(p, f)| *p *= f);
        }
        weighted_rows(o, (&row, 1), (h.v, h.kv_stride), visible);
        o.iter_mut().for_each(|o| *o *= weight);
    }
}

fn scale(head_width: usize) -> f32 {
    1.0 / (head_width as f32).sqrt()
}

/// Where the gradients of one sentence go.
pub(super) struct Sink<'a> {
    q: Rows<'a>,
    /// `None`: keys and values lie in the rows of `q`.
    kv: Option<Rows<'a>>,
    width: usize,
}

struct Rows<'a> {
    data: &'a mut [f32],
    stride: usize,
}

impl Sink<'_> {
    fn q(&mut self, i: usize, head_at: usize, k: usize) -> &mut [f32] {
        &mut self.q.data[i * self.q.stride + head_at..][..k]
    }

    fn k(&mut self, j: usize, head_at: usize, k: usize) -> &mut [f32] {
        let at = if self.kv.is_some() { 0 } else { self.width };
        let rows = self.kv.as_mut().unwrap_or(&mut self.q);
        &mut rows.data[j * rows.stride + at + head_at..][..k]
    }

    fn v(&mut self, j: usize, head_at: usize, k: usize) -> &mut [f32] {
        let width = self.width;
        self.k(j, head_at + width, k)
    }
}

pub(super) fn packed_sinks<'a>(plan: &Plan, d_qkv: &'a mut [f32]) -> Vec<Sink<'a>> {
    let (width, stride) = (plan.width, 3 * plan.width);
    let parts = split_segments(d_qkv, stride, &plan.queries);
    parts.into_iter().map(|data| Sink { q: Rows { data, stride }, kv: None, width }).collect()
}

pub(super) fn apart_sinks<'a>(plan: &Plan, d_q: &'a mut [f32], d_kv: &'a mut [f32]) -> Vec<Sink<'a>> {
    let width = plan.width;
    let queries = split_segments(d_q, width, &plan.queries).into_iter();
    let keys = split_segments(d_kv, 2 * width, &plan.keys);
    queries
        .zip(keys)
        .map(|(q, kv)| {
            let kv = Some(Rows { data: kv, stride: 2 * width });
            Sink { q: Rows { data: q, stride: width }, kv, width }
        })
        .collect()
}

/// Gradients of all inputs; `sinks` and `d_weights` are zero before.
pub(super) fn backward(
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
    let mut d_probabilities = vec![0.0; padded];
    let mut factors = RowFactors::new(h.keys);
    factors.factors.fill(1.0);
    for i in 0..h.queries {
        if skipped(i) {
            continue;
        }
        let (w, visible) = (weight(i), h.visible(i));
        let wide = visible.next_multiple_of(LANES);
        let d_o = &d_out[(first + i) * plan.width + at..][..k];
        let p = &mut scratch.probabilities[i * padded..][..wide];
        h.scores(i, &scratch.keys_t, p);
        let log_sum = if w == 0.0 { log_sum(&p[..visible]) } else { log_sums.row(first + i)[head] };
        p[..visible].iter_mut().for_each(|p| *p = math::exp(*p - log_sum));
        p[visible..].fill(0.0);
        let dp = &mut d_probabilities[..wide];
        weighted_rows(dp, (d_o, 1), (&scratch.values_t, padded), k);
        if let Some(dropout) = &plan.dropout {
            factors.of(dropout, (first + i) * plan.heads + head);
            dp.iter_mut().zip(&factors.factors).for_each(|(d, f)| *d *= f);
        }
        let dw = math::dot(&p[..visible], &dp[..visible]);
        if let Some(d_weights) = &mut d_weights {
            match plan.weights {
                HeadWeights::PerRow(_) => d_weights[i * plan.heads + head] = dw,
                _ => d_weights[head] += dw,
            }
        }
        let ds = &mut scratch.d_scores[i * padded..][..wide];
        for ((ds, p), d) in ds.iter_mut().zip(p.iter()).zip(dp.iter()) {
            *ds = w * p * (d - dw);
        }
        p.iter_mut().zip(&factors.factors).for_each(|(p, f)| *p *= w * f);
        let dq = sink.q(i, at, k);
        weighted_rows(dq, (ds, 1), (h.k, h.kv_stride), visible);
        dq.iter_mut().for_each(|d| *d *= scale(k));
    }
    for j in 0..h.keys {
        let from = if h.causal { j } else { 0 };
        if from >= h.queries {
            break;
        }
        let (count, column) = (h.queries - from, from * padded + j);
        let dk = sink.k(j, at, k);
        weighted_rows(
            dk,
            (&scratch.d_scores[column..], padded),
            (&h.q[from * h.q_stride..], h.q_stride),
            count,
        );
        dk.iter_mut().for_each(|d| *d *= scale(k));
        let d_o = &d_out[(first + from) * plan.width + at..];
        weighted_rows(sink.v(j, at, k), (&scratch.probabilities[column..], padded), (d_o, plan.width), count);
    }
}

/// log Σ exp, for rows whose head was skipped in the forward pass.
#[inline(always)]
fn log_sum(scores: &[f32]) -> f32 {
    let highest = math::max(scores);
    highest + math::sum_by(scores, |v| math::exp(v - highest)).ln()
}
