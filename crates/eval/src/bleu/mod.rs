//! Corpus BLEU-4 that agrees with the tools papers report it with.
//!
//! Two families are covered, both from the same streaming counts:
//!
//! * **tokenised BLEU**, as Moses' `multi-bleu.perl` and `fairseq-score` print it: the text is already
//!   tokenised, words are what white space separates, nothing is smoothed
//!   ([`BleuConfig::multi_bleu`], [`BleuScore::multi_bleu_line`], [`BleuScore::fairseq_line`]); words may be split at
//!   their dashes first ([`Compounds::Split`]), which older papers on WMT14 did for German;
//! * **sacreBLEU** on detokenised text: the `13a`, `intl`, `zh`, `char` or `none` tokeniser, the pieces of a
//!   SentencePiece model or the words of MeCab ([`LineCutter`]), four smoothings, either case ([`BleuConfig::default`],
//!   [`BleuScore::sacrebleu_line`]).
//!
//! ```
//! # use mae_eval::bleu::{BleuConfig, BleuStats};
//! let mut stats = BleuStats::new(BleuConfig::default());
//! stats.add("The cat sat on a mat.", &["The cat sat on the mat."])?;
//! assert_eq!(format!("{:.2}", stats.score().score), "48.89");
//! # Ok::<(), mae_eval::bleu::BleuError>(())
//! ```
//!
//! Feed one segment at a time and, when reading files, split them at `'\n'` only: every other line
//! separator of Unicode is white space inside a segment to the tools this module agrees with.

mod compounds;
mod cutter;
mod exact;
mod score;
mod signature;
mod tokenised;
mod tokens;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use compounds::Compounds;
pub use cutter::{LineCutter, Needed};
pub use exact::{ExactMatch, exact_match};
pub(crate) use score::resampled_score;
pub use score::{BleuScore, Smoothing};
pub use signature::{References, SACREBLEU_VERSION, Signature};
pub use tokenised::TokenisedPeriods;
pub use tokens::Tokenizer;

/// The longest n-grams that are counted.
pub const MAX_ORDER: usize = 4;

/// A fault while counting.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BleuError {
    /// A segment came without any reference.
    #[error("a hypothesis needs at least one reference")]
    NoReference,
    /// Two sets of counts were made under different settings.
    #[error("BLEU counts made under different settings cannot be merged")]
    Mismatch,
    /// The name of a tokeniser is not known.
    #[error(
        "unknown tokeniser {0:?}; known are 13a, intl, zh, ja-mecab, ko-mecab, char, flores101, flores200, spBLEU-1K, none and \
         multi-bleu"
    )]
    UnknownTokenizer(String),
    /// The model or dictionary of a tokeniser cannot be read.
    #[error("{0}")]
    Cutter(String),
    /// Another dictionary than sacreBLEU's.
    #[error(
        "{folder} is not the dictionary of the Python package {package}: it has {found} words, not {entries}; scores \
         with another one are not comparable"
    )]
    Dictionary {
        /// Folder of the dictionary.
        folder: String,
        /// Package that holds the right one.
        package: &'static str,
        /// Words of the right one.
        entries: u32,
        /// Words of this one.
        found: u32,
    },
    /// The name of a smoothing is not known, or its value is not a number.
    #[error("unknown smoothing {0:?}; known are exp, none, floor, floor:VALUE, add-k and add-k:VALUE")]
    UnknownSmoothing(String),
    /// The value of a smoothing is negative or not finite.
    #[error("the value {0} of a smoothing must be a number of at least 0")]
    SmoothingValue(String),
}

/// The settings a BLEU score depends on.
///
/// The default is sacreBLEU's: `13a`, mixed case, exponential smoothing, all four orders.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BleuConfig {
    /// Tokenisation of a line.
    pub tokenizer: Tokenizer,
    /// Lower-case both sides first.
    pub lowercase: bool,
    /// Substitute for an n-gram precision of zero.
    pub smoothing: Smoothing,
    /// Leave orders longer than the hypothesis out of the mean (for single sentences).
    pub effective_order: bool,
    /// Treatment of words with dashes in them.
    pub compounds: Compounds,
}

impl BleuConfig {
    /// The settings of Moses' `multi-bleu.perl`: words between white space, case kept, no smoothing.
    #[must_use]
    pub fn multi_bleu() -> Self {
        Self { tokenizer: Tokenizer::MultiBleu, smoothing: Smoothing::None, ..Self::default() }
    }

    /// The settings of `fairseq-score`: like [`BleuConfig::multi_bleu`] with Unicode white space.
    #[must_use]
    pub fn fairseq() -> Self {
        Self { tokenizer: Tokenizer::None, smoothing: Smoothing::None, ..Self::default() }
    }

    /// Returns whether the text should be detokenised: the tokeniser does more than split words at white space.
    #[must_use]
    pub fn expects_detokenised(&self) -> bool {
        !matches!(self.tokenizer, Tokenizer::None | Tokenizer::MultiBleu)
    }

    /// sacreBLEU's settings for one sentence: the default with the effective order.
    #[must_use]
    pub fn sentence() -> Self {
        Self { effective_order: true, ..Self::default() }
    }
}

/// The counts a BLEU score is made of, summed over the segments seen so far.
///
/// They take the same few bytes whatever the size of the corpus, and two sets of counts add up
/// ([`BleuStats::merge`]), so that a corpus can be scored in pieces.
#[derive(Debug, Clone, PartialEq)]
pub struct BleuStats {
    config: BleuConfig,
    counts: [u64; MAX_ORDER],
    totals: [u64; MAX_ORDER],
    sys_len: u64,
    ref_len: u64,
    segments: u64,
    references: References,
}

impl BleuStats {
    /// Starts counting under these settings.
    #[must_use]
    pub fn new(config: BleuConfig) -> Self {
        Self {
            config,
            counts: [0; MAX_ORDER],
            totals: [0; MAX_ORDER],
            sys_len: 0,
            ref_len: 0,
            segments: 0,
            references: References::Unknown,
        }
    }

    /// Counts one segment: a hypothesis and its references (raw lines; the tokeniser runs here, except one that
    /// [needs](Tokenizer::needs) a file, whose lines [`LineCutter::line`] makes).
    pub fn add<R: AsRef<str>>(&mut self, hypothesis: &str, references: &[R]) -> Result<(), BleuError> {
        if references.is_empty() {
            return Err(BleuError::NoReference);
        }
        let (tokenizer, lowercase) = (self.config.tokenizer, self.config.lowercase);
        let lines = std::iter::once(hypothesis).chain(references.iter().map(AsRef::as_ref));
        let lines: Vec<Cow<'_, str>> = lines.map(|line| self.config.compounds.apply(line)).collect();
        let mut texts = lines.iter().map(|line| tokenizer.prepare(line, lowercase));
        let hyp_text = texts.next().unwrap_or_default();
        let ref_texts: Vec<_> = texts.collect();
        let hyp: Vec<&str> = tokenizer.words(&hyp_text).collect();
        let refs: Vec<Vec<&str>> = ref_texts.iter().map(|text| tokenizer.words(text).collect()).collect();

        let ref_ngrams = most_in_one_reference(&refs);
        for (ngram, count) in count_ngrams(&hyp) {
            let order = ngram.len() - 1;
            self.totals[order] += count;
            self.counts[order] += ref_ngrams.get(ngram).map_or(0, |&most| most.min(count));
        }
        self.sys_len += hyp.len() as u64;
        self.ref_len += closest_length(hyp.len(), refs.iter().map(Vec::len)) as u64;
        self.segments += 1;
        self.references = self.references.and(References::Fixed(references.len()));
        Ok(())
    }

    /// Adds the counts of another part of the corpus.
    pub fn merge(&mut self, other: &Self) -> Result<(), BleuError> {
        if self.config != other.config {
            return Err(BleuError::Mismatch);
        }
        for order in 0..MAX_ORDER {
            self.counts[order] += other.counts[order];
            self.totals[order] += other.totals[order];
        }
        self.sys_len += other.sys_len;
        self.ref_len += other.ref_len;
        self.segments += other.segments;
        self.references = self.references.and(other.references);
        Ok(())
    }

    /// Number of segments counted so far.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// The counts in sacreBLEU's order: both lengths, matches of each order, n-grams of each order.
    pub(crate) fn to_row(&self) -> Vec<f64> {
        let counts = self.counts.iter().chain(&self.totals);
        [self.sys_len, self.ref_len].iter().chain(counts).map(|&count| count as f64).collect()
    }

    /// The score of what has been counted so far.
    #[must_use]
    pub fn score(&self) -> BleuScore {
        BleuScore::compute(
            self.counts,
            self.totals,
            self.sys_len,
            self.ref_len,
            Signature { config: self.config, references: self.references },
        )
    }
}

/// BLEU of one sentence; [`BleuConfig::sentence`] has sacreBLEU's settings for that.
pub fn sentence_bleu<R: AsRef<str>>(
    config: BleuConfig,
    hypothesis: &str,
    references: &[R],
) -> Result<BleuScore, BleuError> {
    let mut stats = BleuStats::new(config);
    stats.add(hypothesis, references)?;
    Ok(stats.score())
}

/// Counts of the n-grams of one to four words.
fn count_ngrams<'a, 't>(words: &'a [&'t str]) -> HashMap<&'a [&'t str], u64> {
    let mut counts = HashMap::with_capacity(MAX_ORDER * words.len());
    for order in 1..=MAX_ORDER {
        for ngram in words.windows(order) {
            *counts.entry(ngram).or_insert(0) += 1;
        }
    }
    counts
}

/// The most often each n-gram occurs in any one reference.
fn most_in_one_reference<'a, 't>(references: &'a [Vec<&'t str>]) -> HashMap<&'a [&'t str], u64> {
    let mut references = references.iter().map(|words| count_ngrams(words));
    let mut most = references.next().unwrap_or_default();
    for counts in references {
        for (ngram, count) in counts {
            let best = most.entry(ngram).or_insert(0);
            *best = count.max(*best);
        }
    }
    most
}

/// The reference length closest to the hypothesis; of two equally close ones the shorter.
fn closest_length(hypothesis: usize, references: impl Iterator<Item = usize>) -> usize {
    references.min_by_key(|&length| (length.abs_diff(hypothesis), length)).unwrap_or(0)
}
