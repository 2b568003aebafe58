//! The best next tokens of groups of hypotheses.

use std::ops::Range;

use rayon::prelude::*;

use crate::Tensor;
use crate::cpu::{math, vectorised};
use crate::cuda::ops::decode as gpu_ops;

/// A continuation of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Cumulative log-probability of the hypothesis with this token, in nats.
    pub score: f32,
    /// The hypothesis' row.
    pub row: u32,
    /// The token.
    pub token: u32,
}

impl Candidate {
    /// Better first; equal scores in order of row and token.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.score.total_cmp(&self.score).then((self.row, self.token).cmp(&(other.row, other.token)))
    }
}

/// Tokens that are changed before the choice.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// Tokens that cannot be chosen.
    pub forbidden: Vec<u32>,
    /// Amounts subtracted from the log-probability of tokens.
    pub penalties: Vec<(u32, f32)>,
}

/// What can follow the hypotheses of each group.
pub struct Continuations {
    /// For the groups that go on: the best continuations, ranked.
    pub open: Vec<Vec<Candidate>>,
    /// For the groups at their limit: all their hypotheses closed with the end mark, ranked.
    pub closed: Vec<Vec<Candidate>>,
}

/// For each group of `going_on`, the `count` best continuations over all its rows: `score[row] + ln softmax(logits)`;
/// for each group `at_limit`, its rows with the end mark. Waits for the device.
///
/// logits `[R, V]`; groups are runs of rows, and rows beyond all groups are not looked at. Numbers that are not finite
/// count as impossible.
pub fn continuations(
    logits: &Tensor,
    scores: &[f32],
    [going_on, at_limit]: [&[Range<usize>]; 2],
    count: usize,
    constraints: &Constraints,
    end: u32,
) -> Continuations {
    if logits.is_on_gpu() {
        let found = gpu_ops::best_rows(logits, scores, count, constraints, end);
        let open = going_on.iter().map(|group| found.merge(group.clone(), count)).collect();
        let closed = at_limit.iter().map(|group| found.ends(group.clone(), end)).collect();
        return Continuations { open, closed };
    }
    let open = going_on.par_iter().map(|group| {
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
    let closed = at_limit.iter().map(|group| ranked(group.clone().map(close).collect()));
    Continuations { open: open.collect(), closed: closed.collect() }
}

/// The possible ones, best first.
pub(crate) fn ranked(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.retain(|candidate| candidate.score.is_finite());
    candidates.sort_by(Candidate::order);
    candidates
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Rng};

    #[test]
    fn the_best_are_found_as_by_sorting() {
        let (rows, types, count) = (4, 101, 7);
        let stream = Rng::new(8, 0).stream(0);
        let values: Vec<f32> = (0..rows * types).map(|i| stream.normal(i as u32, 0)).collect();
        let logits = Tensor::from_host(&Device::cpu(), [rows, types], &values);
        let scores = [-1.0, -1.5, -0.5, -3.0];
        for by in [0.7, -6.0] {
            let constraints = Constraints { forbidden: vec![1], penalties: vec![(90, by)] };
            let found = continuations(&logits, &scores, [&[0..3, 3..4], &[]], count, &constraints, 2);
            for (group, got) in [0..3, 3..4].into_iter().zip(found.open) {
                let mut all = Vec::new();
                for row in group {
                    let sum: f64 = logits.row(row).iter().map(|&v| f64::from(v).exp()).sum();
                    for token in (0..types).filter(|&t| t != 1) {
                        let penalty = if token == 90 { f64::from(by) } else { 0.0 };
                        let value =
                            f64::from(logits.row(row)[token]) - sum.ln() + f64::from(scores[row]) - penalty;
                        all.push((value, row as u32, token as u32));
                    }
                }
                all.sort_by(|a, b| b.0.total_cmp(&a.0));
                assert_eq!(got.len(), count);
                for (got, want) in got.iter().zip(all) {
                    assert_eq!((got.row, got.token), (want.1, want.2));
                    assert!((f64::from(got.score) - want.0).abs() < 1e-5);
                }
            }
        }
    }
}
