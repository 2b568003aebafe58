//! Segmentation of text into pieces, and back: BPE codes or a SentencePiece model for both sides or for
//! each, or a `tokenizer.json`.
//!
//! A binarised folder and a model folder hold it in files of the same names, so that any text can be cut as the
//! training text was.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::bpe::{self, Bpe, Codes, Dropout};
use crate::error::{Error, Result};
use crate::files;
use crate::folder_record::FolderRecord;
use crate::sentencepiece::SentencePiece;
use crate::tokenizer::Tokenizer;

/// Codes that serve both sides.
pub const CODES: &str = "bpe.codes";
/// Codes of the source side.
pub const SOURCE_CODES: &str = "bpe.src.codes";
/// Codes of the target side.
pub const TARGET_CODES: &str = "bpe.tgt.codes";
/// A tokeniser of Hugging Face's `tokenizers`, which serves both sides.
pub const TOKENIZER: &str = "tokenizer.json";
/// A SentencePiece model that serves both sides.
pub const SENTENCEPIECE: &str = "sentencepiece.model";
/// The SentencePiece model of the source side.
pub const SOURCE_SENTENCEPIECE: &str = "sentencepiece.src.model";
/// The SentencePiece model of the target side.
pub const TARGET_SENTENCEPIECE: &str = "sentencepiece.tgt.model";
/// All of these.
pub(crate) const FILES: [&str; 7] =
    [CODES, SOURCE_CODES, TARGET_CODES, TOKENIZER, SENTENCEPIECE, SOURCE_SENTENCEPIECE, TARGET_SENTENCEPIECE];

/// Rules that cut text into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// One list of merges for both sides.
    Joint(Codes),
    /// A list of merges for each side.
    Separate {
        /// Merges of the source.
        src: Codes,
        /// Merges of the target.
        tgt: Codes,
    },
    /// A `tokenizer.json` for both sides.
    Tokenizer(Tokenizer),
    /// A SentencePiece model for both sides.
    SentencePiece(SentencePiece),
    /// A SentencePiece model for each side.
    SentencePieces {
        /// Model of the source.
        src: SentencePiece,
        /// Model of the target.
        tgt: SentencePiece,
    },
}

impl From<Codes> for Segmentation {
    fn from(codes: Codes) -> Self {
        Self::Joint(codes)
    }
}

impl Segmentation {
    /// Reads the rules of a folder; `None` where text comes in pieces already.
    pub fn load(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let folder = folder.as_ref();
        files::settle(folder)?;
        let [joint, src, tgt, tokenizer, pieces, src_pieces, tgt_pieces] =
            FILES.map(|name| folder.join(name));
        let found =
            [&joint, &src, &tokenizer, &pieces, &src_pieces].iter().filter(|path| path.exists()).count();
        if found > 1 {
            let what = format!(
                "holds more than one of {CODES}, {SOURCE_CODES}, {TOKENIZER}, {SENTENCEPIECE} and \
                 {SOURCE_SENTENCEPIECE}; remove those that the dictionaries were not made with"
            );
            return Err(Error::dataset(folder, what));
        }
        let found = if joint.exists() {
            Some(Self::Joint(Codes::load(joint)?))
        } else if src.exists() {
            Some(Self::Separate { src: Codes::load(src)?, tgt: Codes::load(tgt)? })
        } else if tokenizer.exists() {
            Some(Self::Tokenizer(Tokenizer::load(tokenizer)?))
        } else if pieces.exists() {
            Some(Self::SentencePiece(SentencePiece::load(pieces)?))
        } else if src_pieces.exists() {
            let (src, tgt) = (SentencePiece::load(src_pieces)?, SentencePiece::load(tgt_pieces)?);
            Some(Self::SentencePieces { src, tgt })
        } else {
            None
        };
        FolderRecord::check_segmentation(folder)?;
        Ok(found)
    }

    /// Names of its files.
    pub(crate) fn file_names(this: Option<&Self>) -> &'static [&'static str] {
        match this {
            Some(Self::Joint(_)) => &[CODES],
            Some(Self::Separate { .. }) => &[SOURCE_CODES, TARGET_CODES],
            Some(Self::Tokenizer(_)) => &[TOKENIZER],
            Some(Self::SentencePiece(_)) => &[SENTENCEPIECE],
            Some(Self::SentencePieces { .. }) => &[SOURCE_SENTENCEPIECE, TARGET_SENTENCEPIECE],
            None => &[],
        }
    }

    /// Writes its files (aside, then renamed), and removes those of another kind.
    pub fn save(this: Option<&Self>, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        for name in FILES {
            let path = folder.join(name);
            if !Self::file_names(this).contains(&name) && path.exists() {
                fs::remove_file(&path).map_err(Error::io("replace", &path))?;
            }
        }
        match this {
            Some(Self::Joint(codes)) => codes.save(folder.join(CODES)),
            Some(Self::Separate { src, tgt }) => {
                src.save(folder.join(SOURCE_CODES))?;
                tgt.save(folder.join(TARGET_CODES))
            }
            Some(Self::Tokenizer(tokenizer)) => tokenizer.save(folder.join(TOKENIZER)),
            Some(Self::SentencePiece(model)) => model.save(folder.join(SENTENCEPIECE)),
            Some(Self::SentencePieces { src, tgt }) => {
                src.save(folder.join(SOURCE_SENTENCEPIECE))?;
                tgt.save(folder.join(TARGET_SENTENCEPIECE))
            }
            None => Ok(()),
        }
    }

    /// Segmenters of source and target.
    pub fn segmenters(&self) -> [Arc<Segmenter>; 2] {
        let bpe = |codes| Arc::new(Segmenter::Bpe(Box::new(Bpe::new(codes))));
        let pieces = |model: &SentencePiece| Arc::new(Segmenter::SentencePiece(model.clone()));
        match self {
            Self::Joint(codes) => {
                let both = bpe(codes);
                [both.clone(), both]
            }
            Self::Separate { src, tgt } => [bpe(src), bpe(tgt)],
            Self::Tokenizer(tokenizer) => {
                let both = Arc::new(Segmenter::Tokenizer(tokenizer.clone()));
                [both.clone(), both]
            }
            Self::SentencePiece(model) => [pieces(model), pieces(model)],
            Self::SentencePieces { src, tgt } => [pieces(src), pieces(tgt)],
        }
    }

    /// Number of merges, both sides together; none of SentencePiece models.
    pub fn merges(&self) -> Option<usize> {
        match self {
            Self::Joint(codes) => Some(codes.len()),
            Self::Separate { src, tgt } => Some(src.len() + tgt.len()),
            Self::Tokenizer(tokenizer) => Some(tokenizer.merges()),
            Self::SentencePiece(_) | Self::SentencePieces { .. } => None,
        }
    }
}

/// Joins pieces to text by the rules of `this` (those of the target, if the sides have their own); without rules, at
/// `@@ `.
pub fn join(this: Option<&Segmentation>, line: &str) -> String {
    match this {
        Some(Segmentation::Tokenizer(tokenizer)) => tokenizer.join(line),
        Some(Segmentation::SentencePiece(model) | Segmentation::SentencePieces { tgt: model, .. }) => {
            model.join(line)
        }
        _ => bpe::join(line),
    }
}

/// The words that pieces spell, each with the number of its first piece.
pub fn words(this: Option<&Segmentation>, pieces: &[&str]) -> Vec<(String, usize)> {
    let begins = |i: usize| match this {
        Some(Segmentation::Tokenizer(tokenizer)) => tokenizer.begins_word(pieces[i - 1], pieces[i]),
        Some(Segmentation::SentencePiece(model) | Segmentation::SentencePieces { tgt: model, .. }) => {
            model.begins_word(pieces[i - 1], pieces[i])
        }
        _ => !pieces[i - 1].ends_with(bpe::SEPARATOR),
    };
    let starts: Vec<usize> = (0..pieces.len()).filter(|&i| i == 0 || begins(i)).collect();
    let ends = starts.iter().skip(1).copied().chain([pieces.len()]);
    let word = |start: usize, end: usize| join(this, &pieces[start..end].join(" ")).trim().to_owned();
    starts.iter().zip(ends).map(|(&start, end)| (word(start, end), start)).collect()
}

/// Cuts the lines of one side.
pub enum Segmenter {
    /// By merges.
    Bpe(Box<Bpe>),
    /// As a `tokenizer.json` says.
    Tokenizer(Tokenizer),
    /// By a SentencePiece model.
    SentencePiece(SentencePiece),
}

impl Segmenter {
    /// A line as pieces with blanks between.
    pub fn segment_line(&self, line: &str) -> String {
        match self {
            Self::Bpe(bpe) => bpe.segment_line(line),
            Self::Tokenizer(tokenizer) => tokenizer.segment_line(line),
            Self::SentencePiece(model) => model.segment_line(line),
        }
    }

    /// The same with merges skipped at random; a `tokenizer.json` or a SentencePiece model knows no dropout.
    pub fn segment_line_dropping(&self, line: &str, dropout: Dropout, place: u64) -> String {
        match self {
            Self::Bpe(bpe) => bpe.segment_line_dropping(line, dropout, place),
            Self::Tokenizer(_) | Self::SentencePiece(_) => self.segment_line(line),
        }
    }

    /// A line of a training text, which may have dropout. `side` is 0 for the source, 1 for the target: their dropout
    /// differs even where the text is the same.
    pub(crate) fn segment_training_line(
        &self,
        line: &str,
        dropout: Option<Dropout>,
        (number, side): (u64, u64),
    ) -> String {
        match dropout {
            Some(dropout) => self.segment_line_dropping(line, dropout, 2 * number + side),
            None => self.segment_line(line),
        }
    }

    /// Many lines, on all threads.
    pub fn segment_lines<S: AsRef<str> + Sync>(&self, lines: &[S]) -> Vec<String> {
        lines.par_iter().with_min_len(64).map(|line| self.segment_line(line.as_ref())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn pieces_make_words_with_their_places() {
        let found = words(None, &["lo@@", "w@@", "er", "a", "new@@"]);
        assert_eq!(found, [("lower".into(), 0), ("a".into(), 3), ("new".into(), 4)]);
        assert!(words(None, &[]).is_empty());
    }
}
