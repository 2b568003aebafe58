//! What differs between the configurations of runs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Serialize;
use toml::{Table, Value};

use super::Run;

/// A key whose value is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `train.lr`.
    pub key: String,
    /// Its value in each run, as TOML; none where a run does not have it.
    pub values: Vec<Option<String>>,
}

/// The keys of a TOML text with dots between their parts, and their values.
pub fn flat(text: &str) -> Result<BTreeMap<String, String>> {
    let mut keys = BTreeMap::new();
    flatten("", &text.parse::<Table>()?, &mut keys);
    Ok(keys)
}

fn flatten(before: &str, table: &Table, keys: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
        match value {
            Value::Table(inner) => flatten(&key, inner, keys),
            value => {
                keys.insert(key, value.to_string());
            }
        }
    }
}

/// The keys that differ, of the runs whose configuration is known.
pub fn changes(runs: &[Run]) -> Vec<Change> {
    let known = || runs.iter().filter(|run| !run.config.is_empty());
    let keys: BTreeSet<&String> = known().flat_map(|run| run.config.keys()).collect();
    let differs = |key: &&String| {
        let values: BTreeSet<Option<&String>> = known().map(|run| run.config.get(*key)).collect();
        values.len() > 1
    };
    keys.into_iter()
        .filter(differs)
        .map(|key| Change {
            key: key.clone(),
            values: runs.iter().map(|run| run.config.get(key).cloned()).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str) -> Run {
        let config = flat(config).unwrap();
        Run { name: String::new(), train: Vec::new(), valid: Vec::new(), config, note: None }
    }

    #[test]
    fn keys_that_differ_are_found_wherever_they_are() {
        let runs = [
            run("a = 1\n[model]\nx = \"y\"\n[model.mixture]\nsystem = \"mae\"\nonly = [1, 2]"),
            run("a = 1\n[model]\nx = \"z\"\n[model.mixture]\nsystem = \"mae\""),
            run(""),
        ];
        let found = changes(&runs);
        let keys: Vec<&str> = found.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["model.mixture.only", "model.x"]);
        assert_eq!(found[0].values, [Some("[1, 2]".into()), None, None]);
        assert_eq!(found[1].values[..2], [Some("\"y\"".into()), Some("\"z\"".into())]);
        assert!(flat("a = ").is_err());
    }
}
