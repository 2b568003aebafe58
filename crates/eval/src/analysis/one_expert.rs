//! One expert per attention instead of the mixture: what the experts are worth alone, in BLEU.
//!
//! The gates' favourite for systems with gates, and random experts for all, over several draws: the paper's table of
//! performance decreases.

use mae_data::{ParallelDataset, Segmentation};
use mae_model::{Draws, ExpertMode, Translator};
use mae_train::Result;
use serde::Serialize;

use crate::validator::BleuValidator;

/// BLEU (fairseq's, 0 to 100, on whitespace tokens with pieces joined) with one expert per attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneExpert {
    /// Beam of the translations.
    pub beam: usize,
    /// BLEU of the mixture.
    pub mixture: f64,
    /// BLEU with the gates' favourite expert; none where there are no gates.
    pub argmax: Option<f64>,
    /// BLEU with random experts, of each draw.
    pub random: Vec<f64>,
}

/// A mean with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); 0 for a single value.
    pub deviation: f64,
}

impl Spread {
    /// Of some values; none if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        (!values.is_empty()).then_some(Self { mean, deviation })
    }
}

/// How to evaluate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Beam of the translations.
    pub beam: usize,
    /// Draws of random experts.
    pub draws: usize,
    /// Seed of the first draw; the others follow it.
    pub seed: u64,
}

impl Options {
    /// Times that the data set is translated.
    pub fn translations(&self, model: &Translator) -> usize {
        1 + usize::from(model.config().mixture.system.is_gated()) + self.draws
    }
}

/// Translates the data set with the mixture, with the gates' favourites, and with random experts; `progress` is called after
/// each translation of the whole set.
pub fn evaluate(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    options: Options,
    mut progress: impl FnMut(),
) -> Result<OneExpert> {
    let scorer = BleuValidator::new(data, codes, options.beam);
    let mut bleu = |mode: &ExpertMode| {
        let score = scorer.bleu_with(model, mode);
        progress();
        score
    };
    let mixture = bleu(&ExpertMode::Mix)?;
    let gated = model.config().mixture.system.is_gated();
    let argmax = gated.then(|| bleu(&ExpertMode::Argmax)).transpose()?;
    let random = (0..options.draws as u64)
        .map(|draw| bleu(&ExpertMode::Random(Draws { seed: options.seed + draw, places: Vec::new() })))
        .collect::<Result<_>>()?;
    Ok(OneExpert { beam: options.beam, mixture, argmax, random })
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn spread_is_that_of_a_sample() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.5]), Some(Spread { mean: 3.5, deviation: 0.0 }));
        assert_eq!(Spread::of(&[1.0, 2.0, 3.0]), Some(Spread { mean: 2.0, deviation: 1.0 }));
    }
}
