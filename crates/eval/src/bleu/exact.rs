//! The share of lines that are exactly right.

use serde::Serialize;

/// Counts the lines that equal a reference, one line at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ExactMatch {
    /// Lines that equal a reference.
    pub equal: u64,
    /// All lines.
    pub lines: u64,
}

impl ExactMatch {
    /// Counts one line, which may equal any of its references; white space at either end does not matter.
    pub fn add<R: AsRef<str>>(&mut self, hypothesis: &str, references: &[R]) {
        let is_equal = |reference: &R| reference.as_ref().trim() == hypothesis.trim();
        self.equal += u64::from(references.iter().any(is_equal));
        self.lines += 1;
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
        matches.add(hypothesis.as_ref(), &[reference]);
    }
    matches.share()
}
