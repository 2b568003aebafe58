//! The share of lines that are exactly right.

use serde::Serialize;

/// Counts the lines that equal their reference, one line at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ExactMatch {
    /// Lines that equal their reference.
    pub equal: u64,
    /// All lines.
    pub lines: u64,
}

impl ExactMatch {
    /// Counts one line; white space at either end does not matter.
    pub fn add(&mut self, hypothesis: &str, reference: &str) {
        self.equal += u64::from(hypothesis.trim() == reference.trim());
        self.lines += 1;
    }

    /// Adds the counts of another part of the corpus.
    pub fn merge(&mut self, other: Self) {
        self.equal += other.equal;
        self.lines += other.lines;
    }

    /// The share of equal lines, 0 to 1; 0 before the first line.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.lines == 0 { 0.0 } else { self.equal as f64 / self.lines as f64 }
    }
}

/// The share (0 to 1) of the (hypothesis, reference) lines that are equal.
pub fn exact_match<H: AsRef<str>, R: AsRef<str>>(pairs: impl IntoIterator<Item = (H, R)>) -> f64 {
    let mut matches = ExactMatch::default();
    for (hypothesis, reference) in pairs {
        matches.add(hypothesis.as_ref(), reference.as_ref());
    }
    matches.share()
}
