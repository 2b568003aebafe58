//! The pass over a data set, batch by batch: who led, with which words, and a few sentences whole.

use mae_data::{EOS, PackedBatch, ParallelDataset, Segmentation, Vocab, segmentation};
use mae_model::Translator;
use mae_model::config::CrossGate;

use super::collapse::{Sharing, Verdict, entropy_of, experts_in_use};
use super::pmi::{Together, Words};
use super::tally::Tally;
use super::{Analysis, AttentionReport, Kind, MeanEntropy, Options, Rows, Sentence};
use crate::gates::BatchGates;

/// One attention while the data set is read.
struct Gathered {
    attention: String,
    kind: Kind,
    rows: Rows,
    tally: Tally,
    together: Together,
}

/// The analysis while the data set is read.
pub(super) struct Study<'a> {
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
    /// Nothing read yet.
    pub(super) fn new(
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

    /// Adds the gates of a batch.
    pub(super) fn add(&mut self, batch: &PackedBatch, gates: &[BatchGates]) {
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

    /// Sentence pairs so far.
    pub(super) fn sentences(&self) -> u64 {
        self.sentences
    }

    /// What was found.
    pub(super) fn finish(self, model: &Translator, skipped: u64) -> Analysis {
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
