//! The best next tokens of groups of hypotheses.

use std::ops::Range;

use super::{cpu, cuda};
use crate::{Result, Tensor};

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

/// A hypothesis whose continuations are ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveRow {
    /// Cumulative log-probability so far, in nats.
    pub score: f32,
    /// Subtracted from the log-probability of the unknown word.
    pub unknown_penalty: f32,
    /// Tokens that may follow.
    pub next: Next,
}

/// Tokens that may follow a hypothesis; the padding symbol never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All but the end mark.
    Words,
    /// All.
    Any,
    /// The end mark.
    End,
}

/// Ids of the symbols that rules speak of.
#[derive(Clone, Copy, Debug)]
pub struct Symbols {
    /// Padding.
    pub pad: u32,
    /// End of a sentence.
    pub end: u32,
    /// Unknown word.
    pub unknown: u32,
}

/// Ranked continuations of groups of hypotheses, on their way to the host.
pub struct Continuations(Inner);

enum Inner {
    Here(Vec<Vec<Candidate>>),
    Coming(cuda::Ranked),
}

impl From<Vec<Vec<Candidate>>> for Continuations {
    fn from(found: Vec<Vec<Candidate>>) -> Self {
        Self(Inner::Here(found))
    }
}

impl From<cuda::Ranked> for Continuations {
    fn from(found: cuda::Ranked) -> Self {
        Self(Inner::Coming(found))
    }
}

impl Continuations {
    /// The continuations of each group, best first; waits for the device.
    pub fn ranked(self) -> Result<Vec<Vec<Candidate>>> {
        match self.0 {
            Inner::Here(found) => Ok(found),
            Inner::Coming(found) => found.read(),
        }
    }
}

/// For each group of hypotheses, the `count` best continuations over all its rows:
/// `score[row] + ln softmax(logits)`. A group may have fewer: numbers that are not finite count as impossible, and
/// a hypothesis that must end has one continuation. The device works on while the host goes on.
///
/// logits `[R, V]`; groups are runs of rows, and rows beyond `live` are not looked at.
pub fn continuations(
    logits: &Tensor,
    live: &[LiveRow],
    groups: &[Range<usize>],
    count: usize,
    symbols: Symbols,
) -> Result<Continuations> {
    Ok(match logits.is_on_gpu() {
        true => cuda::continuations(logits, live, groups, count, symbols)?.into(),
        false => cpu::continuations(logits, live, groups, count, symbols).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Rng};

    const SYMBOLS: Symbols = Symbols { pad: 1, end: 2, unknown: 90 };

    #[test]
    fn the_best_are_found_as_by_sorting() {
        let (rows, types, count) = (6, 101, 7);
        let stream = Rng::new(8, 0).stream(0);
        let values: Vec<f32> = (0..rows * types).map(|i| stream.normal(i as u32, 0)).collect();
        let logits = Tensor::from_host(&Device::cpu(), [rows, types], &values);
        let nexts = [Next::Any, Next::Any, Next::Any, Next::Words, Next::End, Next::End];
        for unknown_penalty in [0.7, -6.0] {
            let live = |(row, next): (usize, &Next)| LiveRow {
                score: -(row as f32) / 2.0,
                unknown_penalty,
                next: *next,
            };
            let live: Vec<LiveRow> = nexts.iter().enumerate().map(live).collect();
            let groups = [0..3, 3..4, 4..6];
            let found = continuations(&logits, &live, &groups, count, SYMBOLS).unwrap().ranked().unwrap();
            for (group, got) in groups.into_iter().zip(found) {
                let mut all = Vec::new();
                for row in group {
                    let sum: f64 = logits.row(row).iter().map(|&v| f64::from(v).exp()).sum();
                    let may_follow = |token: &u32| match live[row].next {
                        Next::Any => *token != 1,
                        Next::Words => *token != 1 && *token != 2,
                        Next::End => *token == 2,
                    };
                    for token in (0..types as u32).filter(may_follow) {
                        let penalty = if token == 90 { f64::from(unknown_penalty) } else { 0.0 };
                        let log_prob = f64::from(logits.row(row)[token as usize]) - sum.ln();
                        all.push((log_prob + f64::from(live[row].score) - penalty, row as u32, token));
                    }
                }
                all.sort_by(|a, b| b.0.total_cmp(&a.0));
                assert_eq!(got.len(), count.min(all.len()));
                for (got, want) in got.iter().zip(all) {
                    assert_eq!((got.row, got.token), (want.1, want.2));
                    assert!((f64::from(got.score) - want.0).abs() < 1e-5);
                }
            }
        }
    }
}
