//! The paper's transfer study: a trained model fitted to other data by several methods, on parts of that data.

use std::path::Path;

use mae_model::ModelConfig;
use mae_model::config::ARCHITECTURES;
use mae_train::Recipe;
use mae_train::config::Free;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::{Error, PlanFault, Result};
use crate::job::{Job, Work};
use crate::keys::{Owned, check_list, check_names, refuse_owned, train_keys, whole};
use crate::protocol::Translation;

/// The plan of the library.
const PLAN: &str = include_str!("../../../configs/studies/transfer.toml");

/// Keys that a plan decides itself, and what decides them.
const OWNED: &[Owned] = &[
    ("seed", "`seeds`"),
    ("subset", "`fractions`"),
    ("free", "a method's `free`"),
    ("max_update", "a method's `max_update`"),
    ("finetune_from_model", "the parent model"),
];

/// A transfer study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Subject, in a line.
    pub title: String,
    /// Meaning of the paper's numbers.
    #[serde(default)]
    pub paper: String,
    /// Reasons why our numbers and the paper's cannot be compared.
    #[serde(default)]
    pub caveat: String,
    /// Every method is run once with each.
    pub seeds: Vec<u64>,
    /// Parts of the training set, in per cent.
    pub fractions: Vec<f64>,
    /// Keys of every method: `[keys.model]` and `[keys.train]`.
    #[serde(default)]
    pub keys: Table,
    /// Protocol that models are measured by.
    pub translation: Translation,
    /// The methods that are compared.
    #[serde(rename = "method")]
    pub methods: Vec<Method>,
}

/// A way to fit a model to other data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Name of the method.
    pub name: String,
    /// Initial weights.
    #[serde(default)]
    pub begin: InitialWeights,
    /// Parameters that are trained; none, if not given.
    pub free: Option<Free>,
    /// Updates at most.
    #[serde(default)]
    pub max_update: u64,
    /// Keys of its own.
    #[serde(default)]
    pub keys: Table,
    /// The paper's number, with all of the training set.
    pub paper: Option<f64>,
}

/// Initial weights of a method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialWeights {
    /// Those of the trained model.
    #[default]
    Parent,
    /// Random ones.
    #[serde(rename = "nothing")]
    Random,
}

/// One run of the study.
pub struct Cell<'a> {
    /// The method.
    pub method: &'a Method,
    /// The part of the training set, in per cent; none where nothing is trained.
    pub fraction: Option<f64>,
    /// The seed.
    pub seed: u64,
}

impl Cell<'_> {
    /// The name of its folder.
    pub fn name(&self) -> String {
        match self.fraction {
            None => self.method.name.clone(),
            Some(fraction) => format!("{}-{fraction}pct-{}", self.method.name, self.seed),
        }
    }
}

impl Plan {
    /// Loads a plan from a file; without one, the paper's.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let (name, text) = match path {
            None => ("the built-in plan".to_owned(), PLAN.to_owned()),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
                (format!("plan {}", path.display()), text)
            }
        };
        let parse = || {
            let plan: Self = toml::from_str(&text)?;
            plan.check().map(|()| plan)
        };
        parse().map_err(|error: Error| error.within(name))
    }

    /// Checks that it makes sense.
    pub fn check(&self) -> Result<()> {
        if self.methods.is_empty() {
            return Err(PlanFault::Missing("method").into());
        }
        check_list("seeds", "seeds = [1]", &self.seeds)?;
        check_list("fractions", "[5, 100]", &self.fractions)?;
        let is_part = |fraction: f64| fraction > 0.0 && fraction <= 100.0;
        if let Some(fraction) = self.fractions.iter().find(|fraction| !is_part(**fraction)) {
            return Err(PlanFault::Fraction(*fraction).into());
        }
        let keys = std::iter::once(&self.keys).chain(self.methods.iter().map(|method| &method.keys));
        refuse_owned(keys, OWNED)?;
        check_names("method", &self.methods.iter().map(|method| method.name.as_str()).collect::<Vec<_>>())?;
        for method in &self.methods {
            let fault = match method.free {
                None if method.begin == InitialWeights::Random => PlanFault::NothingTrained,
                Some(_) if method.max_update == 0 => PlanFault::Updates,
                _ => continue,
            };
            return Err(Error::from(fault).within(format!("method {}", method.name)));
        }
        Ok(self.translation.check()?)
    }

    /// Returns the method of this name.
    pub fn method(&mut self, name: &str) -> Result<&mut Method> {
        let known: Vec<String> = self.methods.iter().map(|method| method.name.clone()).collect();
        let found = self.methods.iter_mut().find(|method| method.name == name);
        found.ok_or_else(|| Error::Unknown { what: "method", name: name.to_owned(), known })
    }

    /// Returns all runs: the whole training set first, then the smaller parts.
    pub fn cells(&self) -> Vec<Cell<'_>> {
        let mut fractions = self.fractions.clone();
        fractions.sort_by(|a, b| b.total_cmp(a));
        let mut cells = Vec::new();
        for method in self.methods.iter().filter(|method| method.free.is_none()) {
            cells.push(Cell { method, fraction: None, seed: self.seeds[0] });
        }
        for &seed in &self.seeds {
            for &fraction in &fractions {
                for method in self.methods.iter().filter(|method| method.free.is_some()) {
                    cells.push(Cell { method, fraction: Some(fraction), seed });
                }
            }
        }
        cells
    }

    /// Returns the jobs of all runs, checked. `parent` is the trained model's folder; `over` has keys that are laid over
    /// those of every method.
    pub fn jobs(&self, parent: &Path, over: &[Table]) -> Result<Vec<Job>> {
        let config: ModelConfig = mae_model::folder::load_config(parent)?;
        // Also where nothing is trained, a key that does not exist is a mistake.
        let checked = over.iter().cloned().fold(Recipe::from(model_layer(&config)), Recipe::with);
        checked.config::<ModelConfig>()?;
        let job = |cell: &Cell<'_>| {
            let work = match (cell.method.free, cell.fraction) {
                (Some(free), Some(fraction)) => {
                    let recipe = self.recipe(&config, parent, (cell, free, fraction), over);
                    Work::Train(recipe.map_err(|error| error.within(format!("method {}", cell.method.name)))?)
                }
                _ => Work::Measure(parent.to_owned()),
            };
            Ok(Job { system: cell.method.name.clone(), seed: cell.seed, name: cell.name(), work })
        };
        self.cells().iter().map(job).collect()
    }

    fn recipe(
        &self,
        config: &ModelConfig,
        parent: &Path,
        (cell, free, fraction): (&Cell<'_>, Free, f64),
        over: &[Table],
    ) -> Result<Recipe> {
        let mut own = vec![
            ("free", Value::try_from(free).expect("an enum without values can be written as TOML")),
            ("subset", Value::Float(fraction / 100.0)),
            ("seed", whole(cell.seed)?),
            ("max_update", whole(cell.method.max_update)?),
        ];
        if cell.method.begin == InitialWeights::Parent {
            let path = parent.to_str().ok_or_else(|| Error::NotUtf8 { path: parent.to_owned() })?;
            own.push(("finetune_from_model", Value::String(path.to_owned())));
        }
        let recipe = Recipe::from(model_layer(config)).with(self.keys.clone()).with(cell.method.keys.clone());
        let recipe = over.iter().cloned().fold(recipe, Recipe::with).with(train_keys(own));
        recipe.config::<ModelConfig>()?;
        Ok(recipe)
    }
}

/// The parent's configuration as a layer.
fn model_layer(config: &ModelConfig) -> Table {
    let mut model = Table::try_from(config).expect("configurations can be written as TOML");
    if !ARCHITECTURES.contains(&config.arch.as_str()) {
        model.remove("arch");
    }
    Table::from_iter([("model".to_owned(), Value::Table(model))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_plan_is_complete() {
        let plan = Plan::load(None).unwrap();
        let names: Vec<&str> = plan.methods.iter().map(|method| method.name.as_str()).collect();
        assert_eq!(names, ["noft", "ftg", "ftg+", "ftall", "scratch"]);
        assert!(plan.methods.iter().all(|method| method.paper.is_some()));
        let cells = plan.cells();
        assert_eq!(cells.len(), 1 + 4 * 6);
        assert_eq!((cells[0].name(), cells[1].name()), ("noft".into(), "ftg-100pct-1".into()));
    }
}
