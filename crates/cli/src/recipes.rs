//! Recipes: run configurations by name, one per row of the paper's tables, and small ones for small machines.

use anyhow::{Context, Result, bail};
use mae_model::config::GateReads;
use mae_model::system::{NamedSystem, System};
use toml::{Table, Value};

macro_rules! recipes {
    ($($name:literal),* $(,)?) => {
        /// Every recipe that comes with the program: name and text.
        const RECIPES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*];
    };
}

recipes![
    "iwslt14-base",
    "iwslt14-nobcd",
    "iwslt14-uni-mae7",
    "iwslt14-uni-mae6",
    "iwslt14-mae7",
    "iwslt14-mae6",
    "iwslt14-sigmoid",
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
    "wiki-small-base",
    "wiki-small-mae7",
    "wikitext2-base",
    "wikitext2-mae7",
];

/// The tables of a recipe, bottom first: what it extends, then itself. `name` is one of ours or a file.
pub fn layers(name: &str) -> Result<Vec<Table>> {
    let builtin = RECIPES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let text = match builtin {
        Some(text) => text,
        None if name.ends_with(".toml") => {
            std::fs::read_to_string(name).with_context(|| format!("recipe {name}"))?
        }
        None => {
            bail!("no recipe is called `{name}`; there are: {}; or give a .toml file", names().join(", "))
        }
    };
    let mut table: Table = text.parse().with_context(|| format!("recipe {name}"))?;
    let mut below = match table.remove("extends") {
        None => Vec::new(),
        Some(Value::String(base)) if base != name => layers(&base)?,
        Some(other) => bail!("recipe {name}: `extends = {other}` does not name another recipe"),
    };
    below.push(table);
    Ok(below)
}

/// The names of all recipes.
pub fn names() -> Vec<&'static str> {
    RECIPES.iter().map(|(name, _)| *name).collect()
}

/// The keys of a system by its name ([`System::named`]) in attentions of `heads` heads.
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
    use super::*;
    use mae_model::config::Mixture;
    use mae_model::folder::Task;
    use mae_model::{Config, LmConfig, ModelConfig};
    use mae_train::RunConfig;
    use mae_train::config::task;

    fn mixture<C: Config>(name: &str) -> Mixture {
        let config =
            RunConfig::<C>::from_layers(&layers(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
        config.model.mixture().clone()
    }

    #[test]
    fn every_recipe_is_valid() {
        for name in names() {
            let mixture = match task(&layers(name).unwrap()) {
                Task::Translation => mixture::<ModelConfig>(name),
                Task::LanguageModeling => mixture::<LmConfig>(name),
            };
            assert_eq!(name.starts_with("wiki"), task(&layers(name).unwrap()) == Task::LanguageModeling);
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
}
