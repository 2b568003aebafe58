//! One expert per attention instead of the mixture: the value of single experts, in BLEU or perplexity.
//!
//! The gates' favourite for systems with gates, and random experts for all, over several draws: the paper's table of
//! performance decreases.

use mae_data::{ParallelDataset, Segmentation};
use mae_model::{Draws, ExpertMode, LanguageModel, Translator};
use serde::{Deserialize, Serialize};

use super::text::Text;
use crate::Result;
use crate::perplexity::{TextMeasure, log_probs};
use crate::validator::BleuValidator;

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "metric", rename_all = "snake_case")]
pub enum Metric {
    /// fairseq's BLEU, 0 to 100, on whitespace tokens with pieces joined.
    Bleu {
        /// Beam of the translations.
        beam: usize,
    },
    /// Perplexity of a text per word, pieces joined and ends of lines counted.
    PerplexityPerWord,
}

/// Scores with one expert per attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneExpert {
    /// Measured quantity.
    #[serde(flatten)]
    pub metric: Metric,
    /// The mixture's score.
    pub mixture: f64,
    /// With the gates' favourite expert; none where there are no gates.
    pub argmax: Option<f64>,
    /// With random experts, of each draw.
    pub random: Vec<f64>,
    /// The same with one expert in the encoder's attentions only and the mixture elsewhere; of translations, where it was
    /// asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderOnly>,
}

/// Scores with one expert per attention of the encoder, and the mixture in the decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EncoderOnly {
    /// With the gates' favourite expert; none where there are no gates.
    pub argmax: Option<f64>,
    /// With random experts, of each draw.
    pub random: Vec<f64>,
}

/// Attentions that have one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// All of them.
    Everywhere,
    /// All of them, and then once more those of the encoder alone.
    AlsoEncoderOnly,
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

/// Draws of random experts.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Number of draws.
    pub draws: usize,
    /// Seed of the first draw; the others follow it.
    pub seed: u64,
}

impl Random {
    /// Times that a data set is evaluated with one expert.
    pub fn evaluations(self, gated: bool) -> usize {
        usize::from(gated) + self.draws
    }

    /// Scores with the gates' favourites, if there are gates, and with random experts.
    fn scores(
        self,
        gated: bool,
        mut score: impl FnMut(ExpertMode) -> Result<f64>,
    ) -> Result<(Option<f64>, Vec<f64>)> {
        let argmax = gated.then(|| score(ExpertMode::Argmax)).transpose()?;
        let random = (0..self.draws as u64)
            .map(|draw| {
                score(ExpertMode::Random(Draws { seed: self.seed.wrapping_add(draw), places: Vec::new() }))
            })
            .collect::<Result<_>>()?;
        Ok((argmax, random))
    }
}

/// Translates the data set with the mixture, with the gates' favourites, and with random experts; `progress` is
/// called after each translation of the whole set.
pub fn evaluate(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    (beam, random, place): (usize, Random, Where),
    mut progress: impl FnMut(),
) -> Result<OneExpert> {
    let scorer = BleuValidator::new(data, codes, beam);
    let mut bleu = |mode: &ExpertMode| {
        let score = scorer.bleu_with(model, mode);
        progress();
        score
    };
    let mixture = bleu(&ExpertMode::Mix)?;
    let gated = model.config().mixture.system.is_gated();
    let (argmax, everywhere) = random.scores(gated, |mode| bleu(&mode))?;
    let encoder = match place {
        Where::Everywhere => None,
        Where::AlsoEncoderOnly => {
            let (argmax, random) =
                random.scores(gated, |mode| bleu(&ExpertMode::InEncoder(Box::new(mode))))?;
            Some(EncoderOnly { argmax, random })
        }
    };
    Ok(OneExpert { metric: Metric::Bleu { beam }, mixture, argmax, random: everywhere, encoder })
}

/// Scores a text with the gates' favourites and with random experts, drawn for each block and attention; `mixture` is
/// its score with all. `progress` gets the number of tokens done, of all evaluations together.
pub fn evaluate_text(
    model: &LanguageModel,
    text: Text<'_>,
    mixture: &TextMeasure,
    random: Random,
    mut progress: impl FnMut(u64),
) -> Result<OneExpert> {
    let mut before = 0;
    let words = mixture.words.max(1) as f64;
    let perplexity = |mode: ExpertMode| {
        let found = log_probs(model, text.blocks, text.max_tokens, &mode, |done| progress(before + done))?;
        before += found.len() as u64;
        Ok((-found.iter().map(|&p| f64::from(p)).sum::<f64>() / words).exp())
    };
    let (argmax, random) = random.scores(model.config().mixture.system.is_gated(), perplexity)?;
    let (metric, mixture) = (Metric::PerplexityPerWord, mixture.perplexity_per(mixture.words));
    Ok(OneExpert { metric, mixture, argmax, random, encoder: None })
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
