//! Sentence pairs of quickstart.

/// A sentence pair.
pub(super) struct Line {
    pub(super) source: String,
    pub(super) target: String,
    /// Subject or task of the sentence.
    pub(super) kind: String,
}
