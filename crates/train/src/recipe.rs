//! Recipes: run configurations by name, one per row of the paper's tables, and small ones for small machines.
//!
//! A recipe is a stack of TOML tables with `[model]` and `[train]`; later ones override earlier ones. Those of the
//! repository's `configs/` are part of the library.

use mae_model::config::GateReads;
use mae_model::folder::Task;
use mae_model::system::{NamedSystem, System};
use mae_model::{Config, LmConfig, ModelConfig};
use toml::{Table, Value};

use crate::config::{assignment, suggestion, task};
use crate::{Error, Result, RunConfig, TrainConfig};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every recipe of the library.
        const BUILT_IN: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*];
    };
}

built_in![
    "iwslt14-base",
    "iwslt14-nobcd",
    "iwslt14-uni-mae7",
    "iwslt14-uni-mae6",
    "iwslt14-mae7",
    "iwslt14-mae6",
    "iwslt14-sigmoid",
    "iwslt14-moh",
    "iwslt14-l0",
    "wmt14-base",
    "wmt14-nobcd",
    "wmt14-uni-mae7",
    "wmt14-uni-mae6",
    "wmt14-mae7",
    "wmt14-mae6",
    "wmt14-big-base",
    "wmt14-big-mae15",
    "multi30k-base",
    "multi30k-mae7",
    "wiki103-base",
    "wiki103-nobcd",
    "wiki103-uni-mae7",
    "wiki103-mae7",
    "wiki103-mae6",
    "wiki103-long-base",
    "wiki103-long-mae7",
    "wiki-small-base",
    "wiki-small-mae7",
    "wikitext2-base",
    "wikitext2-mae7",
    "two-tasks-base",
    "two-tasks-mae7",
];

/// Reason why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// No recipe has this name.
    #[error(
        "no recipe is called `{name}`{} (there are {}; or give a .toml file)",
        suggestion(name, names().iter()),
        names().join(", ")
    )]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The file cannot be read.
    #[error("recipe {name}: {source}")]
    Unreadable {
        /// Path of the file.
        name: String,
        /// Reason of the file system.
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("recipe {name}: {source}")]
    Syntax {
        /// Name or path of the recipe.
        name: String,
        /// Fault and its line.
        source: toml::de::Error,
    },
    /// `extends` does not name another recipe.
    #[error("recipe {name}: `extends = {extends}` does not name another recipe")]
    Base {
        /// Name or path of the recipe.
        name: String,
        /// Value of `extends`.
        extends: String,
    },
}

/// A run configuration that is not resolved yet: layers of keys, later ones on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    layers: Vec<Table>,
}

impl Recipe {
    /// Loads a recipe by its name, or from a path that ends in `.toml`, with those that it extends.
    pub fn load(name: &str) -> Result<Self> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let text = match built_in {
            Some(text) => text,
            None if name.ends_with(".toml") => std::fs::read_to_string(name)
                .map_err(|source| RecipeError::Unreadable { name: name.to_owned(), source })?,
            None => return Err(RecipeError::Unknown { name: name.to_owned() }.into()),
        };
        let mut table: Table =
            text.parse().map_err(|source| RecipeError::Syntax { name: name.to_owned(), source })?;
        let below = match table.remove("extends") {
            None => Self::default(),
            Some(Value::String(base)) if base != name => Self::load(&base)?,
            Some(other) => {
                let (name, extends) = (name.to_owned(), other.to_string());
                return Err(RecipeError::Base { name, extends }.into());
            }
        };
        Ok(below.with(table))
    }

    /// Adds a layer on top.
    #[must_use]
    pub fn with(mut self, layer: Table) -> Self {
        self.layers.push(layer);
        self
    }

    /// Sets a key, as in `train.lr=0.001`.
    pub fn set(self, key_value: &str) -> Result<Self> {
        Ok(self.with(assignment(key_value)?))
    }

    /// Chooses a system by its name: base, nobcd, mae7, uni-mae6, …
    pub fn with_system(self, name: &str) -> Result<Self> {
        let heads = match self.task() {
            Task::Translation => self.config::<ModelConfig>()?.model.heads(),
            Task::LanguageModeling => self.config::<LmConfig>()?.model.heads(),
        };
        Ok(self.with(system(name, heads)?))
    }

    /// Task of the architecture that the top layer names; without one, translation.
    pub fn task(&self) -> Task {
        task(&self.layers)
    }

    /// Returns whether a layer names the architecture of the model.
    pub fn names_architecture(&self) -> bool {
        self.layers.iter().any(|layer| layer.get("model").is_some_and(|model| model.get("arch").is_some()))
    }

    /// Resolves and checks the configuration.
    pub fn config<C: Config>(&self) -> Result<RunConfig<C>> {
        RunConfig::from_layers(&self.layers)
    }

    /// Resolves the configuration and writes it as TOML.
    pub fn to_toml(&self) -> Result<String> {
        Ok(match self.task() {
            Task::Translation => self.config::<ModelConfig>()?.to_toml(),
            Task::LanguageModeling => self.config::<LmConfig>()?.to_toml(),
        })
    }

    /// Resolves the configuration and returns its `[train]`.
    pub fn train_config(&self) -> Result<TrainConfig> {
        Ok(match self.task() {
            Task::Translation => self.config::<ModelConfig>()?.train,
            Task::LanguageModeling => self.config::<LmConfig>()?.train,
        })
    }

    /// The layers, bottom first.
    pub fn layers(&self) -> &[Table] {
        &self.layers
    }
}

impl From<Table> for Recipe {
    fn from(layer: Table) -> Self {
        Self { layers: vec![layer] }
    }
}

impl std::str::FromStr for Recipe {
    type Err = Error;

    /// Parses a TOML text with `[model]` and `[train]`.
    fn from_str(text: &str) -> Result<Self> {
        let table: Table =
            text.parse().map_err(|source| RecipeError::Syntax { name: "in the program".into(), source })?;
        Ok(table.into())
    }
}

/// Returns what a recipe is for: the first sentence of its file.
pub fn purpose(name: &str) -> Option<String> {
    let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    let comment = text.lines().next()?.strip_prefix('#')?.trim();
    Some(comment.split_once(". ").map_or(comment, |(first, _)| first).trim_end_matches('.').to_owned())
}

/// Returns the name of a translation recipe that fits so many training pairs, on a GPU or on a CPU.
pub fn fitting(pairs: u64, on_gpu: bool) -> &'static str {
    match (on_gpu, pairs) {
        (false, _) | (true, 0..60_000) => "multi30k-mae7",
        (true, 60_000..1_000_000) => "iwslt14-mae7",
        (true, 1_000_000..) => "wmt14-mae7",
    }
}

/// Names of all recipes of the library.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// Keys of a system by its name ([`System::named`]) in attentions of `heads` heads.
pub fn system(name: &str, heads: usize) -> Result<Table> {
    let NamedSystem { system, dropped_heads, gate_input } = System::named(name, heads)?;
    let mut mixture = Table::from_iter([("system".to_owned(), Value::String(system.key().into()))]);
    if let Some(dropped) = dropped_heads {
        mixture.insert("dropped_heads".into(), Value::Integer(dropped as i64));
    }
    if gate_input != GateReads::default() {
        mixture.insert("gate_input".into(), Value::String(gate_input.key().into()));
    }
    let model = Table::from_iter([("mixture".to_owned(), Value::Table(mixture))]);
    Ok(Table::from_iter([("model".to_owned(), Value::Table(model))]))
}

#[cfg(test)]
mod tests {
    use mae_model::config::Mixture;

    use super::*;

    fn mixture<C: Config>(name: &str) -> Mixture {
        let config = Recipe::load(name).unwrap().config::<C>().unwrap_or_else(|e| panic!("{name}: {e}"));
        config.model.mixture().clone()
    }

    #[test]
    fn every_recipe_is_valid() {
        for name in names() {
            let task = Recipe::load(name).unwrap().task();
            let mixture = match task {
                Task::Translation => mixture::<ModelConfig>(name),
                Task::LanguageModeling => mixture::<LmConfig>(name),
            };
            assert_eq!(name.starts_with("wiki"), task == Task::LanguageModeling);
            if name.ends_with("mae6") {
                assert_eq!(mixture.dropped_heads, 2, "{name}");
            }
        }
    }

    #[test]
    fn systems_by_the_papers_names() {
        let dropped = |name: &str, heads: usize| {
            system(name, heads).unwrap()["model"]["mixture"].get("dropped_heads").and_then(Value::as_integer)
        };
        assert_eq!(dropped("mae-7", 8), Some(1));
        assert_eq!(dropped("uni-MAE-6", 8), Some(2));
        assert_eq!(dropped("mae13", 16), Some(3));
        assert_eq!(dropped("base", 8), None);
        assert!(system("mae8", 8).is_err() && system("mae", 8).is_err() && system("foo", 8).is_err());
    }

    #[test]
    fn a_system_and_a_key_lie_on_top_of_a_recipe() {
        let recipe = Recipe::load("iwslt14-base").unwrap().set("train.lr=1").unwrap();
        let config = recipe.with_system("mae6").unwrap().config::<ModelConfig>().unwrap();
        assert_eq!((config.train.lr, config.model.mixture.dropped_heads), (1.0, 2));
        assert!(config.model.mixture.system.is_gated());
        let unknown = Recipe::load("nothing").unwrap_err().to_string();
        assert!(unknown.contains("iwslt14-mae7"), "{unknown}");
    }
}
