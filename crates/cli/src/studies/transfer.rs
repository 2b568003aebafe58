//! The paper's transfer study: a trained model fitted to other data by several methods, on parts of that data.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use mae_model::ModelConfig;
use mae_model::config::ARCHITECTURES;
use mae_train::RunConfig;
use mae_train::config::{Free, suggestion};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::keys::{Owned, check_name, refuse_owned, refuse_twice, train_keys, whole};
use super::protocol::Translation;
use super::runner::{Job, Work};

/// The plan that comes with the program.
const PLAN: &str = include_str!("../../../../configs/studies/transfer.toml");

/// What `--set` cannot change in a transfer study, and the flags that do.
pub const OWNED: &[Owned] = &[
    ("seed", "--seeds"),
    ("subset", "--fractions"),
    ("free", "--methods"),
    ("max_update", "--updates METHOD=N"),
    ("finetune_from_model", "--parent"),
];
/// The same of a plan's keys.
const OWNED_IN_PLANS: &[Owned] = &[
    ("seed", "`seeds`"),
    ("subset", "`fractions`"),
    ("free", "a method's `free`"),
    ("max_update", "a method's `max_update`"),
    ("finetune_from_model", "--parent"),
];

/// A transfer study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is about, in a line.
    pub title: String,
    /// What the paper's numbers are.
    #[serde(default)]
    pub paper: String,
    /// What keeps our numbers and the paper's from being compared.
    #[serde(default)]
    pub caveat: String,
    /// Every method is run once with each.
    pub seeds: Vec<u64>,
    /// Parts of the training set, in per cent.
    pub fractions: Vec<f64>,
    /// Keys of every method: `[keys.model]` and `[keys.train]`.
    #[serde(default)]
    pub keys: Table,
    /// How models are measured.
    pub translation: Translation,
    /// What is compared.
    #[serde(rename = "method")]
    pub methods: Vec<Method>,
}

/// A way to fit a model to other data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// What it begins with.
    #[serde(default)]
    pub begin: Begin,
    /// What is trained; nothing, if not given.
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

/// What a method begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// The trained model.
    #[default]
    Parent,
    /// Initial values.
    Nothing,
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
    /// From a file, or the one that comes with the program.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let (name, text) = match path {
            None => ("the built-in plan".into(), PLAN.to_owned()),
            Some(path) => {
                let name = path.display().to_string();
                (name.clone(), std::fs::read_to_string(path).with_context(|| format!("plan {name}"))?)
            }
        };
        let plan: Self = toml::from_str(&text).with_context(|| name.clone())?;
        plan.check().context(name)?;
        Ok(plan)
    }

    /// Whether it makes sense.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.methods.is_empty(), "there is no [[method]]; at least one is needed");
        ensure!(!self.seeds.is_empty(), "`seeds` is empty; at least one is needed, as in seeds = [1]");
        ensure!(!self.fractions.is_empty(), "`fractions` is empty; at least one is needed, as in [5, 100]");
        for fraction in &self.fractions {
            ensure!(
                *fraction > 0.0 && *fraction <= 100.0,
                "fraction {fraction}: parts are in per cent, above 0 and at most 100"
            );
        }
        refuse_twice("seeds", &self.seeds)?;
        refuse_twice("fractions", &self.fractions)?;
        let keys = std::iter::once(&self.keys).chain(self.methods.iter().map(|method| &method.keys));
        refuse_owned(keys, OWNED_IN_PLANS)?;
        for (i, method) in self.methods.iter().enumerate() {
            check_name(&method.name)?;
            let twice = self.methods[..i].iter().any(|other| other.name == method.name);
            ensure!(!twice, "two methods are called `{}`", method.name);
            match method.free {
                None => ensure!(
                    method.begin == Begin::Parent,
                    "method {}: with nothing to begin with, something must be trained: give it `free`",
                    method.name
                ),
                Some(_) => {
                    ensure!(method.max_update > 0, "method {}: max_update must be above 0", method.name)
                }
            }
        }
        self.translation.check()
    }

    /// The method of this name.
    pub fn method(&mut self, flag: &str, name: &str) -> Result<&mut Method> {
        let names: Vec<String> = self.methods.iter().map(|method| method.name.clone()).collect();
        match self.methods.iter_mut().find(|method| method.name == name) {
            Some(method) => Ok(method),
            None => bail!(
                "{flag} {name}: there is no such method (there are {}){}",
                names.join(", "),
                suggestion(name, names.iter())
            ),
        }
    }

    /// All runs: the whole training set first, then the smaller parts.
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

    /// The jobs of all runs, checked. `parent` is the trained model's folder.
    pub fn jobs(&self, parent: &Path, over: &[Table]) -> Result<Vec<Job>> {
        let config: ModelConfig = mae_model::folder::load_config(parent)
            .with_context(|| format!("--parent {}", parent.display()))?;
        // Also where nothing is trained, a key that does not exist is a mistake.
        let mut layers = vec![model_layer(&config)?];
        layers.extend_from_slice(over);
        RunConfig::<ModelConfig>::from_layers(&layers)?;
        let job = |cell: &Cell<'_>| {
            let work = match (cell.method.free, cell.fraction) {
                (Some(free), Some(fraction)) => {
                    let layers = self.layers(&config, parent, (cell, free, fraction), over);
                    Work::Train(layers.with_context(|| format!("method {}", cell.method.name))?)
                }
                _ => Work::Measure(parent.to_owned()),
            };
            Ok(Job { system: cell.method.name.clone(), seed: cell.seed, name: cell.name(), work })
        };
        self.cells().iter().map(job).collect()
    }

    fn layers(
        &self,
        config: &ModelConfig,
        parent: &Path,
        (cell, free, fraction): (&Cell<'_>, Free, f64),
        over: &[Table],
    ) -> Result<Vec<Table>> {
        let mut own = Table::from_iter([
            ("free".to_owned(), Value::try_from(free)?),
            ("subset".to_owned(), Value::Float(fraction / 100.0)),
            ("seed".to_owned(), whole(cell.seed)?),
            ("max_update".to_owned(), whole(cell.method.max_update)?),
        ]);
        if cell.method.begin == Begin::Parent {
            let path =
                parent.to_str().with_context(|| format!("--parent {}: not UTF-8", parent.display()))?;
            own.insert("finetune_from_model".into(), Value::String(path.to_owned()));
        }
        let mut layers = vec![model_layer(config)?, self.keys.clone(), cell.method.keys.clone()];
        layers.extend_from_slice(over);
        layers.push(train_keys(own));
        RunConfig::<ModelConfig>::from_layers(&layers)?;
        Ok(layers)
    }
}

/// The parent's configuration as a layer.
fn model_layer(config: &ModelConfig) -> Result<Table> {
    let mut model = Table::try_from(config)?;
    if !ARCHITECTURES.contains(&config.arch.as_str()) {
        model.remove("arch");
    }
    Ok(Table::from_iter([("model".to_owned(), Value::Table(model))]))
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
        assert_eq!(cells.len(), 1 + 4 * 5);
        assert_eq!((cells[0].name(), cells[1].name()), ("noft".into(), "ftg-100pct-1".into()));
    }
}
