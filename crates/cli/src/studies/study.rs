//! A study in TOML: what is trained, on what budget, how it is measured, and what the paper reports.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use mae_model::folder::Task;
use mae_model::{LmConfig, ModelConfig};
use mae_train::RunConfig;
use mae_train::config::{suggestion, task};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::keys::{Owned, check_name, refuse_owned, refuse_twice, train_keys, whole};
use super::protocol::{LanguageModel, Test, Translation};
use super::result::RunResult;
use crate::recipes;

macro_rules! studies {
    ($($name:literal),* $(,)?) => {
        /// Every study that comes with the program: name and text.
        const STUDIES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../configs/studies/", $name, ".toml")))),*];
    };
}

studies!["iwslt14", "wmt14", "wikitext103", "europarl160k", "wiki", "decoder-gates", "multi30k"];

/// What `--set` cannot change in a study, and the flags that do.
pub const OWNED: &[Owned] =
    &[("seed", "--seeds"), ("max_epoch", "--max-epoch"), ("max_update", "--max-update")];

/// A study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// What it is about, in a line.
    pub title: String,
    /// Which of the paper's tables it is, and what the paper's numbers are.
    #[serde(default)]
    pub paper: String,
    /// What keeps our numbers and the paper's from being compared.
    #[serde(default)]
    pub caveat: String,
    /// The system that the others are compared with; the first, if not given.
    #[serde(default)]
    pub baseline: String,
    /// Every system is trained once with each.
    pub seeds: Vec<u64>,
    /// Epochs of every run; 0: as its recipe says.
    #[serde(default)]
    pub max_epoch: u64,
    /// Updates of every run; 0: as its recipe says.
    #[serde(default)]
    pub max_update: u64,
    /// Keys laid over every recipe: `[keys.model]` and `[keys.train]`.
    #[serde(default)]
    pub keys: Table,
    /// How translation models are measured.
    pub translation: Option<Translation>,
    /// How language models are measured.
    pub language_model: Option<LanguageModel>,
    /// What is compared.
    #[serde(rename = "system")]
    pub systems: Vec<System>,
}

/// A system of a study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name, also of its runs' folders.
    pub name: String,
    /// The recipe: a name or a .toml file.
    pub recipe: String,
    /// Keys laid over it.
    #[serde(default)]
    pub keys: Table,
    /// The paper's number.
    pub paper: Option<f64>,
}

/// The names and titles of all studies.
pub fn list() -> Vec<(&'static str, String)> {
    let title = |text: &str| Study::parse(text).map_or_else(|error| error.to_string(), |study| study.title);
    STUDIES.iter().map(|(name, text)| (*name, title(text))).collect()
}

impl Study {
    /// A study by its name, or from a .toml file.
    pub fn load(name: &str) -> Result<Self> {
        let known = STUDIES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let text = match known {
            Some(text) => text,
            None if Path::new(name).extension().is_some_and(|end| end == "toml") => {
                std::fs::read_to_string(name).with_context(|| format!("study {name}"))?
            }
            None => {
                let names: Vec<&str> = STUDIES.iter().map(|(name, _)| *name).collect();
                let hint = suggestion(name, names.iter());
                bail!(
                    "no study is called `{name}` (there are {}; or give a .toml file){hint}",
                    names.join(", ")
                )
            }
        };
        Self::parse(&text).with_context(|| format!("study {name}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let study: Self = toml::from_str(text)?;
        study.check()?;
        Ok(study)
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.systems.is_empty(), "there is no [[system]]; at least one is needed");
        ensure!(!self.seeds.is_empty(), "`seeds` is empty; at least one is needed, as in seeds = [1]");
        refuse_twice("seeds", &self.seeds)?;
        let keys = std::iter::once(&self.keys).chain(self.systems.iter().map(|system| &system.keys));
        refuse_owned(keys, &[("seed", "`seeds`")])?;
        let test = self.test()?;
        for (i, system) in self.systems.iter().enumerate() {
            check_name(&system.name)?;
            let twice = self.systems[..i].iter().any(|other| other.name == system.name);
            ensure!(!twice, "two systems are called `{}`", system.name);
        }
        let names = || self.systems.iter().map(|system| &system.name);
        if !self.baseline.is_empty() && !names().any(|name| *name == self.baseline) {
            bail!("baseline = \"{0}\" is no system{1}", self.baseline, suggestion(&self.baseline, names()));
        }
        if let Test::Translation(test) = &test {
            test.check()?;
        }
        Ok(())
    }

    /// How its models are measured.
    pub fn test(&self) -> Result<Test> {
        match (&self.translation, &self.language_model) {
            (Some(test), None) => Ok(Test::Translation(test.clone())),
            (None, Some(test)) => Ok(Test::LanguageModel(test.clone())),
            _ => bail!("say how models are measured: either [translation] or [language_model]"),
        }
    }

    /// The study as its results were measured, for captions.
    pub fn as_measured(&self, results: &[RunResult]) -> Result<Self> {
        let mut study = self.clone();
        match self.test()?.as_measured(results.iter())? {
            Test::Translation(test) => study.translation = Some(test),
            Test::LanguageModel(test) => study.language_model = Some(test),
        }
        Ok(study)
    }

    /// The name of the system that the others are compared with.
    pub fn baseline(&self) -> &str {
        if self.baseline.is_empty() { &self.systems[0].name } else { &self.baseline }
    }

    /// Leaves only systems of these names, or all if there are none.
    pub fn keep_only(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let known = || self.systems.iter().map(|system| &system.name);
            if !known().any(|known| known == name) {
                let all: Vec<&str> = known().map(String::as_str).collect();
                let hint = suggestion(name, known());
                bail!("--only {name}: the study has no such system (there are {}){hint}", all.join(", "));
            }
        }
        self.systems.retain(|system| names.contains(&system.name));
        Ok(())
    }

    /// The layers of a run's configuration: recipe, the study's keys and budget, the system's keys, `over`, the seed.
    /// They are checked here, so that a mistake in the last system does not wait for the first to be trained.
    pub fn layers(&self, system: &System, seed: u64, over: &[Table]) -> Result<Vec<Table>> {
        let test = self.test()?;
        let mut layers = recipes::layers(&system.recipe)?;
        layers.push(self.keys.clone());
        let mut budget = Table::new();
        for (key, value) in [("max_epoch", self.max_epoch), ("max_update", self.max_update)] {
            if value > 0 {
                budget.insert(key.into(), whole(value)?);
            }
        }
        layers.push(train_keys(budget));
        layers.push(system.keys.clone());
        layers.extend_from_slice(over);
        layers.push(train_keys(Table::from_iter([("seed".to_owned(), whole(seed)?)])));
        let found = task(&layers);
        ensure!(
            found == test.task(),
            "the recipe {} is for a {found}, the study for a {}",
            system.recipe,
            test.task()
        );
        let train = match found {
            Task::Translation => RunConfig::<ModelConfig>::from_layers(&layers)?.train,
            Task::LanguageModeling => RunConfig::<LmConfig>::from_layers(&layers)?.train,
        };
        ensure!(
            train.max_epoch > 0 || train.max_update > 0 || train.patience > 0,
            "nothing ends this run: give the study max_epoch or max_update"
        );
        if train.keep_last_epochs < test.average() {
            let keep = whole(test.average() as u64)?;
            layers.push(train_keys(Table::from_iter([("keep_last_epochs".to_owned(), keep)])));
        }
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_is_valid() {
        for (name, _) in STUDIES {
            let study = Study::load(name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            for system in &study.systems {
                let layers = study.layers(system, 1, &[]);
                layers.unwrap_or_else(|error| panic!("{name}, {}: {error:#}", system.name));
            }
        }
    }

    #[test]
    fn the_papers_tables_are_complete() {
        for (name, systems) in [("iwslt14", 6), ("wmt14", 6), ("europarl160k", 6), ("wikitext103", 4)] {
            let study = Study::load(name).unwrap();
            assert_eq!(study.systems.len(), systems, "{name}");
            assert!(study.systems.iter().all(|system| system.paper.is_some()), "{name}");
        }
    }
}
