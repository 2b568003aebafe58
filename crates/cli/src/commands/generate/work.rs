//! Batches of like length, results in the order of the input.

use std::time::Duration;

use anyhow::bail;
use mae_data::PackedBatch;
use mae_data::sampler::{BatchSampler, Order, SamplerOptions, TooLong};

use super::input::Input;
use crate::progress;

/// Sentences that are sorted by length together; their results are written before the next ones are begun.
const WINDOW: usize = 4096;

/// Hypotheses that are extended together at most: beyond that a step only gets longer, and the cache larger.
const MOST_ROWS: usize = 2560;

/// How large a batch may be.
pub struct Limits {
    max_tokens: u32,
    max_sentences: u32,
}

impl Limits {
    /// `max_tokens` bounds the source tokens of a batch and also its hypotheses, `rows` per sentence: those are the
    /// rows of every step of the decoder.
    pub fn new(max_tokens: u32, batch_size: Option<u32>, rows: usize) -> anyhow::Result<Self> {
        if max_tokens == 0 || batch_size == Some(0) {
            bail!("--max-tokens and --batch-size must be at least 1");
        }
        let by_rows = ((max_tokens as usize).min(MOST_ROWS) / rows).max(1) as u32;
        Ok(Self { max_tokens, max_sentences: batch_size.map_or(by_rows, |size| size.min(by_rows)) })
    }
}

/// What a batch holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Batched {
    /// Sources; empty ones are left out, as there is nothing to translate.
    SourcesWithWords,
    /// Sources and targets.
    Pairs,
}

/// Runs `find` over batches of the input (with the places of their sentences in it), then `write` over its sentences in
/// order, with what was found for each; `None` for those left out. `what` names the work in a progress bar.
pub fn in_order<T>(
    input: &Input,
    limits: &Limits,
    what: Option<&str>,
    kind: Batched,
    mut find: impl FnMut(&PackedBatch, &[u32]) -> anyhow::Result<Vec<T>>,
    mut write: impl FnMut(usize, Option<T>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bar =
        what.map_or_else(indicatif::ProgressBar::hidden, |what| progress::bar(input.len() as u64, what));
    for first in (0..input.len()).step_by(WINDOW) {
        let window = first..input.len().min(first + WINDOW);
        let used: Vec<u32> = window
            .clone()
            .filter(|&i| kind == Batched::Pairs || input.data.src.size(i) > 1)
            .map(|i| i as u32)
            .collect();
        let mut results: Vec<Option<T>> = window.clone().map(|_| None).collect();
        for batch in batches(input, limits, kind, &used)? {
            let mut packed = match kind {
                Batched::SourcesWithWords => PackedBatch::from_sources(&input.data.src, &batch),
                Batched::Pairs => PackedBatch::from_pairs(&input.data, &batch),
            };
            packed.ids.iter_mut().for_each(|id| *id += input.first as u32);
            for (&id, result) in batch.iter().zip(find(&packed, &batch)?) {
                results[id as usize - first] = Some(result);
            }
            bar.inc(batch.len() as u64);
        }
        for (i, result) in window.zip(results) {
            write(i, result)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// The sentences `used`, longest first, cut into batches.
fn batches(input: &Input, limits: &Limits, kind: Batched, used: &[u32]) -> anyhow::Result<Vec<Vec<u32>>> {
    let length = |&id: &u32| {
        let target = if kind == Batched::Pairs { input.data.tgt.size(id as usize) } else { 0 };
        (input.data.src.size(id as usize) as u32, target as u32)
    };
    let lengths: Vec<(u32, u32)> = used.iter().map(length).collect();
    let longest = lengths.iter().map(|(src, tgt)| *src.max(tgt)).max().unwrap_or(1);
    let options = SamplerOptions {
        // A sentence that is longer than the budget is a batch of its own.
        max_tokens: limits.max_tokens.max(longest),
        max_sentences: Some(limits.max_sentences),
        max_positions: None,
        too_long: TooLong::Error,
        seed: 0,
    };
    let order = BatchSampler::new(&lengths, options)?.ordered(Order::LongestFirst);
    Ok(order.into_iter().map(|batch| batch.into_iter().map(|i| used[i as usize]).collect()).collect())
}

/// fairseq's closing line on standard error.
pub fn report_speed(done: &str, sentences: usize, tokens: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    let rate = |count: usize| count as f64 / seconds.max(1e-9);
    eprintln!(
        "{done} {sentences} sentences ({tokens} tokens) in {seconds:.1}s ({:.2} sentences/s, {:.2} tokens/s)",
        rate(sentences),
        rate(tokens)
    );
}
