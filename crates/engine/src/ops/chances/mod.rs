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

#[cfg(test)]
mod tests {
    use super::super::decode::Candidate;
    use super::*;
    use crate::{Device, Rng};

    const SYMBOLS: Symbols = Symbols { pad: 1, end: 2, unknown: 3 };
    const TYPES: usize = 50;

    fn logits(stream: u32, rows: usize) -> Tensor {
        let stream = Rng::new(4, 0).stream(stream);
        let values: Vec<f32> = (0..(rows * TYPES) as u32).map(|i| stream.normal(i, 0)).collect();
        Tensor::from_host(&Device::cpu(), [rows, TYPES], &values)
    }

    fn place(row: u32, temperature: f32) -> Place {
        Place { row, temperature }
    }

    /// The finite log-probabilities of a row, by a list of all candidates.
    fn possible(chances: &Chances, row: usize) -> Vec<(u32, f32)> {
        let all =
            chances.best(&[0.0; 9], std::slice::from_ref(&(row..row + 1)), TYPES).unwrap().ranked().unwrap();
        all[0].iter().map(|candidate| (candidate.token, candidate.score)).collect()
    }

    fn ln_p(logits: &Tensor, row: usize, token: usize, temperature: f64) -> f64 {
        let scaled = |logit: f32| f64::from(logit) / temperature;
        let sum: f64 = logits.row(row).iter().map(|&logit| scaled(logit).exp()).sum();
        scaled(logits.row(row)[token]) - sum.ln()
    }

    #[test]
    fn probabilities_of_models_are_averaged_at_each_temperature() {
        let models = [logits(0, 4), logits(1, 4)];
        let places = [place(3, 1.0), place(0, 0.5), place(0, 2.0)];
        let mut chances = Chances::of(&models[0], &places, 2);
        chances.add(&models[1], &places);
        for (row, place) in places.iter().enumerate() {
            let found = possible(&chances, row);
            assert_eq!(found.len(), TYPES);
            for (token, got) in found {
                let each = models
                    .each_ref()
                    .map(|logits| ln_p(logits, place.row as usize, token as usize, place.temperature.into()));
                let want = ((each[0].exp() + each[1].exp()) / 2.0).ln();
                assert!((f64::from(got) - want).abs() < 1e-5, "row {row}, token {token}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn rules_say_what_may_follow() {
        let logits = logits(2, 1);
        let row_by = |rule: Rule| {
            let mut chances = Chances::of(&logits, &[place(0, 1.0)], 1);
            chances.constrain(&[rule], SYMBOLS);
            let mut row = possible(&chances, 0);
            row.sort_by_key(|(token, _)| *token);
            row
        };
        let tokens = |rule: Rule| row_by(rule).iter().map(|(token, _)| *token).collect::<Vec<_>>();
        let all: Vec<u32> = (0..TYPES as u32).collect();
        let without =
            |gone: &[u32]| all.iter().copied().filter(|token| !gone.contains(token)).collect::<Vec<_>>();
        assert_eq!(tokens(Rule::default()), without(&[1]));
        assert_eq!(tokens(Rule { too_short: true, ..Rule::default() }), without(&[1, 2]));
        assert_eq!(tokens(Rule { forbidden: vec![9, 30], ..Rule::default() }), without(&[1, 9, 30]));
        assert_eq!(tokens(Rule { only: Some(7), forbidden: vec![7], ..Rule::default() }), [7]);
        let nothing_else = Rule { too_short: true, forbidden: all.clone(), ..Rule::default() };
        assert_eq!(tokens(nothing_else), [2], "better an end than nothing");
        let at = |row: &[(u32, f32)], token: u32| row.iter().find(|(t, _)| *t == token).unwrap().1;
        let [free, costly] =
            [0.0, 1.5].map(|unknown_penalty| row_by(Rule { unknown_penalty, ..Rule::default() }));
        assert!((at(&free, 3) - at(&costly, 3) - 1.5).abs() < 1e-6);
        assert_eq!(at(&free, 4), at(&costly, 4));
    }

    #[test]
    fn the_best_are_those_of_a_sort() {
        let logits = logits(3, 3);
        let places: Vec<Place> = (0..3).map(|row| place(row, 1.0)).collect();
        let chances = Chances::of(&logits, &places, 1);
        let scores = [0.0, -0.5, -1.0];
        let mut all: Vec<Candidate> = Vec::new();
        for (row, score) in scores.iter().enumerate() {
            let of = |&(token, ln_p): &(u32, f32)| Candidate { score: score + ln_p, row: row as u32, token };
            all.extend(possible(&chances, row).iter().map(of));
        }
        all.sort_by(Candidate::order);
        let two = [0..3, 0..0];
        assert_eq!(
            chances.best(&scores, &two, 9).unwrap().ranked().unwrap(),
            [all[..9].to_vec(), Vec::new()]
        );
        let draws =
            [(2, 0.0), (0, 0.999)].map(|(row, uniform)| Draw { row, uniform, bounds: Bounds::default() });
        let drawn = chances.draw(&scores, &draws).unwrap().ranked().unwrap();
        assert_eq!(drawn.iter().map(|one| (one[0].row, one[0].token)).collect::<Vec<_>>(), [(2, 0), (0, 49)]);
    }
}
