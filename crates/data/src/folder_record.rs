//! `preprocess.json` in a binarised folder: the dictionary that each split was made with, by fingerprint, and the rules
//! that cut its text. A folder whose files do not belong together is refused. Folders of others have no such file and
//! are taken as they are.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files;
use crate::fingerprint::Fingerprint;
use crate::segmentation;
use crate::vocab::Vocab;

/// Name of the file.
pub(crate) const RECORD: &str = "preprocess.json";
/// The layout that this version writes; later ones are not checked.
const FORMAT: u32 = 1;

/// Record of a binarised folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FolderRecord {
    format: u32,
    /// Fingerprint of the files of the segmentation, in hexadecimal digits; empty without any.
    #[serde(default)]
    segmentation: String,
    /// Sides of splits by the names of their files, without endings.
    #[serde(default)]
    splits: BTreeMap<String, SplitRecord>,
}

/// Record of one side of a split.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SplitRecord {
    /// Fingerprint of its dictionary, in hexadecimal digits.
    pub(crate) dictionary: String,
    /// Sentences.
    pub(crate) sentences: u64,
}

impl SplitRecord {
    pub(crate) fn new(vocab: &Vocab, sentences: u64) -> Self {
        Self { dictionary: hexadecimal(vocab.fingerprint()), sentences }
    }
}

impl FolderRecord {
    /// Writes the record of new splits to `place`; splits of `earlier` that are not among them stay.
    pub(crate) fn write(
        place: &Path,
        earlier: Option<Self>,
        new: impl IntoIterator<Item = (String, SplitRecord)>,
    ) -> Result<()> {
        let mut splits = earlier.map_or_else(BTreeMap::new, |earlier| earlier.splits);
        splits.extend(new);
        let record = Self { format: FORMAT, segmentation: segmentation_of(place)?, splits };
        let mut json = serde_json::to_string_pretty(&record).expect("a record can always be written as JSON");
        json.push('\n');
        files::write(place.join(RECORD), json.as_bytes())
    }

    /// Reads the record of a folder, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            text => text.map_err(Error::io("read", &path))?,
        };
        let record: Self = serde_json::from_str(&text).map_err(|fault| {
            Error::dataset(&path, format!("{fault}; preprocess again, or remove the file"))
        })?;
        Ok((record.format == FORMAT).then_some(record))
    }

    /// Removes a side of a split that is no longer in the folder.
    pub(crate) fn forget(&mut self, name: &str) {
        self.splits.remove(name);
    }

    /// Fails if a side of a split was not made with this dictionary.
    pub(crate) fn check_split(folder: &Path, name: &str, dict: &str, found: &SplitRecord) -> Result<()> {
        let Some(record) = Self::read(folder)? else { return Ok(()) };
        let what = match record.splits.get(name) {
            Some(made) if made.dictionary != found.dictionary => format!(
                "is not the dictionary that {name} was made with ({RECORD} says so): put the right one back, or \
                 preprocess again"
            ),
            Some(made) if made.sentences != found.sentences => {
                let what = format!(
                    "has {} sentences, but {} when it was made ({RECORD} says so): put the right file back, or \
                     preprocess again",
                    found.sentences, made.sentences
                );
                return Err(Error::dataset(&folder.join(name), what));
            }
            // Splits that somebody added know their dictionary best.
            _ => return Ok(()),
        };
        Err(Error::dataset(&folder.join(dict), what))
    }

    /// Fails if the rules that cut text are not those that the splits were made with.
    pub(crate) fn check_segmentation(folder: &Path) -> Result<()> {
        let Some(record) = Self::read(folder)? else { return Ok(()) };
        if record.segmentation == segmentation_of(folder)? {
            return Ok(());
        }
        let what = format!(
            "the BPE codes or tokenizer are not those that the splits were made with ({RECORD} says so): put the right \
             ones back, or preprocess again"
        );
        Err(Error::dataset(folder, what))
    }
}

/// Fingerprint of the files of a folder's segmentation.
fn segmentation_of(folder: &Path) -> Result<String> {
    let (mut hash, mut any) = (Fingerprint::default(), false);
    for name in segmentation::FILES {
        let path = folder.join(name);
        if path.exists() {
            let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
            write!(hash, "{name}\n{}\n", bytes.len()).and_then(|()| hash.write_all(&bytes)).ok();
            any = true;
        }
    }
    Ok(if any { hexadecimal(hash.value()) } else { String::new() })
}

fn hexadecimal(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}
