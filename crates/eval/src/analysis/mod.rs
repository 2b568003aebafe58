//! The paper's studies of a trained mixture (its section 5.1 and appendix): entropy, attribution, head weights, PMI, one-expert
//! evaluation.
//!
//! | room | what |
//! |---|---|
//! | [`tally`] | sums over the gates of one attention: entropy, who leads, mean gate, head weights |
//! | [`pmi`] | which words go with which expert |
//! | [`collapse`] | whether the rich get richer, in words |
//! | [`one_expert`] | BLEU with one expert per attention instead of the mixture |
//!
//! All but the last come from one pass over a data set with its reference translations. Sums are kept, not gates, so memory
//! does not grow with the data; a few sentences are kept whole for people to look at.

pub mod collapse;
pub mod one_expert;
pub mod pmi;
pub mod tally;

use mae_data::{EOS, PackedBatch, ParallelDataset, Segmentation, Vocab, segmentation};
use mae_model::Translator;
use mae_model::config::CrossGate;
use mae_train::Result;
use serde::Serialize;

use crate::gates::{BatchGates, for_each_batch};
use collapse::{Sharing, Verdict, entropy_of, experts_in_use};
use pmi::{Association, Together, Words};
use tally::{HeadWeight, Tally};

/// What to keep.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Words that come less often are left out of the PMI.
    pub min_count: u64,
    /// Words per expert.
    pub top_words: usize,
    /// Sentences kept whole.
    pub sentences: usize,
}

/// Which attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Encoder self-attention.
    Encoder,
    /// Decoder self-attention; the only one of a language model.
    Decoder,
    /// Decoder attention to the source.
    Cross,
}

/// What has a gate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Each sentence.
    Sentences,
    /// Each position of the target.
    Positions,
}

/// What one attention's gates do.
#[derive(Clone, Debug, Serialize)]
pub struct AttentionReport {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// The same for people: `encoder 1`, layers from 1.
    pub label: String,
    /// Which attention of its layer.
    pub kind: Kind,
    /// The layer, from 1.
    pub layer: usize,
    /// What the gates are of.
    pub rows: Rows,
    /// How many of them.
    pub count: u64,
    /// Mean entropy of the gates, in nats.
    pub entropy: f64,
    /// Entropy of the mean gate less mean entropy of the gates, in nats: what an input tells about its expert.
    pub information: f64,
    /// For each expert, the share of rows whose gate it leads.
    pub leads: Vec<f64>,
    /// For each expert, its mean gate.
    pub mean_gate: Vec<f64>,
    /// exp(entropy of the mean gate): E if all experts are used alike, 1 if one takes everything.
    pub experts_in_use: f64,
    /// How the experts share the input.
    pub sharing: Sharing,
    /// The weight of each head.
    pub head_weights: Vec<HeadWeight>,
    /// For each expert, the words that go with it.
    pub words: Vec<Vec<Association>>,
}

/// Mean entropies over attentions, in nats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeanEntropy {
    /// Over encoder layers: what the paper reports.
    pub encoder: Option<f64>,
    /// Over self-attentions of the decoder.
    pub decoder: Option<f64>,
    /// Over attentions to the source.
    pub cross: Option<f64>,
    /// Over all of them.
    pub all: Option<f64>,
}

/// A sentence with all its gates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sentence {
    /// Its place in the data set, from 1.
    pub number: u64,
    /// Source pieces.
    pub source: Vec<String>,
    /// Pieces of the reference translation, with its end mark.
    pub target: Vec<String>,
    /// For each attention, in order, its gates to three decimals: one row, or one for each piece of the target.
    pub gates: Vec<Vec<Vec<f32>>>,
}

/// What was found in a data set.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// E.
    pub experts: usize,
    /// H.
    pub heads: usize,
    /// The heads that each expert leaves out, from 0.
    pub left_out: Vec<Vec<usize>>,
    /// ln E: the entropy of a gate without favourites, in nats.
    pub uniform_entropy: f64,
    /// Sentence pairs.
    pub sentences: u64,
    /// Pairs left out because they are longer than the model's positions.
    pub skipped: u64,
    /// Words that come less often are left out of the PMI.
    pub min_count: u64,
    /// Mean entropies.
    pub entropy: MeanEntropy,
    /// Whether the rich get richer.
    pub collapse: Verdict,
    /// By attention, in the order of the model.
    pub attentions: Vec<AttentionReport>,
    /// A few sentences, evenly spread over the data set.
    pub examples: Vec<Sentence>,
}

/// Analyses the gates of a data set; `progress` is told the number of sentences done. Systems without gates have no
/// attentions to report.
pub fn analyse(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    options: Options,
    mut progress: impl FnMut(u64),
) -> Result<Analysis> {
    let mut study = Study::new(model, data, codes, options);
    let skipped = for_each_batch(model, data, |batch, gates| {
        study.add(batch, gates);
        progress(study.sentences);
    })?;
    Ok(study.finish(model, skipped))
}

/// One attention while the data set is read.
struct Gathered {
    attention: String,
    kind: Kind,
    rows: Rows,
    tally: Tally,
    together: Together,
}

/// The analysis while the data set is read.
struct Study<'a> {
    data: &'a ParallelDataset,
    codes: Option<&'a Segmentation>,
    options: Options,
    matrix: Vec<f32>,
    cross_reads_source: bool,
    /// Distance between sentences that are kept.
    stride: usize,
    source_words: Words,
    target_words: Words,
    attentions: Vec<Gathered>,
    examples: Vec<Sentence>,
    sentences: u64,
}

impl<'a> Study<'a> {
    fn new(
        model: &Translator,
        data: &'a ParallelDataset,
        codes: Option<&'a Segmentation>,
        options: Options,
    ) -> Self {
        let config = model.config();
        Self {
            data,
            codes,
            options,
            matrix: config.experts().matrix(),
            cross_reads_source: config.mixture.cross_gate == CrossGate::Source,
            stride: data.len().div_ceil(options.sentences.max(1)).max(1),
            source_words: Words::default(),
            target_words: Words::default(),
            attentions: Vec::new(),
            examples: Vec::new(),
            sentences: 0,
        }
    }

    fn add(&mut self, batch: &PackedBatch, gates: &[BatchGates]) {
        let numbered = |words: &mut Words, vocab: &Vocab, ids: &[u32]| -> Vec<(u32, usize)> {
            let pieces: Vec<&str> = ids.iter().filter(|&&id| id != EOS).map(|&id| vocab.symbol(id)).collect();
            let found = segmentation::words(self.codes, &pieces);
            found.iter().map(|(word, place)| (words.number(word), *place)).collect()
        };
        let sentences = 0..batch.sentences();
        let sources: Vec<_> = sentences
            .clone()
            .map(|b| numbered(&mut self.source_words, &self.data.src_vocab, batch.src_sentence(b)))
            .collect();
        let targets: Vec<_> = sentences
            .map(|b| numbered(&mut self.target_words, &self.data.tgt_vocab, batch.tgt_sentence(b)))
            .collect();
        for (i, gate) in gates.iter().enumerate() {
            if self.attentions.len() == i {
                self.attentions.push(Gathered {
                    attention: gate.attention.clone(),
                    kind: kind_of(&gate.attention),
                    rows: if gate.per_sentence { Rows::Sentences } else { Rows::Positions },
                    tally: Tally::new(&self.matrix, gate.experts),
                    together: Together::new(gate.experts),
                });
            }
            let reads_source = self.reads_source(self.attentions[i].kind);
            let Gathered { tally, together, .. } = &mut self.attentions[i];
            let leaders: Vec<usize> = gate.rows().map(|row| tally.add(row)).collect();
            for b in 0..batch.sentences() {
                let words = if reads_source { &sources[b] } else { &targets[b] };
                for &(word, place) in words {
                    let row = if gate.per_sentence { b } else { batch.tgt_starts[b] as usize + place };
                    together.add(word, leaders[row]);
                }
            }
        }
        self.sentences += batch.sentences() as u64;
        let kept = if gates.is_empty() { 0 } else { self.options.sentences };
        for b in (0..batch.sentences()).filter(|&b| (batch.ids[b] as usize).is_multiple_of(self.stride)) {
            if self.examples.len() < kept {
                self.examples.push(Sentence {
                    number: u64::from(batch.ids[b]) + 1,
                    source: pieces(&self.data.src_vocab, batch.src_sentence(b)),
                    target: pieces(&self.data.tgt_vocab, batch.tgt_sentence(b)),
                    gates: gates.iter().map(|gate| rows_of(gate, batch, b)).collect(),
                });
            }
        }
    }

    /// Whether the gates of these attentions read the source.
    fn reads_source(&self, kind: Kind) -> bool {
        kind == Kind::Encoder || (kind == Kind::Cross && self.cross_reads_source)
    }

    fn finish(self, model: &Translator, skipped: u64) -> Analysis {
        let experts = model.config().experts();
        let reports: Vec<AttentionReport> =
            self.attentions.iter().map(|gathered| self.report(gathered)).collect();
        let mean = |of: &dyn Fn(&AttentionReport) -> bool| {
            let entropies: Vec<f64> = reports.iter().filter(|r| of(r)).map(|r| r.entropy).collect();
            (!entropies.is_empty()).then(|| entropies.iter().sum::<f64>() / entropies.len() as f64)
        };
        let entropy = MeanEntropy {
            encoder: mean(&|report| report.kind == Kind::Encoder),
            decoder: mean(&|report| report.kind == Kind::Decoder),
            cross: mean(&|report| report.kind == Kind::Cross),
            all: mean(&|_| true),
        };
        let judged: Vec<(&str, Sharing)> =
            reports.iter().map(|report| (report.label.as_str(), report.sharing)).collect();
        Analysis {
            experts: experts.count(),
            heads: experts.heads,
            left_out: experts.left_out(),
            uniform_entropy: (experts.count() as f64).ln(),
            sentences: self.sentences,
            skipped,
            min_count: self.options.min_count,
            entropy,
            collapse: Verdict::of(&judged),
            attentions: reports,
            examples: self.examples,
        }
    }

    fn report(&self, gathered: &Gathered) -> AttentionReport {
        let Gathered { attention, kind, rows, tally, together } = gathered;
        let layer =
            attention.split('.').nth(2).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0) + 1;
        let kind_name = match kind {
            Kind::Encoder => "encoder",
            Kind::Decoder => "decoder",
            Kind::Cross => "cross",
        };
        let words = if self.reads_source(*kind) { &self.source_words } else { &self.target_words };
        let (entropy, leads, mean_gate) = (tally.entropy(), tally.leads(), tally.mean_gate());
        AttentionReport {
            attention: attention.clone(),
            label: format!("{kind_name} {layer}"),
            kind: *kind,
            layer,
            rows: *rows,
            count: tally.rows(),
            entropy,
            // Below 0 by rounding only.
            information: (entropy_of(&mean_gate) - entropy).max(0.0),
            sharing: Sharing::of(entropy, &leads, &mean_gate),
            experts_in_use: experts_in_use(&mean_gate),
            leads,
            mean_gate,
            head_weights: tally.head_weights(),
            words: together.associations(words, self.options.min_count, self.options.top_words),
        }
    }
}

fn kind_of(attention: &str) -> Kind {
    if attention.starts_with("encoder.") {
        Kind::Encoder
    } else if attention.ends_with(".encoder_attn") {
        Kind::Cross
    } else {
        Kind::Decoder
    }
}

fn pieces(vocab: &Vocab, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| vocab.symbol(id).to_owned()).collect()
}

/// The gates of the batch's sentence `b`, to three decimals.
fn rows_of(gate: &BatchGates, batch: &PackedBatch, b: usize) -> Vec<Vec<f32>> {
    let (start, end) = if gate.per_sentence {
        (b, b + 1)
    } else {
        (batch.tgt_starts[b] as usize, batch.tgt_starts[b + 1] as usize)
    };
    let rounded = |row: &[f32]| row.iter().map(|g| (g * 1000.0).round() / 1000.0).collect();
    gate.rows().skip(start).take(end - start).map(rounded).collect()
}

#[cfg(test)]
mod tests;
