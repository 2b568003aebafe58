//! Protocols: how the models of a study are measured.

use mae_data::moses::Lang;
use mae_model::folder::Task;
use mae_train::keys::{self, Keys};
use serde::{Deserialize, Serialize};

use crate::error::PlanFault;

/// Protocol for translation models: how a test set is translated and scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Translation {
    /// Name of the set.
    pub split: String,
    /// Width of the beam.
    pub beam: usize,
    /// Exponent of the length.
    pub lenpen: f32,
    /// The last so many epoch checkpoints are averaged; 0: the best checkpoint is taken.
    pub average: usize,
    /// Language whose rules join tokens to text for sacreBLEU; empty: tokenised BLEU only.
    pub language: String,
    /// The set's references as plain text, for sacreBLEU: a path, or a name in the data's folder or the one above.
    pub reference: String,
    /// Score with sacreBLEU in lower case.
    pub lowercase: bool,
    /// Split words at their dashes for tokenised BLEU.
    pub compound_split: bool,
    /// Draws of random experts; 0: no one-expert evaluation.
    pub draws: usize,
    /// Evaluate one expert in the encoder alone, too.
    pub encoder_only: bool,
    /// Translate with gates that weigh all experts alike, too.
    pub uniform_gates: bool,
    /// Compare systems by the share of lines that are exactly right.
    pub exact_match: bool,
    /// Ending of files in the data's folder with a tag for each sentence (`valid.domain`, `test.domain`): gates and scores
    /// by tag; empty: none.
    pub tags: String,
    /// Sentences of the development set for which an oracle chooses experts; 0: no oracle.
    pub oracle: usize,
}

impl Default for Translation {
    fn default() -> Self {
        Self {
            split: "test".into(),
            beam: 5,
            lenpen: 1.0,
            average: 0,
            language: String::new(),
            reference: String::new(),
            lowercase: false,
            compound_split: false,
            draws: 5,
            encoder_only: false,
            uniform_gates: false,
            exact_match: false,
            tags: String::new(),
            oracle: 0,
        }
    }
}

impl Translation {
    /// Checks that it makes sense.
    pub(crate) fn check(&self) -> Result<(), PlanFault> {
        if self.beam == 0 {
            return Err(PlanFault::Beam);
        }
        if !self.language.is_empty() {
            self.language.parse::<Lang>().map_err(|error| PlanFault::Language(error.to_string()))?;
        }
        if self.language.is_empty() == self.reference.is_empty() { Ok(()) } else { Err(PlanFault::Reference) }
    }
}

/// Protocol for language models: perplexity with fairseq's context window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageModel {
    /// The texts; the last one's perplexity stands beside the paper's.
    pub splits: Vec<String>,
    /// Tokens of a block, its context counted.
    pub tokens_per_sample: usize,
    /// Tokens of a block that were scored before and are read again.
    pub context_window: usize,
    /// The last so many epoch checkpoints are averaged; 0: the best checkpoint is taken.
    pub average: usize,
    /// Draws of random experts for the last text; 0: no one-expert evaluation.
    pub draws: usize,
}

impl Default for LanguageModel {
    fn default() -> Self {
        Self {
            splits: vec!["valid".into(), "test".into()],
            tokens_per_sample: 512,
            context_window: 480,
            average: 0,
            draws: 5,
        }
    }
}

/// Protocol that a run's model is measured by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Translations are scored.
    Translation(Translation),
    /// Texts are predicted.
    LanguageModel(LanguageModel),
}

impl Test {
    /// Epoch checkpoints that are averaged.
    pub fn average(&self) -> usize {
        match self {
            Self::Translation(test) => test.average,
            Self::LanguageModel(test) => test.average,
        }
    }

    /// The sets that are measured.
    pub fn splits(&self) -> impl Iterator<Item = &str> {
        let splits = match self {
            Self::Translation(test) => std::slice::from_ref(&test.split),
            Self::LanguageModel(test) => &test.splits,
        };
        splits.iter().map(String::as_str)
    }

    /// Everything that results depend on, key by key. The path of the references does not matter: a study's folder keeps
    /// their text.
    pub fn keys(&self) -> Keys {
        let text = toml::to_string(self).expect("protocols can always be written as TOML");
        let mut keys = keys::parse(&text).expect("TOML that was just written");
        keys.remove("translation.reference");
        keys
    }

    /// Makes a protocol from its keys, with the path of the references of `self`.
    pub(crate) fn with_keys(&self, keys: &Keys) -> Result<Self, toml::de::Error> {
        let text: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let mut test: Self = toml::from_str(&text)?;
        if let (Self::Translation(new), Self::Translation(own)) = (&mut test, self) {
            new.reference.clone_from(&own.reference);
        }
        Ok(test)
    }

    /// Task of the models.
    pub fn task(&self) -> Task {
        match self {
            Self::Translation(_) => Task::Translation,
            Self::LanguageModel(_) => Task::LanguageModeling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_come_back_from_their_keys() {
        let translation = Translation { lenpen: 0.6, reference: "test.en".into(), ..Translation::default() };
        for test in [Test::Translation(translation), Test::LanguageModel(LanguageModel::default())] {
            assert_eq!(test.with_keys(&test.keys()).unwrap(), test);
        }
    }
}
