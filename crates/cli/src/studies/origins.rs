//! What runs are made from: data and parent, known by what they are and not by where they lie, for folders move between
//! machines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mae_data::pairs::load_vocabs;
use mae_data::{Fingerprint, IndexedDataset, TextDataset};
use mae_model::folder::{CONFIG, WEIGHTS, write_aside};

use super::protocol::Test;
use crate::training::material::Sets;

/// Fingerprints by part: `dictionaries`, the training, development and measured sets by their names, and `parent`.
pub type Origins = BTreeMap<String, String>;

/// In a run's folder, from its beginning.
const FILE: &str = "made_from.json";
/// The part that a study has in common besides its data.
pub const PARENT: &str = "parent";

/// What runs on this data are made from. Data of the wrong kind for `test` is refused.
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
    dictionaries.iter().try_for_each(|dictionary| hash.write_all(&dictionary.to_le_bytes()))?;
    let mut origins = Origins::from([("dictionaries".to_owned(), words(&hash))]);
    for split in ["train", sets.valid].into_iter().chain(test.splits()) {
        let files: Vec<PathBuf> = sides.iter().map(|side| folder.join(format!("{split}{side}"))).collect();
        // Only the training set must be there; who measures another one says what is missing.
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

/// The parts in which two runs differ, in words; what is not known of either is not compared.
pub fn differing(then: &Origins, now: &Origins) -> Vec<String> {
    let differs = |(part, value): &(&String, &String)| now.get(*part).is_some_and(|now| now != *value);
    then.iter().filter(differs).map(|(part, _)| in_words(part)).collect()
}

/// A part, in words.
pub fn in_words(part: &str) -> String {
    match part {
        "dictionaries" | PARENT => part.to_owned(),
        "train" => "training set".into(),
        "valid" => "development set".into(),
        split => format!("{split} set"),
    }
}

/// What the run in a folder was begun with; empty where it does not say.
pub fn read(run: &Path) -> Result<Origins> {
    let path = run.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; remove the folder, and the run is made again", path.display())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Origins::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Keeps it in a run's folder.
pub fn write(run: &Path, origins: &Origins) -> Result<()> {
    Ok(write_aside(&run.join(FILE), serde_json::to_string_pretty(origins)?.as_bytes())?)
}

fn words(hash: &Fingerprint) -> String {
    format!("{:016x}", hash.value())
}

fn of_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<String> {
    let mut hash = Fingerprint::default();
    for path in paths {
        let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut hash));
        copied.with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(words(&hash))
}
