//! The error of this crate. Every message says what was wrong, where, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::options::{OptionFault, Setting};

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault of text, vocabularies, BPE codes, datasets or options.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a read, a write or a rename.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action as a verb: `open`, `read`, `write`, ….
        action: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// Another process works in a folder.
    #[error(
        "{} is in use by another process{}; wait until it has ended, or choose another folder",
        folder.display(), process.map_or(String::new(), |id| format!(" ({id})"))
    )]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// Id of the process, if it is known.
        process: Option<u32>,
    },

    /// A folder is no longer there.
    #[error(
        "{} was removed or moved away while it was in use; nothing more can be saved there", folder.display()
    )]
    FolderGone {
        /// The folder.
        folder: PathBuf,
    },

    /// A line is not UTF-8 and the policy is to refuse it.
    #[error(
        "{}, line {line}: byte {byte} of the line is not valid UTF-8; convert the file \
         (e.g. `iconv -f latin1 -t utf8`), or have bad bytes replaced where that is possible",
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
        /// The fault and its remedy.
        what: String,
    },

    /// A binary dataset is damaged or does not belong to the vocabulary beside it.
    #[error("{}: {what}", path.display())]
    Dataset {
        /// The file.
        path: PathBuf,
        /// The fault and its remedy.
        what: String,
    },

    /// A text is neither there as it is named nor compressed.
    #[error("cannot open {name}: there is no {name}, {name}.gz or {name}.zst")]
    NoText {
        /// The name of the plain file.
        name: String,
    },

    /// A folder holds no parallel text.
    #[error(
        "{}: holds no binarised parallel text (`train.SRC-TGT.SRC.idx`, …); preprocess one first",
        folder.display()
    )]
    NoPairs {
        /// The folder.
        folder: PathBuf,
    },

    /// A folder holds texts of other languages.
    #[error("{}: holds {}, not {wanted}", folder.display(), pairs.join(", "))]
    OtherPairs {
        /// The folder.
        folder: PathBuf,
        /// Its language pairs.
        pairs: Vec<String>,
        /// The pair that is asked for.
        wanted: String,
    },

    /// A folder holds one text where a parallel text is needed.
    #[error("{}: holds one text, for language models, and no parallel text", folder.display())]
    OneText {
        /// The folder.
        folder: PathBuf,
    },

    /// A folder holds a parallel text where one text is needed.
    #[error(
        "{}: holds a parallel text ({src}-{tgt}); a language model reads a folder that was preprocessed from one text",
        folder.display()
    )]
    ParallelText {
        /// The folder.
        folder: PathBuf,
        /// Source language.
        src: String,
        /// Target language.
        tgt: String,
    },

    /// A folder holds texts in several pairs of languages, and none is chosen.
    #[error("{}: holds several language pairs ({}); name the one you want", folder.display(), pairs.join(", "))]
    SeveralPairs {
        /// The folder.
        folder: PathBuf,
        /// `de-en`, `de-fr`, ….
        pairs: Vec<String>,
    },

    /// Two lists of lines do not translate each other line by line.
    #[error("{src} source lines but {tgt} target lines")]
    UnequalSides {
        /// Source lines.
        src: usize,
        /// Target lines.
        tgt: usize,
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
        /// Number of pairs.
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
        /// Reason.
        what: String,
        /// The policy that refuses it.
        policy: Setting,
    },

    /// Options that cannot be carried out.
    #[error(transparent)]
    Options(#[from] OptionFault),
}

impl Error {
    /// Options to change, for a program that has flags for them.
    pub fn settings(&self) -> Vec<Setting> {
        match self {
            Self::BadUtf8 { .. } => vec![Setting::BadUtf8],
            Self::OneText { .. } => vec![Setting::Task],
            Self::ParallelText { .. } => vec![Setting::OnlySource],
            Self::NoText { .. } => vec![
                Setting::Trainpref,
                Setting::Validpref,
                Setting::Testpref,
                Setting::SourceLang,
                Setting::TargetLang,
            ],
            Self::SeveralPairs { .. } | Self::OtherPairs { .. } => {
                vec![Setting::SourceLang, Setting::TargetLang]
            }
            Self::Refused { policy, .. } => vec![*policy],
            Self::Options(fault) => fault.settings().to_vec(),
            _ => Vec::new(),
        }
    }

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
