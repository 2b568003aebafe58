//! Fingerprints of what runs are made from: data and parent. They do not depend on paths, because folders move between
//! machines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mae_data::pairs::load_vocabs;
use mae_data::{Fingerprint, IndexedDataset, TextDataset, files};
use mae_train::artifacts::{CONFIG, WEIGHTS};
use mae_train::run::Sets;

use crate::error::{Error, Result, read_if_there};
use crate::protocol::Test;

/// Fingerprints by part: `dictionaries`, the training, development and measured sets by their names, and `parent`.
pub type Origins = BTreeMap<String, String>;

/// File in a run's folder, from its start.
const FILE: &str = "made_from.json";
/// Name of the part that a study has in common besides its data.
pub const PARENT: &str = "parent";

/// Returns the fingerprints for runs on this data. Data of the wrong kind for `test` is refused.
pub fn origins(sets: Sets<'_>, test: &Test, parent: Option<&Path>) -> Result<Origins> {
    let folder = sets.folder;
    // What follows the name of a set in those of its files.
    let (dictionaries, sides) = match test {
        Test::Translation(_) => {
            let (source, target) = sets.languages()?;
            let (of_source, of_target) = load_vocabs(folder, &source, &target)?;
            let side = |language: &str| format!(".{source}-{target}.{language}");
            (vec![of_source.fingerprint(), of_target.fingerprint()], vec![side(&source), side(&target)])
        }
        Test::LanguageModel(_) => {
            (vec![TextDataset::open(folder, "train")?.vocab.fingerprint()], vec![String::new()])
        }
    };
    let mut hash = Fingerprint::default();
    for dictionary in dictionaries {
        hash.write_all(&dictionary.to_le_bytes()).expect("a hash takes everything");
    }
    let mut origins = Origins::from([("dictionaries".to_owned(), words(&hash))]);
    for split in ["train", sets.valid].into_iter().chain(test.splits()) {
        let files: Vec<PathBuf> = sides.iter().map(|side| folder.join(format!("{split}{side}"))).collect();
        // Only the training set must be there; a measurement reports that another one is missing.
        let there = files.iter().all(IndexedDataset::exists);
        let fingerprint = if there || split == "train" {
            files.iter().try_for_each(|file| IndexedDataset::open(file).map(drop))?;
            of_files(files.iter().map(|file| file.with_added_extension("bin")))?
        } else {
            "none".to_owned()
        };
        origins.insert(split.to_owned(), fingerprint);
    }
    if let Some(parent) = parent {
        origins.insert(PARENT.into(), of_files([CONFIG, WEIGHTS].map(|name| parent.join(name)))?);
    }
    Ok(origins)
}

/// Returns the parts in which two runs differ, in words; unknown ones are not compared.
pub fn differing(then: &Origins, now: &Origins) -> Vec<String> {
    let differs = |(part, value): &(&String, &String)| now.get(*part).is_some_and(|now| now != *value);
    then.iter().filter(differs).map(|(part, _)| in_words(part)).collect()
}

/// Name of a part in messages.
pub fn in_words(part: &str) -> String {
    match part {
        "dictionaries" | PARENT => part.to_owned(),
        "train" => "training set".into(),
        "valid" => "development set".into(),
        split => format!("{split} set"),
    }
}

/// Reads the fingerprints that a run was started with; empty if it has none.
pub(crate) fn read(run: &Path) -> Result<Origins> {
    let path = run.join(FILE);
    let Some(text) = read_if_there(&path)? else { return Ok(Origins::new()) };
    let advice = "remove the folder, and the run is made again";
    serde_json::from_str(&text).map_err(|source| Error::Damaged { path, advice, source })
}

/// Writes them into a run's folder.
pub(crate) fn write(run: &Path, origins: &Origins) -> Result<()> {
    let text = serde_json::to_string_pretty(origins).expect("text can always be written as JSON");
    Ok(files::write(run.join(FILE), text.as_bytes())?)
}

fn words(hash: &Fingerprint) -> String {
    format!("{:016x}", hash.value())
}

fn of_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<String> {
    let mut hash = Fingerprint::default();
    for path in paths {
        let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut hash));
        copied.map_err(Error::io("read", path))?;
    }
    Ok(words(&hash))
}
