//! Two sides of a text with their vocabularies, from a binarised folder or from lines in memory.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use crate::dataset::IndexedDataset;
use crate::error::{Error, Result};
use crate::files;
use crate::folder_record::{FolderRecord, SplitRecord};
use crate::text::TextDataset;
use crate::vocab::{EOS, Vocab};

/// Sentences of token ids held in memory, end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryDataset {
    ids: Vec<u32>,
    /// One past the last id of each sentence.
    ends: Vec<usize>,
}

impl MemoryDataset {
    /// Encodes lines on all threads; also returns the number of unknown tokens of each line.
    pub fn encode<S: AsRef<str> + Sync>(vocab: &Vocab, lines: &[S]) -> (Self, Vec<usize>) {
        let encoded: Vec<_> = lines
            .par_iter()
            .with_min_len(256)
            .map(|line| {
                let mut ids = Vec::new();
                let unknown = vocab.encode_into(line.as_ref(), &mut ids);
                (ids, unknown)
            })
            .collect();
        let sentences = encoded.iter().map(|(ids, _)| ids).collect();
        (sentences, encoded.iter().map(|(_, unknown)| *unknown).collect())
    }

    /// Appends a sentence.
    pub fn push(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
        self.ends.push(self.ids.len());
    }

    /// The ids of sentence `i`.
    pub fn get(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.ids[start..self.ends[i]]
    }

    /// Number of sentences.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no sentences.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<S: AsRef<[u32]>> FromIterator<S> for MemoryDataset {
    fn from_iter<I: IntoIterator<Item = S>>(sentences: I) -> Self {
        let mut dataset = Self::default();
        sentences.into_iter().for_each(|ids| dataset.push(ids.as_ref()));
        dataset
    }
}

/// Sentences of token ids, on disk or in memory.
#[derive(Debug)]
pub enum Sentences {
    /// In a memory-mapped file.
    Mapped(IndexedDataset),
    /// In memory.
    Memory(MemoryDataset),
}

impl Sentences {
    /// Number of sentences.
    pub fn len(&self) -> usize {
        match self {
            Self::Mapped(dataset) => dataset.len(),
            Self::Memory(dataset) => dataset.len(),
        }
    }

    /// Returns whether there are no sentences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens of sentence `i`, its `EOS` counted. Panics if there is no such sentence.
    pub fn size(&self, i: usize) -> usize {
        match self {
            Self::Mapped(dataset) => dataset.size(i),
            Self::Memory(dataset) => dataset.get(i).len(),
        }
    }

    /// Appends the ids of sentence `i` to a buffer. Panics if there is no such sentence.
    pub fn append_to(&self, i: usize, ids: &mut Vec<u32>) {
        match self {
            Self::Mapped(dataset) => dataset.append_to(i, ids),
            Self::Memory(dataset) => ids.extend_from_slice(dataset.get(i)),
        }
    }

    /// The ids of sentence `i`. Panics if there is no such sentence.
    pub fn get(&self, i: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.size(i));
        self.append_to(i, &mut ids);
        ids
    }
}

impl From<IndexedDataset> for Sentences {
    fn from(dataset: IndexedDataset) -> Self {
        Self::Mapped(dataset)
    }
}

impl From<MemoryDataset> for Sentences {
    fn from(dataset: MemoryDataset) -> Self {
        Self::Memory(dataset)
    }
}

/// A sentence of at most `most` tokens, the last of which is the end mark.
pub fn cut_to(ids: &[u32], most: usize) -> Cow<'_, [u32]> {
    if ids.len() <= most { Cow::Borrowed(ids) } else { Cow::Owned([&ids[..most - 1], &[EOS]].concat()) }
}

/// The files of one side of a split, without their endings.
pub fn side_path(folder: &Path, split: &str, [src, tgt]: [&str; 2], lang: &str) -> PathBuf {
    folder.join(side_name(split, [src, tgt], lang))
}

/// Name of the files of one side of a split, without their endings.
pub(crate) fn side_name(split: &str, [src, tgt]: [&str; 2], lang: &str) -> String {
    format!("{split}.{src}-{tgt}.{lang}")
}

/// Name of the dictionary of a language.
pub(crate) fn dict_name(lang: &str) -> String {
    format!("dict.{lang}.txt")
}

/// A parallel text as token ids.
#[derive(Debug)]
pub struct ParallelDataset {
    /// Source sentences.
    pub src: Sentences,
    /// Their translations.
    pub tgt: Sentences,
    /// Vocabulary of the source.
    pub src_vocab: Arc<Vocab>,
    /// Vocabulary of the target; the same `Arc` when both are equal.
    pub tgt_vocab: Arc<Vocab>,
}

impl ParallelDataset {
    /// Opens one split of a folder that `fairseq-preprocess` or [`mod@crate::preprocess`] wrote:
    /// `dict.{lang}.txt` and `{split}.{src}-{tgt}.{lang}.{bin,idx}`. Checks all ids against the vocabularies.
    pub fn open(folder: impl AsRef<Path>, split: &str, src: &str, tgt: &str) -> Result<Self> {
        let folder = folder.as_ref();
        files::settle(folder)?;
        let languages = [src, tgt];
        let pairs = pairs_in(folder)?;
        if !pairs.is_empty() && !pairs.iter().any(|(from, to)| [from, to] == languages) {
            let pairs = pairs.iter().map(|(from, to)| format!("{from}-{to}")).collect();
            return Err(Error::OtherPairs { folder: folder.to_owned(), pairs, wanted: languages.join("-") });
        }
        let (src_vocab, tgt_vocab) = load_vocabs(folder, src, tgt)?;
        let side = |lang: &str, vocab: &Vocab| {
            let dataset = IndexedDataset::open(side_path(folder, split, [src, tgt], lang))?;
            check_ids(&dataset, vocab)?;
            Ok::<_, Error>(dataset)
        };
        let (src, tgt) = (side(src, &src_vocab)?, side(tgt, &tgt_vocab)?);
        if src.len() != tgt.len() {
            let what = format!(
                "has {} sentences but {} has {}; the two sides are from different runs: preprocess again",
                src.len(),
                tgt.path().display(),
                tgt.len()
            );
            return Err(Error::dataset(src.path(), what));
        }
        for (lang, vocab) in [(languages[0], &src_vocab), (languages[1], &tgt_vocab)] {
            let name = side_name(split, languages, lang);
            let found = SplitRecord::new(vocab, src.len() as u64);
            FolderRecord::check_split(folder, &name, &dict_name(lang), &found)?;
        }
        Ok(Self { src: src.into(), tgt: tgt.into(), src_vocab, tgt_vocab })
    }

    /// A parallel text in memory: for text files to translate or score, the quickstart, and tests.
    pub fn from_lines<S: AsRef<str> + Sync>(
        src: &[S],
        tgt: &[S],
        src_vocab: Arc<Vocab>,
        tgt_vocab: Arc<Vocab>,
    ) -> Result<Self> {
        if src.len() != tgt.len() {
            return Err(Error::UnequalSides { src: src.len(), tgt: tgt.len() });
        }
        let src = MemoryDataset::encode(&src_vocab, src).0.into();
        let tgt = MemoryDataset::encode(&tgt_vocab, tgt).0.into();
        Ok(Self { src, tgt, src_vocab, tgt_vocab })
    }

    /// Number of sentence pairs.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.src.is_empty()
    }

    /// Source and target lengths of all pairs, `EOS` counted, for the sampler.
    pub fn lengths(&self) -> Vec<(u32, u32)> {
        (0..self.len()).map(|i| (self.src.size(i) as u32, self.tgt.size(i) as u32)).collect()
    }
}

/// Loads `dict.{src}.txt` and `dict.{tgt}.txt`; equal vocabularies are shared.
pub fn load_vocabs(folder: impl AsRef<Path>, src: &str, tgt: &str) -> Result<(Arc<Vocab>, Arc<Vocab>)> {
    let load = |lang: &str| Vocab::load(folder.as_ref().join(dict_name(lang)));
    let (src, tgt) = (Arc::new(load(src)?), Arc::new(load(tgt)?));
    Ok(if src == tgt { (src.clone(), src) } else { (src, tgt) })
}

/// Finds the language pair of a binarised folder from its `{split}.{src}-{tgt}.{lang}.idx` names.
pub fn detect_languages(folder: impl AsRef<Path>) -> Result<(String, String)> {
    let folder = folder.as_ref();
    let mut pairs = pairs_in(folder)?;
    let folder = folder.to_owned();
    match pairs.len() {
        1 => Ok(pairs.remove(0)),
        0 if TextDataset::is_in(&folder) => Err(Error::OneText { folder }),
        0 => Err(Error::NoPairs { folder }),
        _ => {
            let pairs = pairs.iter().map(|(src, tgt)| format!("{src}-{tgt}")).collect();
            Err(Error::SeveralPairs { folder, pairs })
        }
    }
}

/// All language pairs of a folder, in order.
pub(crate) fn pairs_in(folder: &Path) -> Result<Vec<(String, String)>> {
    files::settle(folder)?;
    let mut pairs = Vec::new();
    if !folder.exists() {
        return Err(Error::dataset(folder, "there is no such folder"));
    }
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".idx") else { continue };
        let mut parts = stem.split('.');
        if let (Some(_), Some(pair), Some(lang), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
            && let Some((src, tgt)) = pair
                .match_indices('-') // a language's name may have one of its own: `zh-Hans`
                .map(|(at, _)| (&pair[..at], &pair[at + 1..]))
                .find(|&(src, tgt)| lang == src || lang == tgt)
        {
            pairs.push((src.to_owned(), tgt.to_owned()));
        }
    }
    pairs.sort();
    pairs.dedup();
    Ok(pairs)
}

/// Every sentence must end in `EOS` and have no id outside the vocabulary.
pub(crate) fn check_ids(dataset: &IndexedDataset, vocab: &Vocab) -> Result<()> {
    let size = vocab.len();
    let wrong = dataset.find_wrong(|ids| match ids.iter().find(|&&id| id as usize >= size) {
        Some(id) => Some(format!(
            "has id {id}, but the vocabulary beside it has {size} entries; the dict.txt is from another run: \
             put the right one back or preprocess again"
        )),
        None if ids.last() != Some(&EOS) => {
            Some("does not end in </s>; preprocess it with EOS appended".into())
        }
        None => None,
    });
    wrong.map_or(Ok(()), |(i, what)| Err(Error::dataset(dataset.path(), format!("sentence {i} {what}"))))
}
