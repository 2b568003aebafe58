//! The paper's studies of a trained mixture (its section 5.1 and appendix): entropy, attribution, head weights,
//! PMI, one-expert evaluation.
//!
//! | room | contents |
//! |---|---|
//! | `study` | the pass over sentence pairs, batch by batch |
//! | [`text`] | the pass over a text, for language models |
//! | `gathered` | statistics that both gather of an attention, and conclusions |
//! | `seen`, [`tags`] | gates of the model and untrained ones side by side; tags of sentences |
//! | [`tally`] | sums over the gates of one attention: entropy, leading experts, mean gate, head weights |
//! | [`pmi`] | words that go with an expert |
//! | [`collapse`] | verdict on collapse: a few experts take all the input |
//! | [`oracle`] | the best expert per sentence and attention, chosen by half of its tokens and scored on the others |
//! | [`one_expert`] | BLEU or perplexity with one expert per attention instead of the mixture |
//!
//! All but the last come from one pass over a data set with its reference translations, or over a text. Sums
//! are kept, not gates, so memory hardly grows with the data; a few sentences or passages are kept whole as
//! examples.

pub mod collapse;
mod gathered;
pub mod one_expert;
pub mod oracle;
pub mod pmi;
mod seen;
mod study;
pub mod tags;
pub mod tally;
pub mod text;

use std::sync::Arc;

use mae_data::{ParallelDataset, Segmentation};
use mae_engine::Params;
use mae_model::Translator;
pub use mae_model::pass::{GateValues, Kind, Rows};
use serde::{Deserialize, Serialize};

use crate::gates::{for_each_batch, pairs_read};
use crate::{Error, Result};
use collapse::{Sharing, Verdict};
use pmi::Association;
pub use seen::TagReport;
use study::Study;
use tags::Tags;
use tally::HeadWeight;
use text::TextRead;

/// Amounts to report.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Words that come less often are left out of the PMI.
    pub min_count: u64,
    /// Words per expert.
    pub top_words: usize,
    /// Sentences kept whole; of a text, passages.
    pub sentences: usize,
}

/// Things that gates are compared with.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The gates before their training, which read the same inputs.
    pub untrained: Option<&'a Arc<Params>>,
    /// A tag for each sentence pair of the data set.
    pub tags: Option<&'a Tags>,
}

/// Statistics of an attention's gate before its training, on the same inputs.
#[derive(Clone, Debug, Serialize)]
pub struct Untrained {
    /// As in [`AttentionReport`], and so are the others.
    pub entropy: Option<f64>,
    /// Information of an input about its expert, in nats.
    pub information: Option<f64>,
    /// Shares of rows that experts lead.
    pub leads: Vec<f64>,
    /// The mean gate.
    pub mean_gate: Vec<f64>,
    /// The weight of each head.
    pub head_weights: Vec<HeadWeight>,
    /// Words that go with experts.
    pub words: Vec<Vec<Association>>,
    /// Gates by tag, where there are tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<TagReport>,
}

/// Statistics of one attention's gates.
#[derive(Clone, Debug, Serialize)]
pub struct AttentionReport {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// The same for people: `encoder 1`, or `layer 1` of a language model; layers from 1.
    pub label: String,
    /// Kind of attention in its layer.
    pub kind: Kind,
    /// The layer, from 1.
    pub layer: usize,
    /// Unit of the gates.
    pub rows: Rows,
    /// Number of them.
    pub count: u64,
    /// Mean entropy of the gates, in nats; not defined for head weights.
    pub entropy: Option<f64>,
    /// Entropy of the mean gate less mean entropy of the gates, in nats: information of an input about its expert.
    pub information: Option<f64>,
    /// For each expert, or head, the share of rows whose gate it leads.
    pub leads: Vec<f64>,
    /// For each expert, its mean gate; for each head, its mean weight.
    pub mean_gate: Vec<f64>,
    /// exp(entropy of the mean gate): E if all experts are used alike, 1 if one takes everything.
    pub experts_in_use: Option<f64>,
    /// Shares of the experts.
    pub sharing: Option<Sharing>,
    /// The weight of each head.
    pub head_weights: Vec<HeadWeight>,
    /// For each expert, or head, the words that go with it.
    pub words: Vec<Vec<Association>>,
    /// Gates by tag, where there are tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<TagReport>,
    /// The same of the gate before its training, where it was read beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untrained: Option<Untrained>,
}

/// Means over attentions, in nats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Means {
    /// Over encoder layers, as in the paper.
    pub encoder: Option<f64>,
    /// Over self-attentions of the decoder.
    pub decoder: Option<f64>,
    /// Over attentions to the source.
    pub cross: Option<f64>,
    /// Over all of them.
    pub all: Option<f64>,
}

impl Means {
    /// Of the attentions that have a value.
    pub fn of(reports: &[AttentionReport], value: impl Fn(&AttentionReport) -> Option<f64>) -> Self {
        let mean = |of: &dyn Fn(&AttentionReport) -> bool| {
            let values: Vec<f64> = reports.iter().filter(|r| of(r)).filter_map(&value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Self {
            encoder: mean(&|report| report.kind == Kind::Encoder),
            decoder: mean(&|report| report.kind == Kind::Decoder),
            cross: mean(&|report| report.kind == Kind::Cross),
            all: mean(&|_| true),
        }
    }
}

/// A sentence, or a passage of a text, with all its gates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sentence {
    /// Its place in the data set, from 1; of a passage, that of its first token.
    pub number: u64,
    /// Source pieces; a passage has none.
    pub source: Vec<String>,
    /// Pieces of the reference translation or of the passage, with end marks.
    pub target: Vec<String>,
    /// Of a passage, ln p of each piece, to three decimals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_probs: Vec<f32>,
    /// For each attention, in order, its gates to three decimals: one row, or one for each piece of the target.
    pub gates: Vec<Vec<Vec<f32>>>,
}

/// Results for a data set.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// What gates hold.
    pub gates: GateValues,
    /// E; 0 for systems without experts.
    pub experts: usize,
    /// H.
    pub heads: usize,
    /// The heads that each expert leaves out, from 0.
    pub left_out: Vec<Vec<usize>>,
    /// ln E: the entropy of a gate without favourites, in nats.
    pub uniform_entropy: Option<f64>,
    /// Sentence pairs; of a text, lines.
    pub sentences: u64,
    /// Pairs left out because they are longer than the model's positions.
    pub skipped: u64,
    /// Settings of the reading of a text, where it is a language model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextRead>,
    /// Words that come less often are left out of the PMI.
    pub min_count: u64,
    /// Mean entropies.
    pub entropy: Means,
    /// Mean informations of an input about its expert.
    pub information: Means,
    /// Mean entropies of the gates before their training, where they were read beside.
    pub untrained_entropy: Means,
    /// Mean informations of the gates before their training.
    pub untrained_information: Means,
    /// Names of the tags, where there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Verdict on collapse: whether few experts take all rows.
    pub collapse: Verdict,
    /// By attention, in the order of the model.
    pub attentions: Vec<AttentionReport>,
    /// A few sentences or passages, evenly spread over the data set.
    pub examples: Vec<Sentence>,
}

/// Analyses the gates of a data set, whose pieces `codes` made; `progress` gets the number of sentences done. Systems
/// without gates have no attentions to report.
pub fn analyse(
    model: &Translator,
    (data, codes): (&ParallelDataset, Option<&Segmentation>),
    options: Options,
    beside: Beside<'_>,
    mut progress: impl FnMut(u64),
) -> Result<Analysis> {
    if let Some(tags) = beside.tags.filter(|tags| tags.of_sentence.len() != data.len()) {
        return Err(Error::Tags { tags: tags.of_sentence.len(), sentences: data.len() });
    }
    let mut study = Study::new(model, (data, codes), options, beside.tags, pairs_read(model, data)?);
    let skipped = for_each_batch(model, data, beside.untrained, |batch, gates| {
        study.add(batch, gates);
        progress(study.sentences());
    })?;
    Ok(study.finish(model, skipped))
}

#[cfg(test)]
mod tests;
