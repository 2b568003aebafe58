//! The pass over a text, batch by batch: leading experts, their words, probabilities of tokens, and a few passages
//! whole.
//!
//! Of each block, the positions that are scored are looked at and its context is not: so every token of the
//! text counts once.

use std::sync::Arc;

use mae_data::{Blocks, BreakMode, EOS, Segmentation, TextDataset, segmentation};
use mae_engine::Params;
use mae_model::LanguageModel;
use serde::Serialize;

use super::gathered::{Gated, Gathered, conclude, rounded, to_thousandths};
use super::pmi::Words;
use super::{Analysis, Options, Sentence};
use crate::Result;
use crate::perplexity::{Read, TextMeasure, for_each_batch};

/// A text, and how a model reads it.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// The text.
    pub data: &'a TextDataset,
    /// Segmentation that made its pieces.
    pub codes: Option<&'a Segmentation>,
    /// Its tokens in blocks.
    pub blocks: &'a Blocks,
    /// Tokens at most in a batch.
    pub max_tokens: u32,
}

/// Settings of the reading of a text, and its probability under the mixture.
#[derive(Clone, Debug, Serialize)]
pub struct TextRead {
    /// Length and log-probability of the text.
    #[serde(flatten)]
    pub measure: TextMeasure,
    /// Tokens of a block, its context counted.
    pub tokens_per_sample: usize,
    /// Tokens of a block that were read but not looked at.
    pub context_window: usize,
    /// Ends of blocks.
    pub break_mode: BreakMode,
    /// Perplexity per token of the model.
    pub ppl_per_token: f64,
    /// Perplexity per word, pieces joined.
    pub ppl_per_word: f64,
}

/// Tokens of a passage that is kept whole.
const PASSAGE: u64 = 64;
/// Gates that are kept at most, each a number of some six bytes in a page: where layers and experts are many,
/// passages are few.
const KEPT_GATES: u64 = 1_000_000;

/// Analyses the gates of a language model on a text, and beside them `untrained` ones; `progress` gets the number of tokens done. Systems without gates
/// have no attentions to report.
pub fn analyse_text(
    model: &LanguageModel,
    text: Text<'_>,
    options: Options,
    untrained: Option<&Arc<Params>>,
    mut progress: impl FnMut(u64),
) -> Result<Analysis> {
    let mut study = TextStudy::new(model, text, options);
    for_each_batch(model, text.blocks, text.max_tokens, untrained, |read| {
        study.add(read);
        progress(study.log_probs.len() as u64);
    })?;
    Ok(study.finish(model))
}

/// The analysis while a text is read.
struct TextStudy<'a> {
    text: Text<'a>,
    options: Options,
    matrix: Vec<f32>,
    stream: WordStream<'a>,
    attentions: Vec<Gathered>,
    /// Possible starts of passages, in tokens; those that lie ahead, the next one last.
    ahead: Vec<u64>,
    passages: Vec<Sentence>,
    log_probs: Vec<f32>,
}

impl<'a> TextStudy<'a> {
    fn new(model: &LanguageModel, text: Text<'a>, options: Options) -> Self {
        let config = model.config();
        let gated = Gated::of(config);
        let gates = PASSAGE * (config.decoder_layers * gated.columns()) as u64;
        let tokens = text.blocks.tokens();
        let room = (KEPT_GATES / gates).max(1).min(tokens.div_ceil(PASSAGE));
        let kept = if config.mixture.system.is_gated() { room.min(options.sentences as u64) } else { 0 };
        Self {
            text,
            options,
            matrix: gated.matrix(),
            stream: WordStream::new(text),
            attentions: Vec::new(),
            ahead: (0..kept).rev().map(|i| i * tokens / kept).collect(),
            passages: Vec::new(),
            log_probs: Vec::with_capacity(tokens as usize),
        }
    }

    fn add(&mut self, read: &Read<'_>) {
        let gates = read.gates();
        if self.attentions.is_empty() {
            self.attentions.extend(gates.iter().map(|gate| Gathered::new(gate, &self.matrix, None)));
        }
        for row in read.scored() {
            let place = self.log_probs.len() as u64;
            let word = self.stream.next_token();
            self.log_probs.push(read.log_probs[row]);
            for (gathered, gate) in self.attentions.iter_mut().zip(&gates) {
                let untrained = gathered.untrained.as_mut().zip(gate.untrained_row(row));
                for (seen, gate) in std::iter::once((&mut gathered.gates, gate.row(row))).chain(untrained) {
                    let leader = seen.add(gate, None);
                    if let Some(word) = word {
                        seen.together.add(word, leader);
                    }
                }
            }
            if self.in_passage(place, word.is_some()) {
                let passage = self.passages.last_mut().expect("one has begun");
                passage.target.push(self.text.data.vocab.symbol(read.tokens[row]).to_owned());
                passage.log_probs.push(to_thousandths(read.log_probs[row]));
                for (kept, gate) in passage.gates.iter_mut().zip(&gates) {
                    kept.push(rounded(gate.row(row)));
                }
            }
        }
    }

    /// Returns whether the token at `place` belongs to a passage. A passage begins with a word, and ends after
    /// so many tokens or where the next may begin.
    fn in_passage(&mut self, place: u64, begins_word: bool) -> bool {
        if self.ahead.last().is_some_and(|&start| start <= place) {
            if begins_word {
                self.ahead.retain(|&start| start > place);
                let (source, target, log_probs) = (Vec::new(), Vec::new(), Vec::new());
                let gates = vec![Vec::new(); self.attentions.len()];
                self.passages.push(Sentence { number: place + 1, source, target, log_probs, gates });
            }
            return begins_word;
        }
        self.passages.last().is_some_and(|passage| place + 1 < passage.number + PASSAGE)
    }

    fn finish(self, model: &LanguageModel) -> Analysis {
        let Text { data, codes, blocks, .. } = self.text;
        let measure = TextMeasure::of(data, codes, &self.log_probs);
        let cut = blocks.options();
        let read = TextRead {
            tokens_per_sample: cut.tokens_per_sample,
            context_window: cut.context_window,
            break_mode: cut.break_mode,
            ppl_per_token: measure.perplexity_per(measure.tokens),
            ppl_per_word: measure.perplexity_per(measure.words),
            measure,
        };
        let report = |gathered: &Gathered| gathered.report("layer", &self.stream.words, self.options);
        let reports = self.attentions.iter().map(report).collect();
        let found = conclude(&Gated::of(model.config()), reports, self.passages, self.options);
        Analysis { sentences: read.measure.lines, text: Some(read), ..found }
    }
}

/// The tokens of a text one after the other, with the words that begin at them. Words are those of lines: where
/// a block ends in the middle of one, it is whole nevertheless.
struct WordStream<'a> {
    text: Text<'a>,
    /// The next line to read.
    line: usize,
    /// For the tokens of the line before, last one first: the word that begins there.
    rest: Vec<Option<u32>>,
    words: Words,
}

impl<'a> WordStream<'a> {
    fn new(text: Text<'a>) -> Self {
        Self { text, line: 0, rest: Vec::new(), words: Words::default() }
    }

    /// Advances to the next token; returns the word that begins with it, if one does.
    fn next_token(&mut self) -> Option<u32> {
        let Text { data, codes, .. } = self.text;
        while self.rest.is_empty() && self.line < data.lines.len() {
            let ids = data.lines.get(self.line);
            self.line += 1;
            self.rest.resize(ids.len(), None);
            let pieces: Vec<&str> =
                ids.iter().filter(|&&id| id != EOS).map(|&id| data.vocab.symbol(id)).collect();
            for (word, place) in segmentation::words(codes, &pieces) {
                // The end mark comes last, so that pieces lie where they lie in the line.
                self.rest[ids.len() - 1 - place] = Some(self.words.number(&word));
            }
        }
        self.rest.pop().flatten()
    }
}

#[cfg(test)]
mod tests {
    use mae_data::vocab::VocabOptions;
    use mae_data::{BlockOptions, Vocab};
    use mae_engine::Device;
    use mae_model::LmConfig;
    use mae_model::config::System;
    use mae_train::TrainConfig;
    use mae_train::validate::development_loss;

    use super::*;
    use crate::gates::leader;

    const ALL: Options = Options { min_count: 1, top_words: 99, sentences: 99 };

    fn data(lines: &[&str]) -> TextDataset {
        let words = ["a", "b@@", "c", "d", "e@@"].map(|word| (word, 1));
        let vocab = Arc::new(Vocab::from_counts(words, VocabOptions::default()));
        TextDataset::from_lines(lines, vocab, None)
    }

    fn blocks(data: &TextDataset, tokens_per_sample: usize, context_window: usize) -> Blocks {
        let options = BlockOptions { tokens_per_sample, context_window, break_mode: BreakMode::None };
        Blocks::new(data.lines.clone(), options).unwrap()
    }

    fn model(data: &TextDataset, layers: usize) -> LanguageModel {
        let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
        (config.decoder_layers, config.decoder_embed_dim, config.decoder_ffn_embed_dim) = (layers, 16, 24);
        (config.decoder_attention_heads, config.max_positions) = (4, 16);
        config.adaptive_softmax_cutoff = Vec::new();
        (config.mixture.system, config.mixture.gate_hidden) = (System::MAE, 8);
        LanguageModel::new(&config, data.vocab.len(), &Device::cpu(), 5).unwrap()
    }

    #[test]
    fn words_begin_where_their_first_piece_is() {
        let data = data(&["a b@@ c", "", "d a e@@"]);
        let blocks = blocks(&data, 2, 0);
        let mut stream = WordStream::new(Text { data: &data, codes: None, blocks: &blocks, max_tokens: 9 });
        let found: Vec<Option<u32>> = (0..10).map(|_| stream.next_token()).collect();
        let [a, bc, d, e] = ["a", "bc", "d", "e"].map(|word| Some(stream.words.number(word)));
        assert_eq!(found, [a, bc, None, None, None, d, a, e, None, None]);
    }

    /// Gates that are the same whatever the batches, words counted with who led them, and every token once.
    #[test]
    fn every_token_counts_once_whatever_the_blocks() {
        let data = data(&["a b@@ c d d", "", "c a e@@ d a", "b@@ c"]);
        let model = model(&data, 2);
        for (tokens_per_sample, context_window) in [(16, 0), (7, 4), (3, 0), (4, 3)] {
            let blocks = blocks(&data, tokens_per_sample, context_window);
            let read = |max_tokens| {
                let text = Text { data: &data, codes: None, blocks: &blocks, max_tokens };
                analyse_text(&model, text, ALL, None, |_| {}).unwrap()
            };
            let (found, again) = (read(1), read(1000));
            let measure = &found.text.as_ref().unwrap().measure;
            assert_eq!((measure.tokens, measure.words, found.sentences), (16, 13, 4));
            assert_eq!(found.examples.len(), 1);
            let passage = &found.examples[0];
            assert_eq!((passage.number, passage.target.len(), passage.log_probs.len()), (1, 16, 16));
            for (l, layer) in found.attentions.iter().enumerate() {
                assert_eq!((layer.label.as_str(), layer.count), (["layer 1", "layer 2"][l], 16));
                assert!((layer.entropy.unwrap() - again.attentions[l].entropy.unwrap()).abs() < 1e-6);
                // The word `a` begins at three places.
                let mut led = [0; 4];
                [0, 8, 11].iter().for_each(|&place: &usize| led[leader(&passage.gates[l][place])] += 1);
                for (e, words) in layer.words.iter().enumerate() {
                    for a in words.iter().filter(|word| word.word == "a") {
                        assert_eq!((a.together, a.count), (led[e], 3));
                    }
                }
            }
            if context_window == 0 {
                let wanted = development_loss(&model, &blocks, &TrainConfig::default()).unwrap();
                assert!((found.entropy.all.unwrap() - wanted.gate_entropy.unwrap()).abs() < 1e-6);
                assert!((found.text.unwrap().ppl_per_token / wanted.ppl - 1.0).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn passages_are_spread_and_bounded() {
        let line = vec!["a b@@ c d"; 50].join(" ");
        let data = data(&[&line, &line]);
        let blocks = blocks(&data, 16, 8);
        let text = Text { data: &data, codes: None, blocks: &blocks, max_tokens: 4096 };
        let numbers = |sentences| -> Vec<(u64, usize)> {
            let found =
                analyse_text(&model(&data, 1), text, Options { sentences, ..ALL }, None, |_| {}).unwrap();
            found.examples.iter().map(|passage| (passage.number, passage.target.len())).collect()
        };
        assert_eq!(numbers(0), []);
        assert_eq!(numbers(2), [(1, 64), (202, 64)], "the 202nd token begins a word, the 201st ends a line");
        // 402 tokens are seven passages of at most 64, which do not overlap.
        let many = numbers(99);
        assert_eq!(many.len(), 7);
        assert!(many.windows(2).all(|two| two[0].0 + two[0].1 as u64 <= two[1].0), "{many:?}");
        let study = TextStudy::new(&model(&data, 900), text, ALL);
        assert_eq!(study.ahead.len(), 4, "five times 64 · 900 · 4 gates would be more than a million");
    }
}
