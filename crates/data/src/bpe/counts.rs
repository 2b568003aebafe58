//! Words of a text and their counts, from which merges are learned.

use std::path::Path;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::words;
use crate::error::Result;
use crate::lines::{BadUtf8, LineReader};

/// Lines handed to the threads at a time.
const CHUNK: usize = 1 << 15;

/// Counts of the words of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordCounts {
    counts: FxHashMap<Box<str>, u64>,
}

impl WordCounts {
    /// Counts the words of whole files, jointly.
    pub fn from_files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>, policy: BadUtf8) -> Result<Self> {
        let mut counts = Self::default();
        for path in paths {
            counts.add_file(&mut LineReader::open(path, policy)?)?;
        }
        Ok(counts)
    }

    /// Counts the remaining words of a reader, on all threads.
    pub fn add_file(&mut self, reader: &mut LineReader) -> Result<()> {
        loop {
            let lines = reader.next_chunk(CHUNK)?;
            if lines.is_empty() {
                return Ok(());
            }
            let share = lines.len().div_ceil(rayon::current_num_threads());
            let parts: Vec<_> = lines
                .par_chunks(share)
                .map(|part| {
                    let mut counts = FxHashMap::<&str, u64>::default();
                    part.iter()
                        .flat_map(|line| words(line))
                        .for_each(|word| *counts.entry(word).or_default() += 1);
                    counts
                })
                .collect();
            parts.into_iter().flatten().for_each(|(word, n)| self.add(word, n));
        }
    }

    /// Counts the words of one line.
    pub fn add_line(&mut self, line: &str) {
        words(line).for_each(|word| self.add(word, 1));
    }

    /// Counts a word `n` times.
    pub fn add(&mut self, word: &str, n: u64) {
        match self.counts.get_mut(word) {
            Some(count) => *count += n,
            None => drop(self.counts.insert(word.into(), n)),
        }
    }

    /// Adds the counts of another text.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(word, n)| self.add(word, n));
    }

    /// Words and counts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(word, &n)| (&**word, n))
    }

    /// Number of different words.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
