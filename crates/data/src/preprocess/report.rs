//! Report of preprocessing, to print and to store.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::lines::{Issues, LineReader, Tally};

/// Report of preprocessing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PreprocessReport {
    /// Size of the source vocabulary.
    pub src_vocab: usize,
    /// Size of the target vocabulary; none of one text alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tgt_vocab: Option<usize>,
    /// Number of BPE merges, if BPE was applied.
    pub bpe_merges: Option<usize>,
    /// One entry per split, in the order they were given.
    pub splits: Vec<SplitReport>,
}

/// Report of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SplitReport {
    /// `train`, `valid`, `valid1`, `test`, ….
    pub name: String,
    /// Lines read from each side.
    pub lines: u64,
    /// Pairs (or lines of one text) written.
    pub written: u64,
    /// Those left out, by the policies for empty and over-long lines.
    pub skipped: Tally,
    /// The source side.
    pub src: SideReport,
    /// The target side; none of one text alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tgt: Option<SideReport>,
}

/// One side of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SideReport {
    /// The text file.
    pub path: PathBuf,
    /// Tokens written, one end of sentence per line counted, as fairseq counts them.
    pub tokens: u64,
    /// Number of them that are unknown to the vocabulary.
    pub unknown: u64,
    /// Their share, between 0 and 1.
    pub unknown_share: f64,
    /// Lines without any token.
    pub empty: Tally,
    /// Lines over the length limit.
    pub too_long: Tally,
    /// Oddities of the file.
    pub issues: Issues,
}

impl SideReport {
    /// Adds the figures that are known when all lines are read.
    pub(super) fn close(&mut self, reader: &LineReader) {
        self.unknown_share = if self.tokens == 0 { 0.0 } else { self.unknown as f64 / self.tokens as f64 };
        self.issues = reader.issues().clone();
    }
}

impl fmt::Display for PreprocessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tgt_vocab {
            Some(target) => write!(f, "vocabularies: {} source, {target} target", self.src_vocab)?,
            None => write!(f, "vocabulary: {} types", self.src_vocab)?,
        }
        if let Some(merges) = self.bpe_merges {
            write!(f, "; {merges} BPE merges")?;
        }
        self.splits.iter().try_for_each(|split| write!(f, "\n{split}"))
    }
}

impl fmt::Display for SplitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.tgt.is_some() { "pairs" } else { "lines" };
        write!(f, "{}: {} lines, {} {what} written", self.name, self.lines, self.written)?;
        if self.skipped.count > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        write!(f, "\n{}", self.src)?;
        self.tgt.iter().try_for_each(|tgt| write!(f, "\n{tgt}"))
    }
}

impl fmt::Display for SideReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, percent) = (self.path.display(), 100.0 * self.unknown_share);
        write!(f, "  {path}: {} tokens, {percent:.3}% replaced by <unk>", self.tokens)?;
        if self.empty.count > 0 {
            write!(f, "; empty: {}", self.empty)?;
        }
        if self.too_long.count > 0 {
            write!(f, "; over-long: {}", self.too_long)?;
        }
        if !self.issues.is_empty() {
            write!(f, "; {}", self.issues)?;
        }
        Ok(())
    }
}
