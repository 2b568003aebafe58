//! How models of a study are measured.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use mae_data::moses::Lang;
use mae_model::folder::Task;
use serde::{Deserialize, Serialize};

use super::result::RunResult;
use crate::runs::changes::flat;

/// How a test set is translated and scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Translation {
    /// The set.
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
    /// Whether sacreBLEU takes both sides in lower case.
    pub lowercase: bool,
    /// Whether tokenised BLEU splits words at their dashes.
    pub compound_split: bool,
    /// Draws of random experts; 0: no one-expert evaluation.
    pub draws: usize,
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
        }
    }
}

impl Translation {
    /// Whether it makes sense.
    pub fn check(&self) -> Result<()> {
        ensure!(self.beam > 0, "translation.beam = 0 finds nothing; it must be at least 1");
        if !self.language.is_empty() {
            self.language.parse::<Lang>().context("translation.language")?;
        }
        ensure!(
            self.language.is_empty() == self.reference.is_empty(),
            "translation.language and translation.reference go together: sacreBLEU needs plain text on both sides"
        );
        Ok(())
    }
}

/// How a language model is measured: fairseq's context window.
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

/// How a run's model is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// By its translations.
    Translation(Translation),
    /// By its perplexity.
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

    /// Everything that results depend on, key by key. Where the references lie does not matter: a study's folder keeps what
    /// is in them.
    pub fn keys(&self) -> BTreeMap<String, String> {
        let text = toml::to_string(self).expect("protocols can always be written as TOML");
        let mut keys = flat(&text).expect("TOML that was just written");
        keys.remove("translation.reference");
        keys
    }

    /// The same with the choices that all of `results` were measured with, whatever is asked for now.
    pub fn as_measured<'a>(&self, results: impl Iterator<Item = &'a RunResult> + Clone) -> Result<Self> {
        let mut keys = self.keys();
        for (key, value) in &mut keys {
            let mut values = results.clone().map(|result| result.measured.get(key));
            if let Some(Some(first)) = values.next()
                && values.all(|value| value == Some(first))
            {
                value.clone_from(first);
            }
        }
        let text: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let mut measured: Self = toml::from_str(&text).context("`measured` of results")?;
        if let (Self::Translation(measured), Self::Translation(test)) = (&mut measured, self) {
            measured.reference.clone_from(&test.reference);
        }
        Ok(measured)
    }

    /// What it is for.
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
            assert_eq!(test.as_measured(std::iter::empty()).unwrap(), test);
        }
    }
}
