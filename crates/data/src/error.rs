//! One error for the whole crate. Every message says what was wrong, where, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with text, vocabularies, BPE codes and binary datasets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a read, a write or a rename.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `open`, `read`, `write`, ….
        action: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// A line is not UTF-8 and the policy is to refuse it.
    #[error(
        "{}, line {line}: byte {byte} of the line is not valid UTF-8; convert the file \
         (e.g. `iconv -f latin1 -t utf8`), or have bad bytes replaced where the command can (--replace-bad-utf8; of \
         preprocess --bad-utf8 replace)",
        path.display()
    )]
    BadUtf8 {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Number of the first bad byte in the line, from 1.
        byte: usize,
    },

    /// The file starts with a UTF-16 byte-order mark.
    #[error("{} is UTF-16; convert it first: `iconv -f utf16 -t utf8`", path.display())]
    Utf16 {
        /// The file.
        path: PathBuf,
    },

    /// A line is longer than any text line can sensibly be.
    #[error(
        "{}, line {line}: longer than {limit} bytes; is this a text file with `\\n` line ends?",
        path.display()
    )]
    LineTooLong {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The limit in bytes.
        limit: usize,
    },

    /// The two sides of a parallel text do not have the same number of lines.
    #[error(
        "the two sides do not have the same number of lines: {} has {src_lines}, {} has {tgt_lines}; \
         line n of one must translate line n of the other",
        src.display(), tgt.display()
    )]
    LineCountMismatch {
        /// Source file.
        src: PathBuf,
        /// Its lines.
        src_lines: u64,
        /// Target file.
        tgt: PathBuf,
        /// Its lines.
        tgt_lines: u64,
    },

    /// A line of a text format (`dict.txt`, BPE codes, BPE vocabulary) cannot be understood.
    #[error("{}, line {line}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, and what to do.
        what: String,
    },

    /// A binary dataset is damaged or does not belong to the vocabulary beside it.
    #[error("{}: {what}", path.display())]
    Dataset {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },

    /// Nothing to learn from.
    #[error("cannot learn BPE: the training text has no words; check the input files")]
    NoWords,

    /// Sentence pairs are longer than a batch or the model can hold, and the policy is to refuse them.
    #[error(
        "{count} sentence pair(s) are too long ({limits}), e.g. {examples}; raise the limit, \
         shorten the data, or choose to skip them"
    )]
    TooLong {
        /// How many.
        count: u64,
        /// The limits in force.
        limits: String,
        /// The first few.
        examples: String,
    },

    /// Pairs that a preprocessing policy refuses.
    #[error(
        "{}, line {line}: {what}; mend the data, or choose to skip or keep such lines",
        path.display()
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Why it was refused.
        what: String,
    },

    /// Options that cannot be carried out together.
    #[error("{0}")]
    Options(String),
}

impl Error {
    /// An [`Error::Io`] made in a `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn format(path: &Path, line: u64, what: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), line, what: what.into() }
    }

    pub(crate) fn dataset(path: &Path, what: impl Into<String>) -> Self {
        Self::Dataset { path: path.to_path_buf(), what: what.into() }
    }
}
