//! Tags of sentences, such as their domains.

use std::path::Path;

use mae_data::{BadUtf8, LineReader};

use crate::Result;

/// A tag for each sentence pair of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The tags, in the order in which they first come.
    pub names: Vec<String>,
    /// For each sentence, the number of its tag.
    pub of_sentence: Vec<usize>,
}

impl Tags {
    /// Reads a file with one tag per line.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self::of_lines(&LineReader::open(path, BadUtf8::Error)?.next_chunk(usize::MAX)?))
    }

    /// Tags that are given one by one.
    pub fn of_lines<S: AsRef<str>>(lines: &[S]) -> Self {
        let mut tags = Self::default();
        for line in lines {
            let name = line.as_ref().trim();
            let known = tags.names.iter().position(|known| known == name);
            let number = known.unwrap_or_else(|| {
                tags.names.push(name.to_owned());
                tags.names.len() - 1
            });
            tags.of_sentence.push(number);
        }
        tags
    }

    /// H(tag) in nats: what gates could tell about tags at most, and I(tag; expert) where they tell everything.
    pub fn entropy(&self) -> f64 {
        let count = |tag: usize| self.of_sentence.iter().filter(|&&other| other == tag).count() as f64;
        let shares: Vec<f64> =
            (0..self.names.len()).map(|tag| count(tag) / self.of_sentence.len() as f64).collect();
        super::collapse::entropy_of(&shares)
    }
}
