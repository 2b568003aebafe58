//! Choice of the sentences of each batch.
//!
//! Batches are packed, not padded, so sentences need not be of like length to share one: each epoch shuffles all
//! sentences and cuts the sequence wherever the token budget is full. Three things follow. Batches differ from
//! epoch to epoch (fairseq, which sorts by length, freezes them for the whole run); a batch is a fair sample of
//! the corpus, short and long sentences mixed; and the budget is filled to within one sentence, which keeps
//! matrix shapes constant.
//!
//! The order depends on (seed, epoch) alone, by integer arithmetic only: the same on every machine, and a
//! resumed run needs to remember nothing but the epoch and the number of batches done. That holds for fairseq's
//! frozen batches, too, which [`BatchSampler::freeze`] makes.

use crate::error::{Error, Result};
use crate::frozen;
use crate::lines::Tally;
use crate::options::OptionFault;

/// Policy for pairs that no batch, or no model, can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// Refuse the data.
    #[default]
    Error,
    /// Leave them out, and say how many.
    Skip,
}

/// Limits of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Source tokens at most, and target tokens at most, in a batch.
    pub max_tokens: u32,
    /// Sentences at most in a batch.
    pub max_sentences: Option<u32>,
    /// Longest (source, target) the model takes, `EOS` counted.
    pub max_positions: Option<(u32, u32)>,
    /// Policy for longer pairs.
    pub too_long: TooLong,
    /// Seed of the shuffles.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        let (max_tokens, max_positions, seed) = (4096, Some((1024, 1024)), 1);
        Self { max_tokens, max_sentences: None, max_positions, too_long: TooLong::Error, seed }
    }
}

/// The order of batches that are not shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of the sentences.
    Given,
    /// Longest first: sentences that finish together decode together, and too small a memory shows at once.
    LongestFirst,
}

/// Cuts a dataset into batches.
#[derive(Clone, Debug)]
pub struct BatchSampler {
    lengths: Vec<(u32, u32)>,
    /// The sentences in use, in order.
    used: Vec<u32>,
    skipped: Tally,
    /// Target tokens of those.
    skipped_tokens: u64,
    options: SamplerOptions,
    /// The batches of every epoch, where they are made once.
    frozen: Option<Vec<Vec<u32>>>,
}

/// Largest sizes of a sampler's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBound {
    /// Tokens of all sources, and of all targets.
    pub tokens: (u32, u32),
    /// Tokens of one source, and of one target.
    pub longest: (u32, u32),
}

impl BatchSampler {
    /// A sampler over sentences with these (source, target) lengths, `EOS` counted. For sources alone the
    /// target lengths are 0.
    pub fn new(lengths: &[(u32, u32)], options: SamplerOptions) -> Result<Self> {
        Self::among(lengths, &(0..lengths.len() as u32).collect::<Vec<_>>(), options)
    }

    /// A sampler over a part of the sentences: those with these numbers, which rise.
    pub fn among(lengths: &[(u32, u32)], part: &[u32], options: SamplerOptions) -> Result<Self> {
        let SamplerOptions { max_tokens, max_positions, .. } = options;
        let (max_src, max_tgt) = max_positions.unwrap_or((u32::MAX, u32::MAX));
        let (max_src, max_tgt) = (max_src.min(max_tokens), max_tgt.min(max_tokens));
        if max_tokens == 0 || options.max_sentences == Some(0) {
            return Err(OptionFault::EmptyBatch.into());
        }
        let (mut used, mut skipped) = (Vec::with_capacity(part.len()), Tally::default());
        let mut skipped_tokens = 0;
        for &i in part {
            let (src, tgt) = lengths[i as usize];
            if src <= max_src && tgt <= max_tgt {
                used.push(i);
            } else {
                skipped.add(u64::from(i) + 1);
                skipped_tokens += u64::from(tgt);
            }
        }
        if skipped.count > 0 && options.too_long == TooLong::Error {
            let example = |&line: &u64| {
                let (src, tgt) = lengths[line as usize - 1];
                format!("number {line} ({src} → {tgt} tokens)")
            };
            return Err(Error::TooLong {
                count: skipped.count,
                limits: format!("over {max_src} source or {max_tgt} target tokens"),
                examples: skipped.examples.iter().map(example).collect::<Vec<_>>().join(", "),
            });
        }
        Ok(Self { lengths: lengths.to_vec(), used, skipped, skipped_tokens, options, frozen: None })
    }

    /// Makes fairseq's batches once and for all: from now on an epoch changes their order only. Batches are cut to a
    /// multiple of `multiple` sentences where they have as many.
    pub fn freeze(mut self, multiple: usize) -> Self {
        self.frozen = Some(frozen::batches(&self.lengths, &self.used, &self.options, multiple.max(1)));
        self
    }

    /// Largest sizes of a batch, in any epoch.
    pub fn bound(&self) -> BatchBound {
        let sum = |ids: &[u32]| {
            ids.iter()
                .map(|&i| self.lengths[i as usize])
                .fold((0, 0), |(a, b), (src, tgt)| (a + u64::from(src), b + u64::from(tgt)))
        };
        let larger = |a: (u64, u64), b: (u64, u64)| (a.0.max(b.0), a.1.max(b.1));
        let tokens = match &self.frozen {
            Some(batches) => batches.iter().map(|batch| sum(batch)).fold((0, 0), larger),
            None => {
                let (all, budget) = (sum(&self.used), u64::from(self.options.max_tokens));
                (all.0.min(budget), all.1.min(budget))
            }
        };
        let lengths = self.used.iter().map(|&i| self.lengths[i as usize]);
        let longest = lengths.fold((0, 0), |(a, b), (src, tgt)| (a.max(src), b.max(tgt)));
        BatchBound { tokens: (tokens.0 as u32, tokens.1 as u32), longest }
    }

    /// The pairs left out as too long, with the numbers (from 1) of the first few.
    pub fn skipped(&self) -> &Tally {
        &self.skipped
    }

    /// Target tokens of the pairs left out.
    pub fn skipped_tokens(&self) -> u64 {
        self.skipped_tokens
    }

    /// Target tokens of the pairs in use.
    pub fn target_tokens(&self) -> u64 {
        self.used.iter().map(|&i| u64::from(self.lengths[i as usize].1)).sum()
    }

    /// Number of sentences in use.
    pub fn sentences(&self) -> usize {
        self.used.len()
    }

    /// The batches of an epoch, every sentence in use once, in an order that (seed, epoch) decides.
    pub fn epoch(&self, epoch: u64) -> Vec<Vec<u32>> {
        if let Some(batches) = &self.frozen {
            return frozen::epoch(batches, self.options.seed, epoch);
        }
        let mut order = self.used.clone();
        Rng::new(self.options.seed, epoch).shuffle(&mut order);
        self.cut(&order)
    }

    /// The batches without shuffling: for validation and decoding.
    pub fn ordered(&self, order: Order) -> Vec<Vec<u32>> {
        let mut sentences = self.used.clone();
        if order == Order::LongestFirst {
            sentences.sort_by_key(|&i| std::cmp::Reverse(self.lengths[i as usize]));
        }
        self.cut(&sentences)
    }

    /// Cuts a sequence of sentences wherever the next one would not fit.
    fn cut(&self, order: &[u32]) -> Vec<Vec<u32>> {
        let max_tokens = u64::from(self.options.max_tokens);
        let max_sentences = self.options.max_sentences.map_or(usize::MAX, |n| n as usize);
        let (mut batches, mut batch) = (Vec::new(), Vec::new());
        let (mut src_tokens, mut tgt_tokens) = (0_u64, 0_u64);
        for &i in order {
            let (src, tgt) = self.lengths[i as usize];
            (src_tokens, tgt_tokens) = (src_tokens + u64::from(src), tgt_tokens + u64::from(tgt));
            if !batch.is_empty()
                && (src_tokens > max_tokens || tgt_tokens > max_tokens || batch.len() == max_sentences)
            {
                batches.push(std::mem::take(&mut batch));
                (src_tokens, tgt_tokens) = (u64::from(src), u64::from(tgt));
            }
            batch.push(i);
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        batches
    }
}

/// A part of `sentences` sentences, drawn with `seed`: their numbers, rising. A larger part with the same seed holds
/// every smaller one.
pub fn subset(sentences: usize, fraction: f64, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sentences as u32).collect();
    // Epochs count from 1, so this is no epoch's order.
    Rng::new(seed, 0).shuffle(&mut order);
    order.truncate(((fraction * sentences as f64).round() as usize).clamp(1, sentences.max(1)));
    order.sort_unstable();
    order
}

/// xoshiro256** (Blackman and Vigna 2018), seeded by SplitMix64.
pub(crate) struct Rng([u64; 4]);

impl Rng {
    /// The numbers of a stream, an epoch or a line, under a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut state = split_mix(seed).wrapping_add(stream);
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            split_mix(state)
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `n`, each equally likely (Lemire 2019).
    fn below(&mut self, n: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Fisher and Yates.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// The output function of SplitMix64.
fn split_mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn xoshiro_matches_its_reference() {
        // First outputs of the authors' C code from the state 1, 2, 3, 4.
        let mut rng = Rng([1, 2, 3, 4]);
        let found: Vec<_> = (0..4).map(|_| rng.next()).collect();
        assert_eq!(found, [11520, 0, 1509978240, 1215971899390074240]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = Rng::new(7, 0);
        let mut seen = [0_u32; 5];
        (0..5000).for_each(|_| seen[rng.below(5) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
