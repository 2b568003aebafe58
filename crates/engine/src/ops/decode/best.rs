//! The best next tokens of groups of hypotheses.

use std::ops::Range;

use super::{cpu, cuda};
use crate::Tensor;

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

/// Continuations of the hypotheses of each group.
pub struct Continuations {
    /// For the groups that continue: the best continuations, ranked.
    pub open: Vec<Vec<Candidate>>,
    /// For the groups at their limit: all their hypotheses closed with the end mark, ranked.
    pub closed: Vec<Vec<Candidate>>,
}

/// Scores of hypotheses, row by row, and the rows of each group.
pub(super) struct Groups<'a> {
    pub(super) scores: &'a [f32],
    pub(super) going_on: &'a [Range<usize>],
    pub(super) at_limit: &'a [Range<usize>],
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
    let groups = Groups { scores, going_on, at_limit };
    match logits.is_on_gpu() {
        true => cuda::continuations(logits, &groups, count, constraints, end),
        false => cpu::continuations(logits, &groups, count, constraints, end),
    }
}

/// The possible ones, best first.
pub(super) fn ranked(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.retain(|candidate| candidate.score.is_finite());
    candidates.sort_by(Candidate::order);
    candidates
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
