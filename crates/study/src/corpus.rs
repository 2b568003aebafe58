//! Corpora that the program makes itself: data of studies that need no download.

use std::path::{Path, PathBuf};

use mae_data::files::{self, FolderLock};
use mae_data::grammar::two_tasks;
use mae_data::preprocess::{PreprocessOptions, preprocess};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// A corpus that the program makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corpus {
    /// Two tasks behind a cue word ([`two_tasks`]).
    TwoTasks,
}

/// Seed of the corpus: all runs of a study have the same data.
const SEED: u64 = 1;
/// Sets with their sentence pairs.
const SETS: [(&str, usize); 3] = [("train", 20_000), ("valid", 500), ("test", 1_000)];
/// Languages, as file endings.
const LANGUAGES: [&str; 2] = ["src", "tgt"];
/// Ending of the files with a tag for each sentence.
const TAGS: &str = "task";
/// Folder in a study's folder.
const FOLDER: &str = "data";

impl Corpus {
    /// Makes the corpus in the folder of a study, unless it is there, and returns its folder: texts, tags, ids.
    pub fn make(self, study: &Path) -> Result<PathBuf> {
        let folder = study.join(FOLDER);
        files::create_folder(study)?;
        let _lock = FolderLock::wait(study)?;
        if files::recover_folder(&folder)? {
            return Ok(folder);
        }
        files::replace_folder(&folder, |aside| -> Result<()> {
            let Self::TwoTasks = self;
            let total = SETS.iter().map(|(_, pairs)| pairs).sum();
            let mut pairs = two_tasks::generate(total, SEED).into_iter();
            for (set, count) in SETS {
                let part: Vec<two_tasks::Pair> = pairs.by_ref().take(count).collect();
                let text = |of: &dyn Fn(&two_tasks::Pair) -> String| -> String {
                    part.iter().map(|pair| of(pair) + "\n").collect()
                };
                let [source, target] = LANGUAGES;
                for (ending, text) in [
                    (source, text(&|pair| pair.source.clone())),
                    (target, text(&|pair| pair.target.clone())),
                    (TAGS, text(&|pair| pair.task.cue().to_owned())),
                ] {
                    files::write(aside.join(format!("{set}.{ending}")), text.as_bytes())?;
                }
            }
            let prefix = |set: &str| Some(aside.join(set).display().to_string());
            let options = PreprocessOptions {
                trainpref: prefix("train"),
                validpref: prefix("valid"),
                testpref: prefix("test"),
                ..PreprocessOptions::new(LANGUAGES[0], LANGUAGES[1], aside)
            };
            preprocess(&options, |_| {})?;
            Ok(())
        })?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_made_once() {
        let study = tempfile::tempdir().unwrap();
        let folder = Corpus::TwoTasks.make(study.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let (sources, tags) = (read("test.src"), read("test.task"));
        assert_eq!((sources.lines().count(), tags.lines().count()), (1_000, 1_000));
        assert!(sources.lines().zip(tags.lines()).all(|(source, tag)| source.starts_with(tag)));
        let train: std::collections::HashSet<String> = read("train.src").lines().map(str::to_owned).collect();
        assert!(sources.lines().all(|source| !train.contains(source)), "nothing is seen twice");
        assert_eq!(mae_data::pairs::detect_languages(&folder).unwrap(), ("src".into(), "tgt".into()));
        std::fs::remove_file(folder.join("train.src")).unwrap();
        assert_eq!(Corpus::TwoTasks.make(study.path()).unwrap(), folder);
        assert!(!folder.join("train.src").exists(), "it was there");
    }
}
