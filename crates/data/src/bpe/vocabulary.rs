//! Tokens of a text and their counts: `subword-nmt get-vocab`.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::words;
use crate::error::Result;
use crate::lines::LineReader;

/// Counts of tokens, in the order of their first occurrences.
#[derive(Clone, Debug, Default)]
pub struct TokenCounts {
    places: FxHashMap<Box<str>, usize>,
    counts: Vec<(Box<str>, u64)>,
}

impl TokenCounts {
    /// Counts the tokens of the remaining lines of a reader.
    pub fn add_file(&mut self, reader: &mut LineReader) -> Result<()> {
        while let Some(line) = reader.next_line()? {
            self.add_line(line);
        }
        Ok(())
    }

    /// Counts the tokens of a line.
    pub fn add_line(&mut self, line: &str) {
        for token in words(line) {
            match self.places.get(token) {
                Some(&place) => self.counts[place].1 += 1,
                None => {
                    self.places.insert(token.into(), self.counts.len());
                    self.counts.push((token.into(), 1));
                }
            }
        }
    }

    /// Tokens and counts, the most frequent first; ties in the order of their first occurrences.
    pub fn into_sorted(mut self) -> Vec<(Box<str>, u64)> {
        self.counts.sort_by_key(|&(_, count)| Reverse(count));
        self.counts
    }
}
