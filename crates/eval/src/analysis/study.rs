//! The pass over sentence pairs, batch by batch: leading experts, their words, and a few whole sentences.

use mae_data::{EOS, PackedBatch, ParallelDataset, Segmentation, Vocab, segmentation};
use mae_model::Translator;
use mae_model::config::CrossGate;

use super::gathered::{Gated, Gathered, conclude, rounded};
use super::pmi::Words;
use super::tags::Tags;
use super::{Analysis, Kind, Options, Rows, Sentence};
use crate::gates::BatchGates;

/// The analysis while the data set is read.
pub(super) struct Study<'a> {
    data: &'a ParallelDataset,
    codes: Option<&'a Segmentation>,
    options: Options,
    tags: Option<&'a Tags>,
    matrix: Vec<f32>,
    cross_reads_source: bool,
    /// Sentence pairs that will be read, and the number of those kept.
    of: u64,
    kept: u64,
    source_words: Words,
    target_words: Words,
    attentions: Vec<Gathered>,
    examples: Vec<Sentence>,
    sentences: u64,
}

impl<'a> Study<'a> {
    /// Nothing read yet of `of` sentence pairs.
    pub(super) fn new(
        model: &Translator,
        (data, codes): (&'a ParallelDataset, Option<&'a Segmentation>),
        options: Options,
        tags: Option<&'a Tags>,
        of: u64,
    ) -> Self {
        let config = model.config();
        Self {
            data,
            codes,
            options,
            tags,
            matrix: Gated::of(config).matrix(),
            cross_reads_source: config.mixture.cross_gate == CrossGate::Source,
            of,
            kept: of.min(options.sentences as u64),
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
                self.attentions.push(Gathered::new(gate, &self.matrix, self.tags));
            }
            let reads_source = self.reads_source(self.attentions[i].kind);
            let words = if reads_source { &sources } else { &targets };
            let tag = |b: usize| self.tags.map(|tags| tags.of_sentence[batch.ids[b] as usize]);
            let Gathered { gates: seen, untrained, .. } = &mut self.attentions[i];
            let both = std::iter::once((seen, gate.rows().collect::<Vec<_>>()));
            let both = both.chain(untrained.as_mut().map(|seen| (seen, gate.untrained_rows().collect())));
            for (seen, rows) in both {
                for (b, words) in words.iter().enumerate() {
                    let of_sentence = gate.rows_of(batch, b);
                    let leaders: Vec<usize> = of_sentence.map(|row| seen.add(rows[row], tag(b))).collect();
                    for &(word, place) in words {
                        let place = if gate.unit == Rows::Sentences { 0 } else { place };
                        seen.together.add(word, leaders[place]);
                    }
                }
            }
        }
        for b in 0..batch.sentences() {
            if !gates.is_empty() && is_kept(self.sentences, self.kept, self.of) {
                self.examples.push(Sentence {
                    number: u64::from(batch.ids[b]) + 1,
                    source: pieces(&self.data.src_vocab, batch.src_sentence(b)),
                    target: pieces(&self.data.tgt_vocab, batch.tgt_sentence(b)),
                    log_probs: Vec::new(),
                    gates: gates.iter().map(|gate| rows_of(gate, batch, b)).collect(),
                });
            }
            self.sentences += 1;
        }
    }

    /// Returns whether the gates of these attentions read the source.
    fn reads_source(&self, kind: Kind) -> bool {
        kind == Kind::Encoder || (kind == Kind::Cross && self.cross_reads_source)
    }

    /// Sentence pairs so far.
    pub(super) fn sentences(&self) -> u64 {
        self.sentences
    }

    /// Results.
    pub(super) fn finish(self, model: &Translator, skipped: u64) -> Analysis {
        let report = |gathered: &Gathered| {
            let part = match gathered.kind {
                Kind::Encoder => "encoder",
                Kind::Decoder => "decoder",
                Kind::Cross => "cross",
            };
            let words =
                if self.reads_source(gathered.kind) { &self.source_words } else { &self.target_words };
            gathered.report(part, words, self.options)
        };
        let reports = self.attentions.iter().map(report).collect();
        let found = conclude(&Gated::of(model.config()), reports, self.examples, self.options);
        let tags = self.tags.map(|tags| tags.names.clone());
        Analysis { sentences: self.sentences, skipped, tags, ..found }
    }
}

/// Returns whether number `i` (from 0) is among the `kept`, evenly spread, of `of`: the first, and each that
/// begins another `kept`th part.
fn is_kept(i: u64, kept: u64, of: u64) -> bool {
    i * kept % of < kept
}

fn pieces(vocab: &Vocab, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| vocab.symbol(id).to_owned()).collect()
}

/// The gates of the batch's sentence `b`, to three decimals.
fn rows_of(gate: &BatchGates, batch: &PackedBatch, b: usize) -> Vec<Vec<f32>> {
    gate.rows_of(batch, b).map(|row| rounded(gate.row(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for_are_kept_evenly_spread() {
        for (kept, of) in [(0, 7), (1, 7), (3, 7), (7, 7), (100, 150), (100, 199), (100, 6_750)] {
            let numbers: Vec<u64> = (0..of).filter(|&i| is_kept(i, kept, of)).collect();
            assert_eq!(numbers.len() as u64, kept, "of {of}");
            assert_eq!(numbers.first(), (kept > 0).then_some(&0));
            let apart = numbers.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(apart.into_iter().all(|apart| [of / kept, of.div_ceil(kept)].contains(&apart)));
        }
    }
}
