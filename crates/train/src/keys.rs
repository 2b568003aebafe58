//! Configurations key by key: `train.lr` and its value, as TOML writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use toml::{Table, Value};

/// Values by their keys, with dots between the parts of a key.
pub type Keys = BTreeMap<String, String>;

/// Flattens a table.
pub fn flatten(table: &Table) -> Keys {
    let mut keys = Keys::new();
    insert("", table, &mut keys);
    keys
}

/// Parses and flattens a TOML text.
pub fn parse(text: &str) -> Result<Keys, toml::de::Error> {
    Ok(flatten(&text.parse()?))
}

fn insert(path: &str, table: &Table, keys: &mut Keys) {
    for (name, value) in table {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) => insert(&key, inner, keys),
            value => {
                keys.insert(key, written(value));
            }
        }
    }
}

/// A value as TOML writes it. Numbers of 32 bits have the fewest digits that tell them: 0.1, not 0.10000000149011612.
fn written(value: &Value) -> String {
    match value {
        Value::Float(wide) if f64::from(*wide as f32) == *wide => {
            let shortest = (*wide as f32).to_string().parse();
            Value::Float(shortest.unwrap_or(*wide)).to_string()
        }
        Value::Array(values) => format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// A key whose value in a stored model is not the one that a run asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDifference {
    /// Full name of the key, as in `model.encoder_layers`.
    pub key: String,
    /// Value in the stored model.
    pub there: String,
    /// Value in the run.
    pub here: String,
}

impl fmt::Display for KeyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} there and {} here", self.key, self.there, self.here)
    }
}

/// Returns the keys whose values differ; a missing one counts as `nothing`.
pub fn differences(there: &Keys, here: &Keys) -> Vec<KeyDifference> {
    let all: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
    let value = |keys: &Keys, key: &String| keys.get(key).cloned().unwrap_or_else(|| "nothing".to_owned());
    all.into_iter()
        .map(|key| KeyDifference { key: key.clone(), there: value(there, key), here: value(here, key) })
        .filter(|difference| difference.there != difference.here)
        .collect()
}

/// A key whose value is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key, as in `train.lr`.
    pub key: String,
    /// Its value in each run, as TOML; `None` where a run does not have it.
    pub values: Vec<Option<String>>,
}

/// Returns the keys that differ between configurations. Empty ones are unknown and are not compared.
pub fn changes(configs: &[&Keys]) -> Vec<Change> {
    let known = || configs.iter().filter(|config| !config.is_empty());
    let keys: BTreeSet<&String> = known().flat_map(|config| config.keys()).collect();
    let differs = |key: &&String| {
        let values: BTreeSet<Option<&String>> = known().map(|config| config.get(*key)).collect();
        values.len() > 1
    };
    let change = |key: &String| Change {
        key: key.clone(),
        values: configs.iter().map(|config| config.get(key).cloned()).collect(),
    };
    keys.into_iter().filter(differs).map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_32_bits_have_few_digits() {
        let values =
            Value::Array(vec![Value::Float(f64::from(0.1f32)), Value::Float(0.98), Value::Float(2.0)]);
        assert_eq!(written(&values), "[0.1, 0.98, 2.0]");
        assert_eq!(written(&Value::Float(f64::from(1e-9f32))), parse("a = 1e-9").unwrap()["a"]);
    }

    #[test]
    fn keys_that_differ_are_found_wherever_they_are() {
        let configs = [
            "a = 1\n[model]\nx = \"y\"\n[model.mixture]\nsystem = \"mae\"\nonly = [1, 2]",
            "a = 1\n[model]\nx = \"z\"\n[model.mixture]\nsystem = \"mae\"",
            "",
        ]
        .map(|text| parse(text).unwrap());
        let found = changes(&configs.each_ref());
        let keys: Vec<&str> = found.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["model.mixture.only", "model.x"]);
        assert_eq!(found[0].values, [Some("[1, 2]".into()), None, None]);
        assert_eq!(found[1].values[..2], [Some("\"y\"".into()), Some("\"z\"".into())]);
        assert!(parse("a = ").is_err());
    }

    #[test]
    fn differences_name_missing_values() {
        let [there, here] = ["a = 1\nb = 2", "a = 3"].map(|text| parse(text).unwrap());
        let found: Vec<String> = differences(&there, &here).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a is 1 there and 3 here", "b is 2 there and nothing here"]);
    }
}
