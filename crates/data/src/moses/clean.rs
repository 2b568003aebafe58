//! Pairs with sensible lengths: those that `clean-corpus-n.perl` keeps, and counts of those that it drops.

use std::path::Path;

use serde::Serialize;

use crate::error::Result;
use crate::files::TextFile;
use crate::lines::{ParallelLines, Tally};
use crate::options::OptionFault;

/// Limits of sentence pairs. Lengths are tokens between blanks.
#[derive(Clone, Debug)]
pub struct CleanOptions {
    /// Fewest tokens of a side.
    pub min: usize,
    /// Most tokens of a side.
    pub max: usize,
    /// Longest side over shortest side at most; `None` for no limit.
    pub ratio: Option<f64>,
    /// Most characters of a word, or of a factor of a word.
    pub max_word: usize,
    /// Write both sides in lower case.
    pub lowercase: bool,
}

impl CleanOptions {
    /// Lengths from `min` to `max`, the rest as in Moses: a ratio of 9 and words of 1000 characters at most.
    pub fn new(min: usize, max: usize) -> Self {
        Self { min, max, ratio: Some(9.0), max_word: 1000, lowercase: false }
    }

    fn check(&self) -> Result<()> {
        if self.min > self.max {
            let (min, max) = (self.min, self.max);
            return Err(OptionFault::Lengths { min, max }.into());
        }
        match self.ratio {
            Some(ratio) if !(ratio.is_finite() && ratio >= 1.0) => Err(OptionFault::Ratio(ratio).into()),
            _ => Ok(()),
        }
    }
}

/// Reason why a pair was dropped; the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A side has no tokens.
    Empty,
    /// A side has more tokens than the maximum.
    TooLong,
    /// A side has fewer tokens than the minimum.
    TooShort,
    /// One side is too long for the other.
    Ratio,
    /// A word has too many characters.
    LongWord,
    /// A factor is empty: `a||b`. (The Perl script stops here.)
    BlankFactor,
}

/// A pair that is kept, with one blank between tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanPair {
    /// The first side.
    pub src: String,
    /// The second side.
    pub tgt: String,
}

/// Numbers of pairs kept and of pairs dropped for each reason, with the first few line numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tallies {
    /// Pairs read.
    pub pairs: u64,
    /// Pairs kept.
    pub kept: u64,
    /// A side without tokens.
    pub empty: Tally,
    /// A side over the maximum.
    pub too_long: Tally,
    /// A side under the minimum.
    pub too_short: Tally,
    /// Sides whose lengths differ too much.
    pub ratio: Tally,
    /// A word with too many characters.
    pub long_word: Tally,
    /// An empty factor.
    pub blank_factor: Tally,
}

impl Tallies {
    /// Counts a pair that is dropped.
    pub fn add(&mut self, reason: Dropped, line: u64) {
        match reason {
            Dropped::Empty => self.empty.add(line),
            Dropped::TooLong => self.too_long.add(line),
            Dropped::TooShort => self.too_short.add(line),
            Dropped::Ratio => self.ratio.add(line),
            Dropped::LongWord => self.long_word.add(line),
            Dropped::BlankFactor => self.blank_factor.add(line),
        }
    }

    /// Reasons in words, with their counts.
    pub fn dropped(&self) -> [(&'static str, &Tally); 6] {
        [
            ("empty side", &self.empty),
            ("too long", &self.too_long),
            ("too short", &self.too_short),
            ("length ratio", &self.ratio),
            ("word too long", &self.long_word),
            ("empty factor", &self.blank_factor),
        ]
    }
}

/// Decides pair by pair. The first pair tells whether words have factors: only if it has a `|` are they kept.
#[derive(Clone, Debug)]
pub struct Cleaner {
    options: CleanOptions,
    factored: Option<bool>,
}

impl Cleaner {
    /// A cleaner; contradictory options are refused.
    pub fn new(options: CleanOptions) -> Result<Self> {
        options.check()?;
        Ok(Self { options, factored: None })
    }

    /// The next pair, cleaned, or the reason why it is dropped.
    pub fn clean(&mut self, src: &str, tgt: &str) -> Result<CleanPair, Dropped> {
        let factored = *self.factored.get_or_insert_with(|| src.contains('|') || tgt.contains('|'));
        let (src, src_len) = self.tidy(src, factored);
        let (tgt, tgt_len) = self.tidy(tgt, factored);
        let (shorter, longer) = (src_len.min(tgt_len), src_len.max(tgt_len));
        let options = &self.options;
        let long_word = |text: &str| {
            text.split([' ', '|'])
                .any(|word| word.len() > options.max_word && word.chars().count() > options.max_word)
        };
        let blank_factor = |text: &str| text.contains(" |") || text.contains("||");
        if shorter == 0 {
            Err(Dropped::Empty)
        } else if longer > options.max {
            Err(Dropped::TooLong)
        } else if shorter < options.min {
            Err(Dropped::TooShort)
        } else if options.ratio.is_some_and(|ratio| longer as f64 / shorter as f64 > ratio) {
            Err(Dropped::Ratio)
        } else if long_word(&src) || long_word(&tgt) {
            Err(Dropped::LongWord)
        } else if blank_factor(&src) || blank_factor(&tgt) {
            Err(Dropped::BlankFactor)
        } else {
            Ok(CleanPair { src, tgt })
        }
    }

    /// The line with single blanks, and its tokens.
    fn tidy(&self, line: &str, factored: bool) -> (String, usize) {
        let mut line = if factored { line.to_owned() } else { line.replace('|', "") };
        if self.options.lowercase {
            line = line.to_lowercase();
        }
        let tokens: Vec<&str> = line.split_whitespace().collect();
        (tokens.join(" "), tokens.len())
    }
}

/// Cleans the pairs of two files into two others, which appear when all is done. `progress` gets the number of
/// pairs read so far.
pub fn clean_corpus(
    lines: &mut ParallelLines,
    out: [&Path; 2],
    options: CleanOptions,
    mut progress: impl FnMut(u64),
) -> Result<Tallies> {
    let mut cleaner = Cleaner::new(options)?;
    let mut sides = [TextFile::create(out[0])?, TextFile::create(out[1])?];
    let mut tallies = Tallies::default();
    while let Some((src, tgt)) = lines.next_pair()? {
        tallies.pairs += 1;
        match cleaner.clean(src, tgt) {
            Ok(pair) => {
                tallies.kept += 1;
                sides[0].line(&pair.src)?;
                sides[1].line(&pair.tgt)?;
            }
            Err(reason) => tallies.add(reason, tallies.pairs),
        }
        if tallies.pairs.is_multiple_of(1000) {
            progress(tallies.pairs);
        }
    }
    sides.into_iter().try_for_each(TextFile::finish)?;
    Ok(tallies)
}
