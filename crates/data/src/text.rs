//! One text with its vocabulary, from a folder that `fairseq-preprocess --only-source` wrote: `dict.txt` and
//! `{split}.{bin,idx}`.

use std::path::Path;
use std::sync::Arc;

use crate::dataset::IndexedDataset;
use crate::error::{Error, Result};
use crate::files;
use crate::folder_record::{FolderRecord, SplitRecord};
use crate::pairs::{MemoryDataset, Sentences, check_ids, detect_languages};
use crate::segmentation::Segmentation;
use crate::vocab::Vocab;

/// The vocabulary's file.
pub const DICT: &str = "dict.txt";

/// A text as token ids, line by line.
#[derive(Clone, Debug)]
pub struct TextDataset {
    /// Its lines, each ending in `EOS`.
    pub lines: Arc<Sentences>,
    /// Its vocabulary.
    pub vocab: Arc<Vocab>,
}

impl TextDataset {
    /// Opens one split of a folder. Checks all ids against the vocabulary.
    pub fn open(folder: impl AsRef<Path>, split: &str) -> Result<Self> {
        let folder = folder.as_ref();
        files::settle(folder)?;
        if !folder.join(DICT).exists()
            && let Ok((src, tgt)) = detect_languages(folder)
        {
            return Err(Error::ParallelText { folder: folder.to_owned(), src, tgt });
        }
        let vocab = Arc::new(Vocab::load(folder.join(DICT))?);
        let lines = IndexedDataset::open(folder.join(split))?;
        check_ids(&lines, &vocab)?;
        FolderRecord::check_split(folder, split, DICT, &SplitRecord::new(&vocab, lines.len() as u64))?;
        Ok(Self { lines: Arc::new(lines.into()), vocab })
    }

    /// Lines as they are: cut by `codes` where there are any, and looked up in `vocab`.
    pub fn from_lines<S: AsRef<str> + Sync>(
        lines: &[S],
        vocab: Arc<Vocab>,
        codes: Option<&Segmentation>,
    ) -> Self {
        let encoded = match codes {
            Some(codes) => MemoryDataset::encode(&vocab, &codes.segmenters()[0].segment_lines(lines)),
            None => MemoryDataset::encode(&vocab, lines),
        };
        Self { lines: Arc::new(encoded.0.into()), vocab }
    }

    /// Returns whether a folder holds one text.
    pub fn is_in(folder: impl AsRef<Path>) -> bool {
        folder.as_ref().join(DICT).is_file()
    }
}
