//! Batches of like lengths, with results in the order of the input.

use std::collections::VecDeque;

use mae_data::Sentences;
use mae_data::sampler::{BatchSampler, Order, SamplerOptions, TooLong};
use mae_engine::Device;

use crate::error::Result;

/// Sentences that are sorted by length together; their results are handed over before the next ones are begun.
const WINDOW: usize = 4096;

/// Limits of a batch. Results do not depend on them; speed and memory do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Tokens of a side that are encoded together at most (4096); a longer sentence is encoded alone.
    pub max_tokens: u32,
    /// Sentences that are worked on together at most (no limit).
    pub max_sentences: Option<u32>,
    /// Hypotheses that are extended together at most (2560; on a CPU never above 640): beyond that a step only
    /// takes longer, and the cache grows. There are never more than `max_tokens` of them.
    pub max_rows: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { max_tokens: 4096, max_sentences: None, max_rows: 2560 }
    }
}

/// Limits of one lane of a running batch.
pub(crate) struct LaneLimits {
    /// Hypotheses at a time.
    pub(crate) rows: usize,
    /// Source tokens that are encoded together.
    pub(crate) tokens: usize,
}

/// Rows of a step on a CPU at most: more make it slower, as the caches of the processor are too small.
const CPU_ROWS: usize = 640;

impl BatchLimits {
    /// Limits with a small cache, for a device whose memory also holds a training run.
    pub fn beside_training() -> Self {
        Self { max_rows: 640, ..Self::default() }
    }

    /// Limits of each of `lanes` lanes.
    pub(crate) fn of_lane(&self, lanes: usize, device: &Device) -> LaneLimits {
        let most = if device.is_gpu() { usize::MAX } else { CPU_ROWS };
        let rows = self.max_rows.min(self.max_tokens as usize).min(most);
        LaneLimits { rows: (rows / lanes).max(1), tokens: self.max_tokens as usize }
    }

    /// Sentences at most, with `rows` hypotheses each.
    fn sentences(&self, rows: usize) -> u32 {
        let by_rows = ((self.max_tokens as usize).min(self.max_rows) / rows.max(1)).max(1) as u32;
        self.max_sentences.map_or(by_rows, |most| most.min(by_rows))
    }
}

/// Sentences to work on.
pub(crate) struct Work<'a> {
    /// Number of sentences.
    pub(crate) count: usize,
    /// Source and target length of a sentence; `None` for one that is left out.
    pub(crate) length: &'a dyn Fn(usize) -> Option<(u32, u32)>,
    /// Limits of a batch.
    pub(crate) limits: BatchLimits,
    /// Hypotheses per sentence.
    pub(crate) rows: usize,
}

/// Runs `find` over batches of sentences, and then `each` over the sentences in order, with what was found
/// for them; `None` for those left out. `progress` gets the number of sentences of each finished batch.
pub(crate) fn in_order<T, E: From<crate::Error>>(
    work: &Work<'_>,
    progress: &mut dyn FnMut(usize),
    mut find: impl FnMut(&[u32]) -> Result<Vec<T>>,
    mut each: impl FnMut(usize, Option<T>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    for first in (0..work.count).step_by(WINDOW) {
        let window = first..work.count.min(first + WINDOW);
        let mut results: Vec<Option<T>> = window.clone().map(|_| None).collect();
        for batch in work.batches(window.clone())? {
            for (&id, result) in batch.iter().zip(find(&batch)?) {
                results[id as usize - first] = Some(result);
            }
            progress(batch.len());
        }
        for (i, result) in window.zip(results) {
            each(i, result)?;
        }
    }
    Ok(())
}

impl Work<'_> {
    /// The sentences of a window that are not left out, longest first, cut into batches.
    fn batches(&self, window: std::ops::Range<usize>) -> Result<Vec<Vec<u32>>> {
        let used = window.filter_map(|i| (self.length)(i).map(|length| (i as u32, length)));
        let (used, lengths): (Vec<u32>, Vec<(u32, u32)>) = used.unzip();
        let longest = lengths.iter().map(|(src, tgt)| *src.max(tgt)).max().unwrap_or(1);
        let options = SamplerOptions {
            max_tokens: self.limits.max_tokens.max(longest),
            max_sentences: Some(self.limits.sentences(self.rows)),
            max_positions: None,
            too_long: TooLong::Error,
            seed: 0,
        };
        let order = BatchSampler::new(&lengths, options)?.ordered(Order::LongestFirst);
        Ok(order.into_iter().map(|batch| batch.into_iter().map(|i| used[i as usize]).collect()).collect())
    }
}

/// The sentences of windows one after the other, the longest of a window first.
pub(crate) struct LongestFirst<'a> {
    sources: &'a Sentences,
    /// Sentences of the present window that are left, the next one last.
    window: Vec<usize>,
    /// First sentence of the next window.
    next: usize,
}

impl<'a> LongestFirst<'a> {
    pub(crate) fn new(sources: &'a Sentences) -> Self {
        Self { sources, window: Vec::new(), next: 0 }
    }
}

impl Iterator for LongestFirst<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.window.is_empty() {
            let end = self.sources.len().min(self.next + WINDOW);
            self.window = (self.next..end).rev().collect();
            self.window.sort_by_key(|&i| self.sources.size(i));
            self.next = end;
        }
        self.window.pop()
    }
}

/// Results that are handed over in the order of the input, whatever order they come in.
pub(crate) struct InOrder<T> {
    given: usize,
    results: VecDeque<Option<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { given: 0, results: VecDeque::new() }
    }
}

impl<T> InOrder<T> {
    /// Takes the results of some sentences, and hands over what can be.
    pub(crate) fn take<E>(
        &mut self,
        found: Vec<(usize, T)>,
        progress: &mut dyn FnMut(usize),
        each: &mut impl FnMut(usize, T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        progress(found.len());
        found.into_iter().for_each(|(i, result)| self.put(i, result));
        self.give(each)
    }

    /// Takes the result of sentence `i`.
    fn put(&mut self, i: usize, result: T) {
        let at = i - self.given;
        if at >= self.results.len() {
            self.results.resize_with(at + 1, || None);
        }
        self.results[at] = Some(result);
    }

    /// Hands over the results up to the first that is missing.
    fn give<E>(
        &mut self,
        each: &mut impl FnMut(usize, T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        while let Some(result) = self.results.front_mut().and_then(Option::take) {
            self.results.pop_front();
            self.given += 1;
            each(self.given - 1, result)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentence i has i % 7 tokens; those without any are left out.
    fn run(limits: BatchLimits, rows: usize) -> (Vec<usize>, Vec<Option<u32>>) {
        let length = |i: usize| (!i.is_multiple_of(7)).then_some(((i % 7) as u32, 0));
        let work = Work { count: 50, length: &length, limits, rows };
        let (mut sizes, mut results) = (Vec::new(), Vec::new());
        let find = |ids: &[u32]| Ok(ids.iter().map(|id| 10 * id).collect());
        let done: Result<()> = in_order(&work, &mut |size| sizes.push(size), find, |i, found| {
            assert_eq!(i, results.len(), "in order");
            results.push(found);
            Ok(())
        });
        done.unwrap();
        (sizes, results)
    }

    #[test]
    fn results_are_in_order_whatever_the_limits() {
        let want: Vec<Option<u32>> = (0..50).map(|i| (i % 7 > 0).then_some(10 * i)).collect();
        let plain = BatchLimits::default();
        let cases = [
            (plain, 1, 42),
            (BatchLimits { max_sentences: Some(5), ..plain }, 1, 5),
            (BatchLimits { max_rows: 12, ..plain }, 4, 3),
            (BatchLimits { max_tokens: 9, ..plain }, 3, 3),
            (BatchLimits { max_tokens: 1, max_rows: 1, ..plain }, 9, 1),
        ];
        for (limits, rows, largest) in cases {
            let (sizes, results) = run(limits, rows);
            assert_eq!(results, want, "{limits:?}");
            assert_eq!(sizes.iter().sum::<usize>(), 42);
            assert_eq!(sizes.iter().max(), Some(&largest), "{limits:?}");
        }
    }
}
