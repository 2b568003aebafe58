//! Log-probabilities of a text's tokens by a language model, and perplexities over tokens, words, characters
//! and bytes.

use std::ops::Range;
use std::sync::Arc;

use mae_data::sampler::Order;
use mae_data::{BatchSampler, Blocks, SamplerOptions, Segmentation, TextDataset, UNK};
use mae_engine::{Params, Tape};
use mae_model::attention::Pass;
use mae_model::lm::{LmBatch, Scorer};
use mae_model::{ExpertMode, LanguageModel, Model, Probe};
use mae_translate::lm_text;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::gates::BatchGates;

/// Computes ln p of every token of a text, end marks counted, in order. Each block is read from its context
/// on, and its new tokens are scored. `progress` gets the number of tokens done. Fails where a probability is
/// not a number.
///
/// # Panics
///
/// With [`ExpertMode::Sample`]: experts are drawn in training only.
pub fn log_probs(
    model: &LanguageModel,
    blocks: &Blocks,
    max_tokens: u32,
    mode: &ExpertMode,
    mut progress: impl FnMut(u64),
) -> Result<Vec<f32>> {
    let largest = max_tokens.max(longest_block(blocks));
    let mut scorer = Scorer::new(model, mode, largest as usize);
    let mut found = Vec::with_capacity(blocks.tokens() as usize);
    for ids in batches(model, blocks, largest)? {
        let contexts: Vec<usize> = ids.iter().map(|&id| blocks.context(id as usize)).collect();
        let scores = scorer.log_probs(&blocks.pack(&ids), &contexts)?;
        if scores.iter().any(|p| p.is_nan()) {
            return Err(mae_translate::Error::NotFinite { unit: "block", number: ids[0] as usize }.into());
        }
        found.extend(scores);
        progress(found.len() as u64);
    }
    Ok(found)
}

/// The blocks of a text in order, some at a time.
fn batches(model: &LanguageModel, blocks: &Blocks, max_tokens: u32) -> Result<Vec<Vec<u32>>> {
    let options = SamplerOptions {
        max_tokens,
        max_positions: Some((0, model.config().max_positions as u32)),
        ..SamplerOptions::default()
    };
    Ok(BatchSampler::new(&blocks.lengths(), options)?.ordered(Order::Given))
}

fn longest_block(blocks: &Blocks) -> u32 {
    blocks.lengths().iter().map(|&(_, tokens)| tokens).max().unwrap_or(0)
}

/// A batch of blocks that a model has read.
pub(crate) struct Read<'a> {
    /// Rows of each block that are scored: all but its context.
    scored: Vec<Range<usize>>,
    /// The tokens to predict, one per row.
    pub(crate) tokens: &'a [u32],
    /// ln p of each.
    pub(crate) log_probs: Vec<f32>,
    probe: Probe,
}

impl Read<'_> {
    /// The rows that are scored. All batches together score every token of a text once, in order.
    pub(crate) fn scored(&self) -> impl Iterator<Item = usize> + '_ {
        self.scored.iter().flat_map(Clone::clone)
    }

    /// The gates of all rows, by attention; none for systems without gates.
    pub(crate) fn gates(&self) -> Vec<BatchGates> {
        BatchGates::noted(&self.probe)
    }
}

/// Calls `see` with the batches of a text as the model read them, with the mixture of all experts; beside
/// its gates `untrained` ones that read the same inputs.
pub(crate) fn for_each_batch(
    model: &LanguageModel,
    blocks: &Blocks,
    max_tokens: u32,
    untrained: Option<&Arc<Params>>,
    mut see: impl FnMut(&Read<'_>),
) -> Result<()> {
    let device = model.params().device();
    for ids in batches(model, blocks, max_tokens.max(longest_block(blocks)))? {
        let packed = blocks.pack(&ids);
        model.check_ids(&packed)?;
        let batch = LmBatch::new(device, model.bands(), &packed);
        let mut tape = Tape::evaluation(model.params());
        let mut probe = Probe { untrained: untrained.cloned(), ..Probe::default() };
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) };
        let log_probs = model.loss(&mut pass, &batch, 1.0).log_probs.to_host();
        let fresh =
            |(&id, rows): (&u32, &[u32])| rows[0] as usize + blocks.context(id as usize)..rows[1] as usize;
        let scored = ids.iter().zip(packed.tgt_starts.windows(2)).map(fresh).collect();
        see(&Read { scored, tokens: &packed.tgt, log_probs, probe });
        // After what reads gates from the device, too.
        device.check()?;
    }
    Ok(())
}

/// Consecutive lines of a text: their length, ends of lines counted, and their probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Tokens of the model.
    pub tokens: u64,
    /// −ln p of all of them.
    pub nll_nats: f64,
}

/// Cuts a text, whose lines have `lengths` tokens and whose tokens have these `log_probs`, into stretches of
/// whole lines and at least `min_tokens` tokens each; what is left at the end belongs to the last one. All
/// models that read one text with one dictionary get the same stretches.
pub fn stretches(
    lengths: impl IntoIterator<Item = usize>,
    log_probs: &[f32],
    min_tokens: u64,
) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut rest = log_probs;
    for length in lengths {
        let (line, after) = rest.split_at(length);
        rest = after;
        let tokens = length as u64;
        let nll_nats = -line.iter().map(|&p| f64::from(p)).sum::<f64>();
        match found.last_mut().filter(|last| last.tokens < min_tokens) {
            None => found.push(Stretch { tokens, nll_nats }),
            Some(last) => {
                *last = Stretch { tokens: last.tokens + tokens, nll_nats: last.nll_nats + nll_nats }
            }
        }
    }
    if let [.., before, last] = &mut found[..]
        && last.tokens < min_tokens
    {
        before.tokens += last.tokens;
        before.nll_nats += last.nll_nats;
        found.pop();
    }
    found
}

/// Length of a text in several units, and its probability. The end of a line counts as one of each unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextMeasure {
    /// Lines.
    pub lines: u64,
    /// Tokens of the model.
    pub tokens: u64,
    /// Tokens that the dictionary does not have.
    pub unknown: u64,
    /// Words: parts between blanks when pieces are joined.
    pub words: u64,
    /// Characters of the text with pieces joined; an unknown token is `<unk>`.
    pub characters: u64,
    /// Its bytes in UTF-8.
    pub bytes: u64,
    /// −ln p of the whole text.
    pub nll_nats: f64,
}

impl TextMeasure {
    /// Of a text whose tokens have these `log_probs`; `codes` made the pieces.
    pub fn of(data: &TextDataset, codes: Option<&Segmentation>, log_probs: &[f32]) -> Self {
        let nll_nats = -log_probs.iter().map(|&p| f64::from(p)).sum::<f64>();
        let mut measure = Self { nll_nats, ..Self::default() };
        for i in 0..data.lines.len() {
            let ids = data.lines.get(i);
            let line = lm_text(&data.vocab, codes, &ids);
            measure.lines += 1;
            measure.tokens += ids.len() as u64;
            measure.unknown += ids.iter().filter(|&&id| id == UNK).count() as u64;
            measure.words += line.split_whitespace().count() as u64 + 1;
            measure.characters += line.chars().count() as u64 + 1;
            measure.bytes += line.len() as u64 + 1;
        }
        measure
    }

    /// With characters and bytes counted in the text itself, where `of` sees `<unk>` for an unknown word.
    /// Blanks count as there: one between words, none at the ends.
    pub fn counted_in(mut self, lines: &[String]) -> Self {
        (self.characters, self.bytes) = (0, 0);
        for line in lines {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            self.characters += line.chars().count() as u64 + 1;
            self.bytes += line.len() as u64 + 1;
        }
        self
    }

    /// −log₂ p per unit, of `count` units.
    pub fn bits_per(&self, count: u64) -> f64 {
        self.nll_nats / std::f64::consts::LN_2 / count.max(1) as f64
    }

    /// Perplexity per unit: 2 to the power of the bits.
    pub fn perplexity_per(&self, count: u64) -> f64 {
        self.bits_per(count).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_whole_lines_and_lose_nothing() {
        let log_probs = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0];
        let stretch = |tokens, nll_nats| Stretch { tokens, nll_nats };
        // Lines of 1, 2, 3 and 1 tokens: the last one is too short to stand alone.
        let found = stretches([1, 2, 3, 1], &log_probs, 2);
        assert_eq!(found, [stretch(3, 6.0), stretch(4, 22.0)]);
        assert_eq!(stretches([1, 2, 3, 1], &log_probs, 100), [stretch(7, 28.0)]);
        assert_eq!(stretches([1, 2, 3, 1], &log_probs, 1).len(), 4);
        assert_eq!(stretches([], &[], 2), []);
    }
}
