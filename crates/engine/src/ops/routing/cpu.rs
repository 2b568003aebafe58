//! The CPU's implementation.

use super::{Op, Routing};
use crate::Var;
use crate::cpu::{for_rows, math};
use crate::tape::Backward;

/// Writes the softmax of each part of a row to `shares`, and head weights.
pub(super) fn forward(logits: &Var, routing: Routing, shares: &mut [f32], weights: &mut [f32]) {
    let (cols, logits) = (logits.cols(), logits.values());
    let (heads, Routing { shared, active, .. }) = (cols - 2, routing);
    for_rows(
        shares,
        cols,
        #[inline(always)]
        |first, rows| {
            for (i, shares) in rows.chunks_exact_mut(cols).enumerate() {
                shares.copy_from_slice(&logits[(first + i) * cols..][..cols]);
                let (of_shared, rest) = shares.split_at_mut(shared);
                let (of_routed, between) = rest.split_at_mut(heads - shared);
                [of_shared, of_routed, between].into_iter().for_each(softmax);
            }
        },
    );
    let shares = &*shares;
    for_rows(
        weights,
        heads,
        #[inline(always)]
        |first, rows| {
            for (i, w) in rows.chunks_exact_mut(heads).enumerate() {
                let at = (first + i) * cols;
                let (shares, logits) = (&shares[at..][..cols], &logits[at + shared..][..heads - shared]);
                let (of_shared, of_routed) = w.split_at_mut(shared);
                let factor = 2.0 * shares[heads] * shared as f32;
                of_shared.iter_mut().zip(shares).for_each(|(w, s)| *w = factor * s);
                let mut kept = 0.0;
                for (e, w) in of_routed.iter_mut().enumerate() {
                    *w = if is_active(logits, e, active) { shares[shared + e] } else { 0.0 };
                    kept += *w;
                }
                let factor = 2.0 * shares[heads + 1] * active as f32 / kept;
                of_routed.iter_mut().for_each(|w| *w *= factor);
            }
        },
    );
}

/// Returns true if fewer than `active` logits come before that of head `e`: larger ones, and equal ones of earlier heads.
#[inline(always)]
fn is_active(logits: &[f32], e: usize, active: usize) -> bool {
    let own = logits[e];
    let before = |(i, l): &(usize, &f32)| **l > own || (**l == own && *i < e);
    logits.iter().enumerate().filter(before).count() < active
}

#[inline(always)]
fn softmax(values: &mut [f32]) {
    let highest = math::max(values);
    let mut sum = 0.0;
    for value in values.iter_mut() {
        *value = math::exp(*value - highest);
        sum += *value;
    }
    let inverse = 1.0 / sum;
    values.iter_mut().for_each(|value| *value *= inverse);
}

/// Counts the rows that use each routed head.
pub(super) fn count(weights: &[f32], heads: usize, used: &mut [f32]) {
    used.fill(0.0);
    let shared = heads - used.len();
    for w in weights.chunks_exact(heads) {
        used.iter_mut().zip(&w[shared..]).for_each(|(used, w)| *used += f32::from(*w > 0.0));
    }
}

/// With q = p∘m/Σ p∘m, the softmax over the heads in use, and y the weights:
///
/// ```text
/// dl = y∘(dw − Σ y∘dw / Σ y)               in each of the two parts
/// da = (Σ y∘dw over the part) / a          of each part, then dl = a∘(da − Σ a∘da)
/// dl += p∘(c∘F − Σ p∘c∘F)                  of the balance loss, c its factor of a row
/// ```
pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, dw: &[f32]) {
    let (heads, cols, shared) = (op.heads, op.heads + 2, op.routing.shared);
    let pull = pull_of_balance(op);
    backward.input(&op.logits, |dl, held| {
        for_rows(
            dl,
            cols,
            #[inline(always)]
            |first, rows| {
                let mut own = vec![0.0; cols];
                for (i, dl) in rows.chunks_exact_mut(cols).enumerate() {
                    let (y, dw) = (op.weights.row(first + i), &dw[(first + i) * heads..][..heads]);
                    let shares = op.shares.row(first + i);
                    let mut parts = [0.0; 2];
                    for (part, range) in [0..shared, shared..heads].into_iter().enumerate() {
                        let sum: f32 = y[range.clone()].iter().sum();
                        parts[part] = math::dot(&y[range.clone()], &dw[range.clone()]);
                        let mean = if sum > 0.0 { parts[part] / sum } else { 0.0 };
                        for j in range {
                            own[j] = y[j] * (dw[j] - mean);
                        }
                    }
                    // a∘da are the sums themselves.
                    let both = parts[0] + parts[1];
                    for (part, sum) in parts.into_iter().enumerate() {
                        own[heads + part] = sum - shares[heads + part] * both;
                    }
                    if let Some(pull) = &pull {
                        let p = &shares[shared..heads];
                        let mean = math::dot(p, pull);
                        for ((own, p), pull) in own[shared..heads].iter_mut().zip(p).zip(pull) {
                            *own += p * (pull - mean);
                        }
                    }
                    dl.iter_mut().zip(&own).for_each(|(dl, own)| *dl = if held { *dl + own } else { *own });
                }
            },
        );
    });
}

/// The gradient of the balance loss for p of any row: λ/gates·rows of the batch·weight·h_r·F/n.
fn pull_of_balance(op: &Op) -> Option<Vec<f32>> {
    let balance = op.balance.as_ref()?;
    let n = op.logits.rows() as f32;
    let factor = op.routing.balance / balance.batch.gates as f32 * balance.batch.on_host();
    let factor = factor * op.routed() as f32 / (n * n);
    Some(balance.used.iter().map(|used| factor * used).collect())
}
