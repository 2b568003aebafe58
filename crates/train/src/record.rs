//! The record of a run: `run.toml`, and those that were in force before it.
//!
//! A record is written when updates begin, never by a run that is refused or has nothing left to do. A run that resumes
//! with another configuration keeps the older record as `run.1.toml`, `run.2.toml` and so on, each with the number of
//! updates until which it was in force.

use std::path::{Path, PathBuf};

use mae_data::files;
use mae_model::{Config, provenance};

use crate::keys::{self, Keys};
use crate::{Result, RunConfig, artifacts};

/// First words of a record that was replaced.
const UNTIL: &str = "# until update ";

/// Contents of `run.toml`: the program, the data and the whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    text: String,
}

/// A record that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Updates that the run had made when it was replaced.
    pub until: u64,
    /// Its keys and values.
    pub config: Keys,
}

impl Record {
    /// Record of a run on `data` with this configuration.
    pub fn new<C: Config>(data: &str, config: &RunConfig<C>) -> Self {
        Self { text: format!("# {}\n# data: {data}\n\n{}", provenance::program(), config.to_toml()) }
    }

    /// Writes the record of a run that has made `updates` updates, and keeps another one that is there.
    pub fn write(&self, folder: &Path, updates: u64) -> Result<()> {
        let path = folder.join(artifacts::RECORD);
        match std::fs::read_to_string(&path) {
            Ok(there) if there == self.text => return Ok(()),
            Ok(there) => {
                let mut names = (1..).map(|number: u64| numbered(folder, number));
                let free = names.find(|name| !name.exists()).expect("there are numbers enough");
                files::write(free, format!("{UNTIL}{updates}\n{there}").as_bytes())?;
            }
            Err(_) => {}
        }
        Ok(files::write(path, self.text.as_bytes())?)
    }
}

/// Reads the records that were replaced, the oldest first. Files that are no records are left out.
pub fn earlier(folder: &Path) -> Vec<Earlier> {
    let texts = (1..).map_while(|number| std::fs::read_to_string(numbered(folder, number)).ok());
    let read = |text: String| {
        let until = text.lines().next()?.strip_prefix(UNTIL)?.parse().ok()?;
        Some(Earlier { until, config: keys::parse(&text).ok()? })
    };
    texts.filter_map(read).collect()
}

fn numbered(folder: &Path, number: u64) -> PathBuf {
    folder.join(artifacts::RECORD).with_extension(format!("{number}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recipe;

    #[test]
    fn records_that_were_replaced_are_kept_with_their_updates() {
        let folder = tempfile::tempdir().unwrap();
        let record = |lr: f64| {
            let recipe = Recipe::load("multi30k-base").unwrap().set(&format!("train.lr={lr}")).unwrap();
            Record::new("bin", &recipe.config::<mae_model::ModelConfig>().unwrap())
        };
        let names = || {
            let files = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> =
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        record(0.5).write(folder.path(), 0).unwrap();
        record(0.5).write(folder.path(), 10).unwrap();
        assert_eq!(names(), ["run.toml"]);
        record(0.25).write(folder.path(), 10).unwrap();
        record(0.125).write(folder.path(), 30).unwrap();
        assert_eq!(names(), ["run.1.toml", "run.2.toml", "run.toml"]);
        let rates: Vec<_> =
            earlier(folder.path()).into_iter().map(|e| (e.until, e.config["train.lr"].clone())).collect();
        assert_eq!(rates, [(10, "0.5".to_owned()), (30, "0.25".to_owned())]);
        let now = std::fs::read_to_string(folder.path().join("run.toml")).unwrap();
        assert!(now.contains("lr = 0.125") && now.starts_with("# mae "), "{now}");
    }
}
