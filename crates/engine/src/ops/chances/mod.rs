//! What may follow hypotheses, as whole rows of log-probabilities: for searches that need more than the best continuations
//! of one model ([`decode::continuations`](crate::ops::decode::continuations)). Several models, forced tokens, tokens that
//! must not come, draws. Inference only.
//!
//! On a GPU the rows stay there: the host says what to do with them and gets candidates back.
//!
//! | file | what is in it |
//! |---|---|
//! | `bounds` | the tokens that may be drawn |
//! | `cpu`, `cuda` | the implementations |

mod bounds;
mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use std::ops::Range;

pub use self::bounds::Bounds;
use super::decode::{Continuations, Symbols, log_probs, mean_log_probs};
use crate::{Result, Tensor};

/// A row of logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Its number.
    pub row: u32,
    /// Divisor of its logits.
    pub temperature: f32,
}

/// What may follow a hypothesis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Subtracted from the log-probability of the unknown word.
    pub unknown_penalty: f32,
    /// The only token that may follow, if there is one; the other rules say nothing then.
    pub only: Option<u32>,
    /// Whether the end mark must not follow.
    pub too_short: bool,
    /// Tokens that must not follow. If nothing else may, the end mark may.
    pub forbidden: Vec<u32>,
}

/// A token to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The hypothesis that it follows.
    pub row: u32,
    /// A uniform random number of [0, 1).
    pub uniform: f32,
    /// The tokens that may be drawn.
    pub bounds: Bounds,
}

/// Log-probabilities of what may follow each of some hypotheses, `[R, types]`.
pub struct Chances {
    types: usize,
    /// Models that were asked, and those that will be.
    models: [usize; 2],
    data: Data,
}

enum Data {
    /// What each model says; when all have been asked, what they say together.
    Host(Vec<Vec<f32>>),
    Gpu(cuda::OnGpu),
}

impl Chances {
    /// What the first of `models` says: `ln softmax(logits / temperature)` of each place. Where others follow
    /// ([`Chances::add`]), probabilities are averaged.
    pub fn of(logits: &Tensor, places: &[Place], models: usize) -> Self {
        let types = logits.cols();
        let data = match logits.is_on_gpu() {
            true if logits.dtype() != logits.gpu().act() => unreachable!("logits are activations"),
            true => Data::Gpu(cuda::OnGpu::new(logits.gpu(), places.len(), types)),
            false => Data::Host(Vec::new()),
        };
        let mut chances = Self { types, models: [0, models], data };
        chances.add(logits, places);
        chances
    }

    /// Rows on the host, `[R, types]`.
    pub fn from_host(values: Vec<f32>, types: usize) -> Self {
        Self { types, models: [1, 1], data: Data::Host(vec![values]) }
    }

    /// What one more model says about the same hypotheses.
    ///
    /// # Panics
    ///
    /// If there are more models than [`Chances::of`] was told.
    pub fn add(&mut self, logits: &Tensor, places: &[Place]) {
        let [asked, all] = &mut self.models;
        assert!(*asked < *all && logits.cols() == self.types, "one model more than there are");
        *asked += 1;
        match &mut self.data {
            Data::Gpu(rows) => {
                let share = if *asked == *all { (*all as f32).ln() } else { 0.0 };
                rows.add(logits, places, *asked - 1, share);
            }
            Data::Host(each) => {
                each.push(said(logits, places));
                if *asked == *all {
                    *each = vec![mean_log_probs(std::mem::take(each))];
                }
            }
        }
    }

    /// Makes impossible what must not follow: a rule for each hypothesis. The padding symbol never follows but where it is
    /// the only token that may.
    pub fn constrain(&mut self, rules: &[Rule], symbols: Symbols) {
        match &mut self.data {
            Data::Gpu(rows) => rows.constrain(rules, symbols),
            Data::Host(rows) => cpu::constrain(&mut rows[0], self.types, rules, symbols),
        }
    }

    /// For each group of hypotheses, the `count` best continuations: `scores[row] + ln p`, possible ones only.
    pub fn best(&self, scores: &[f32], groups: &[Range<usize>], count: usize) -> Result<Continuations> {
        Ok(match &self.data {
            Data::Gpu(rows) => rows.best(scores, groups, count)?.into(),
            Data::Host(rows) => cpu::best(&rows[0], self.types, scores, groups, count).into(),
        })
    }

    /// One continuation for each draw; none where nothing can be drawn. The device works on while the host goes on.
    pub fn draw(&self, scores: &[f32], draws: &[Draw]) -> Result<Continuations> {
        Ok(match &self.data {
            Data::Gpu(rows) => rows.draw(scores, draws)?.into(),
            Data::Host(rows) => cpu::draw(&rows[0], self.types, scores, draws).into(),
        })
    }
}

/// What a model says, on the host.
fn said(logits: &Tensor, places: &[Place]) -> Vec<f32> {
    let first = places.first().map_or(1.0, |place| place.temperature);
    let all =
        places.len() == logits.rows() && places.iter().enumerate().all(|(i, place)| place.row as usize == i);
    if all && places.iter().all(|place| place.temperature == first) {
        return log_probs(logits, places.len(), first);
    }
    cpu::log_probs_at(logits, places)
}
