//! A study in TOML: what is trained, on what budget, how it is measured, and what the paper reports.

use std::path::Path;

use mae_train::Recipe;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::corpus::Corpus;
use crate::error::{Error, PlanFault, Result};
use crate::job::{Job, Work, folder_name};
use crate::keys::{check_list, check_names, refuse_owned, train_keys, whole};
use crate::protocol::{LanguageModel, Test, Translation};

macro_rules! studies {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every study of the library.
        const STUDIES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../configs/studies/", $name, ".toml")))),*];
    };
}

studies![
    "iwslt14",
    "wmt14",
    "wikitext103",
    "europarl160k",
    "wiki",
    "decoder-gates",
    "multi30k",
    "ted-dose",
    "two-tasks",
    "gates-alone",
    "europarl-regime",
    "domains",
    "nobcd-dose",
    "gate-optimizers",
    "other-gates",
    "iwslt14-tuning",
    "wikitext103-long",
];

/// A study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Subject, in a line.
    pub title: String,
    /// Table of the paper, and meaning of the paper's numbers.
    #[serde(default)]
    pub paper: String,
    /// Reasons why our numbers and the paper's cannot be compared.
    #[serde(default)]
    pub caveat: String,
    /// Corpus that the program makes, where no data are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<Corpus>,
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
    /// Protocol for translation models.
    pub translation: Option<Translation>,
    /// Protocol for language models.
    pub language_model: Option<LanguageModel>,
    /// The systems that are compared.
    #[serde(rename = "system")]
    pub systems: Vec<Contender>,
}

/// A system that a study compares.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Name, also of its runs' folders.
    pub name: String,
    /// The recipe: a name or a .toml file.
    pub recipe: String,
    /// Keys laid over it.
    #[serde(default)]
    pub keys: Table,
    /// The paper's number.
    pub paper: Option<f64>,
}

/// Returns the names and titles of all studies.
pub fn list() -> Vec<(&'static str, String)> {
    let title = |text: &str| Study::parse(text).map_or_else(|error| error.to_string(), |study| study.title);
    STUDIES.iter().map(|(name, text)| (*name, title(text))).collect()
}

impl Study {
    /// Loads a study by its name, or from a .toml file.
    pub fn load(name: &str) -> Result<Self> {
        let known = STUDIES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let text = match known {
            Some(text) => text,
            None if Path::new(name).extension().is_some_and(|end| end == "toml") => {
                std::fs::read_to_string(name).map_err(Error::io("read", name))?
            }
            None => {
                let known = STUDIES.iter().map(|(name, _)| *name).collect();
                return Err(Error::UnknownStudy { name: name.to_owned(), known });
            }
        };
        Self::parse(&text).map_err(|error| error.within(format!("study {name}")))
    }

    fn parse(text: &str) -> Result<Self> {
        let study: Self = toml::from_str(text)?;
        study.check()?;
        Ok(study)
    }

    fn check(&self) -> Result<()> {
        if self.systems.is_empty() {
            return Err(PlanFault::Missing("system").into());
        }
        check_list("seeds", "seeds = [1]", &self.seeds)?;
        let keys = std::iter::once(&self.keys).chain(self.systems.iter().map(|system| &system.keys));
        refuse_owned(keys, &[("seed", "`seeds`")])?;
        let test = self.test()?;
        let names: Vec<&str> = self.systems.iter().map(|system| system.name.as_str()).collect();
        check_names("system", &names)?;
        if !self.baseline.is_empty() && !names.contains(&self.baseline.as_str()) {
            let known = names.iter().map(ToString::to_string).collect();
            return Err(PlanFault::Baseline { name: self.baseline.clone(), known }.into());
        }
        if let Test::Translation(test) = &test {
            test.check()?;
        }
        Ok(())
    }

    /// Returns the protocol that its models are measured by.
    pub fn test(&self) -> Result<Test> {
        match (&self.translation, &self.language_model) {
            (Some(test), None) => Ok(Test::Translation(test.clone())),
            (None, Some(test)) => Ok(Test::LanguageModel(test.clone())),
            _ => Err(PlanFault::Test.into()),
        }
    }

    /// Returns the same study with another protocol.
    #[must_use]
    pub fn with_test(&self, test: Test) -> Self {
        let mut study = self.clone();
        match test {
            Test::Translation(test) => study.translation = Some(test),
            Test::LanguageModel(test) => study.language_model = Some(test),
        }
        study
    }

    /// Name of the system that the others are compared with.
    pub fn baseline(&self) -> &str {
        if self.baseline.is_empty() { &self.systems[0].name } else { &self.baseline }
    }

    /// Keeps only the systems of these names, or all if there are no names.
    pub fn keep_only(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let known: Vec<String> = self.systems.iter().map(|system| system.name.clone()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(Error::Unknown { what: "system", name: name.clone(), known });
        }
        self.systems.retain(|system| names.contains(&system.name));
        Ok(())
    }

    /// Returns the jobs of all runs, checked; `over` has keys that are laid over every recipe. All systems with one seed
    /// come first: a table of one seed is worth more than one system with all seeds.
    pub fn jobs(&self, over: &[Table]) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for &seed in &self.seeds {
            for system in &self.systems {
                let recipe = self.recipe(system, seed, over);
                let recipe = recipe.map_err(|error| error.within(format!("system {}", system.name)))?;
                let name = folder_name(&system.name, seed);
                jobs.push(Job { system: system.name.clone(), seed, name, work: Work::Train(recipe) });
            }
        }
        Ok(jobs)
    }

    /// The configuration of a run: recipe, the study's keys and budget, the system's keys, `over`, the seed. It is checked
    /// here, so that a mistake in the last system is found before the first is trained.
    fn recipe(&self, system: &Contender, seed: u64, over: &[Table]) -> Result<Recipe> {
        let test = self.test()?;
        let mut budget = Vec::new();
        for (key, value) in [("max_epoch", self.max_epoch), ("max_update", self.max_update)] {
            if value > 0 {
                budget.push((key, whole(value)?));
            }
        }
        let recipe = Recipe::load(&system.recipe)?.with(self.keys.clone()).with(train_keys(budget));
        let recipe = over.iter().cloned().fold(recipe.with(system.keys.clone()), Recipe::with);
        let recipe = recipe.with(train_keys([("seed", whole(seed)?)]));
        let (found, wanted) = (recipe.task(), test.task());
        if found != wanted {
            return Err(PlanFault::Task { recipe: system.recipe.clone(), found, wanted }.into());
        }
        let train = recipe.train_config()?;
        if train.max_epoch == 0 && train.max_update == 0 && train.patience == 0 {
            return Err(PlanFault::NoEnd.into());
        }
        if train.keep_last_epochs < test.average() {
            let keep = whole(test.average() as u64)?;
            return Ok(recipe.with(train_keys([("keep_last_epochs", keep)])));
        }
        Ok(recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_is_valid() {
        for (name, _) in STUDIES {
            let study = Study::load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            study.jobs(&[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn the_papers_tables_are_complete() {
        for (name, systems) in [("iwslt14", 6), ("wmt14", 7), ("europarl160k", 6), ("wikitext103", 4)] {
            let study = Study::load(name).unwrap();
            assert_eq!(study.systems.len(), systems, "{name}");
            assert!(study.systems.iter().all(|system| system.paper.is_some()), "{name}");
        }
    }
}
