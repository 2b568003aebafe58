//! What is known about a finished run. `result.json` is written last and at once: a run that has one is done.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use mae_model::folder::write_aside;
use serde::{Deserialize, Serialize};

use super::origins::Origins;

/// The file of a finished run.
pub const RESULT: &str = "result.json";

/// A finished run. Losses are in bits per target token, entropies in nats, BLEU is 0 to 100.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Its system.
    pub system: String,
    /// Its seed.
    pub seed: u64,
    /// Which model was measured.
    pub model: String,
    /// Parameters of the model.
    pub parameters: u64,
    /// Those that were trained.
    pub trained_parameters: u64,
    /// Updates made.
    pub updates: u64,
    /// The update after which the smoothed development loss was lowest.
    pub best_update: Option<u64>,
    /// Epochs, with fractions.
    pub epochs: f64,
    /// Seconds of all sittings, with validating and saving; what a kill lost is not counted.
    pub wall_seconds: f64,
    /// Seconds of updates.
    pub training_seconds: f64,
    /// Lowest smoothed development loss of a validation.
    pub best_dev_loss: Option<f64>,
    /// Development set, of the model that was measured.
    pub dev: Option<Development>,
    /// Gates on the development set, of translation models that have some.
    pub gates: Option<Gates>,
    /// Of translation models.
    pub translation: Option<Translated>,
    /// Of language models, by text.
    pub language_model: Option<BTreeMap<String, Predicted>>,
    /// Where it was computed.
    pub device: String,
    /// The version of the program.
    pub version: String,
    /// The commit it was built from, where the environment says (`MAE_COMMIT`).
    pub commit: Option<String>,
    /// The data's folder.
    pub data: String,
    /// What the data and the parent are, by part; empty in results of before this was kept.
    #[serde(default)]
    pub made_from: Origins,
    /// How it was measured, key by key; of results of before this was kept, what is known.
    #[serde(default)]
    pub measured: BTreeMap<String, String>,
    /// Everything the run used, key by key.
    pub config: BTreeMap<String, String>,
}

/// A development set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Development {
    /// Smoothed loss.
    pub loss: f64,
    /// Plain loss.
    pub nll_loss: f64,
    /// 2^nll_loss.
    pub ppl: f64,
    /// Mean over all attentions.
    pub gate_entropy: Option<f64>,
}

/// Mean entropies of gates over layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gates {
    /// Encoder: what the paper reports.
    pub encoder: Option<f64>,
    /// Self-attentions of the decoder.
    pub decoder: Option<f64>,
    /// Attentions to the source.
    pub cross: Option<f64>,
    /// ln E: a gate without favourites.
    pub uniform: f64,
    /// Whether a few experts take everything in some attention.
    pub collapsed: bool,
    /// The same in words.
    pub verdict: String,
}

/// A translated test set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Translated {
    /// The set.
    pub split: String,
    /// sacreBLEU of the detokenised text, where there is a reference for it.
    pub bleu: Option<f64>,
    /// Its signature.
    pub signature: Option<String>,
    /// multi-bleu.perl's, on whitespace tokens with pieces joined.
    pub bleu_tokenised: f64,
    /// Whether words were split at their dashes for it.
    pub compound_split: bool,
    /// BLEU with one expert per attention.
    pub one_expert: Option<OneExpert>,
}

/// BLEU (fairseq's, whitespace tokens) or perplexity per word with one expert per attention.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneExpert {
    /// Of the mixture.
    pub mixture: f64,
    /// With the gates' favourites.
    pub argmax: Option<f64>,
    /// With random experts, of each draw.
    pub random: Vec<f64>,
}

/// A text that was predicted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Predicted {
    /// Tokens, ends of lines counted.
    pub tokens: u64,
    /// Perplexity per token.
    pub ppl: f64,
    /// Perplexity per word, pieces joined.
    pub ppl_per_word: f64,
    /// Perplexity with one expert per attention, of the last text.
    pub one_expert: Option<OneExpert>,
}

impl RunResult {
    /// What was found with one expert per attention.
    pub fn one_expert(&self) -> Option<&OneExpert> {
        let of_texts = || self.language_model.iter().flatten().find_map(|(_, text)| text.one_expert.as_ref());
        self.translation.as_ref().and_then(|test| test.one_expert.as_ref()).or_else(of_texts)
    }

    /// That of a run's folder, if it has one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RESULT);
        if !path.exists() {
            return Ok(None);
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut result: Self = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; remove the folder, and the run is made again", path.display())
        })?;
        if let (true, Some(test)) = (result.measured.is_empty(), &result.translation) {
            let known =
                [("split", format!("{:?}", test.split)), ("compound_split", test.compound_split.to_string())];
            result.measured = known.map(|(key, value)| (format!("translation.{key}"), value)).into();
        }
        Ok(Some(result))
    }

    /// Writes it.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(write_aside(&folder.join(RESULT), text.as_bytes())?)
    }
}

/// The commit that the environment names.
pub fn commit() -> Option<String> {
    std::env::var("MAE_COMMIT").ok().filter(|commit| !commit.is_empty())
}

/// What a record of several runs was made with.
#[derive(Serialize)]
pub struct Origin {
    /// The command that was given, as one would type it.
    command: String,
    /// The version of the program.
    version: &'static str,
    /// The commit it was built from, where the environment says.
    commit: Option<String>,
}

impl Origin {
    /// This process.
    pub fn here() -> Self {
        let words = std::iter::once("mae".to_owned()).chain(std::env::args().skip(1));
        Self {
            command: words.collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
        }
    }
}
