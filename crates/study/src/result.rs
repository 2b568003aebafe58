//! Everything that is known about a finished run. `result.json` is written last and at once: a run that has one is done.

use std::collections::BTreeMap;
use std::path::Path;

use mae_data::files;
use mae_eval::analysis::Means;
use mae_eval::analysis::one_expert::EncoderOnly;
use mae_eval::analysis::oracle::Oracle;
use mae_train::keys::Keys;
use mae_train::validate::Validation;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, read_if_there};
use crate::origins::Origins;

/// The file of a finished run.
pub const RESULT: &str = "result.json";

/// A finished run. Losses are in bits per target token, entropies in nats, BLEU is 0 to 100.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Its system.
    pub system: String,
    /// Its seed.
    pub seed: u64,
    /// The model that was measured, in words.
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
    /// Seconds of all sessions, with validating and saving; what a kill lost is not counted.
    pub wall_seconds: f64,
    /// Seconds of updates.
    pub training_seconds: f64,
    /// Lowest smoothed development loss of a validation.
    pub best_dev_loss: Option<f64>,
    /// Development set, of the model that was measured.
    pub dev: Option<Development>,
    /// Gates on the development set, of translation models that have some.
    pub gates: Option<Gates>,
    /// Losses with the experts that an oracle chose, on the development set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oracle: Option<Oracle>,
    /// Of translation models.
    pub translation: Option<Translated>,
    /// Of language models, by text.
    pub language_model: Option<BTreeMap<String, Predicted>>,
    /// Device that computed it.
    pub device: String,
    /// The version of the program.
    pub version: String,
    /// The commit that the program was built from, if it is known.
    pub commit: Option<String>,
    /// The data's folder.
    pub data: String,
    /// Fingerprints of the data and the parent, by part; empty in results of versions that did not keep them.
    #[serde(default)]
    pub made_from: Origins,
    /// The protocol that it was measured by, key by key; incomplete in results of versions that did not keep it.
    #[serde(default)]
    pub measured: Keys,
    /// Everything the run used, key by key.
    pub config: Keys,
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
    /// Smoothed loss with gates that weigh all experts alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniform_loss: Option<f64>,
}

impl From<Validation> for Development {
    fn from(found: Validation) -> Self {
        let Validation { loss, nll_loss, ppl, gate_entropy, .. } = found;
        Self { loss, nll_loss, ppl, gate_entropy, uniform_loss: None }
    }
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
    /// True if a few experts take everything in some attention.
    pub collapsed: bool,
    /// The same in words.
    pub verdict: String,
    /// Means of I(expert; input), in nats.
    #[serde(default)]
    pub information: Option<Means>,
    /// Means of the gates that the run began with, on the same inputs: initial values of its seed behind norms with the
    /// statistics of the measured model.
    #[serde(default)]
    pub untrained: Option<GateMeans>,
    /// Updates of the gates.
    #[serde(default)]
    pub updates: Option<u64>,
    /// Norm of the gates' gradient in the last G steps.
    #[serde(default)]
    pub gradient_norm: Option<f64>,
    /// H(tag) of the development set in nats, where it has tags: what gates can tell of them at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag_entropy: Option<f64>,
    /// By attention, in the order of the model.
    #[serde(default)]
    pub attentions: Vec<AttentionGates>,
}

/// Means over attentions, in nats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GateMeans {
    /// Entropy.
    pub entropy: Means,
    /// I(expert; input).
    pub information: Means,
}

/// Gates of one attention, beside the gate that the run began with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttentionGates {
    /// The attention, `encoder 1`.
    pub attention: String,
    /// Mean entropy, in nats.
    pub entropy: Option<f64>,
    /// I(expert; input), in nats; inputs are sentences, or positions where each has a gate.
    pub information: Option<f64>,
    /// Mean gate of each expert.
    pub load: Vec<f64>,
    /// Mean entropy of the untrained gate.
    pub untrained_entropy: Option<f64>,
    /// I(expert; input) of the untrained gate.
    pub untrained_information: Option<f64>,
    /// Mean untrained gate of each expert.
    pub untrained_load: Vec<f64>,
    /// I(tag; expert) in nats, where sentences have tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag_information: Option<f64>,
    /// I(tag; expert) of the untrained gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrained_tag_information: Option<f64>,
}

impl Gates {
    /// The largest I(tag; expert) of all attentions, of the gates and of the untrained ones.
    pub fn most_about_tags(&self) -> Option<[f64; 2]> {
        let most = |of: fn(&AttentionGates) -> Option<f64>| {
            self.attentions.iter().filter_map(of).max_by(f64::total_cmp)
        };
        Some([most(|gates| gates.tag_information)?, most(|gates| gates.untrained_tag_information)?])
    }
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
    /// True if words were split at their dashes for it.
    pub compound_split: bool,
    /// Lines that are exactly right, in per cent, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<f64>,
    /// By tag: the score by which systems are compared, of the sentences with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_tag: BTreeMap<String, f64>,
    /// BLEU with one expert per attention.
    pub one_expert: Option<OneExpert>,
    /// BLEU with gates that weigh all experts alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniform_gates: Option<UniformGates>,
}

/// BLEU of a model whose gates were made to weigh all experts alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UniformGates {
    /// Lines that are exactly right, in per cent, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<f64>,
    /// sacreBLEU, where there is a reference for it.
    pub bleu: Option<f64>,
    /// multi-bleu.perl's.
    pub bleu_tokenised: f64,
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
    /// The same with one expert in the encoder alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderOnly>,
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
    /// Scores with one expert per attention, if they were measured.
    pub fn one_expert(&self) -> Option<&OneExpert> {
        let of_texts = || self.language_model.iter().flatten().find_map(|(_, text)| text.one_expert.as_ref());
        self.translation.as_ref().and_then(|test| test.one_expert.as_ref()).or_else(of_texts)
    }

    /// Reads the result of a run's folder; `None` if it has none.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RESULT);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        let mut result: Self = serde_json::from_str(&text).map_err(|source| {
            let advice = "remove the folder, and the run is made again";
            Error::Damaged { path, advice, source }
        })?;
        if let (true, Some(test)) = (result.measured.is_empty(), &result.translation) {
            let known =
                [("split", format!("{:?}", test.split)), ("compound_split", test.compound_split.to_string())];
            result.measured = known.map(|(key, value)| (format!("translation.{key}"), value)).into();
        }
        Ok(Some(result))
    }

    /// Writes it into a run's folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("results can always be written as JSON");
        Ok(files::write(folder.join(RESULT), text.as_bytes())?)
    }
}
