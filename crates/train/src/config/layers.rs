//! Layers of a configuration: merged, searched for keys that do not exist, made from `key=value`.

use mae_model::folder::Task;
use mae_model::lm;
use serde::Serialize;
use toml::{Table, Value};

use crate::{Error, Result};

/// Task of the architecture that the last layer names; without one, translation.
pub fn task(layers: &[Table]) -> Task {
    let merged = merged(layers);
    match arch(&merged) {
        Some(arch) if lm::config::ARCHITECTURES.contains(&arch) => Task::LanguageModeling,
        _ => Task::Translation,
    }
}

pub(super) fn merged(layers: &[Table]) -> Table {
    let mut merged = Table::new();
    layers.iter().for_each(|layer| merge(&mut merged, layer));
    merged
}

pub(super) fn arch(merged: &Table) -> Option<&str> {
    merged.get("model")?.get("arch")?.as_str()
}

/// A layer with the positions of a language model, for layers that do not set them: those of a block. Where blocks end with
/// lines, which may be longer, those of the architecture, if they are more.
pub(super) fn positions_of_blocks(merged: &Table) -> Table {
    let train = |key: &str| merged.get("train").and_then(|train| train.get(key));
    let Some(tokens) = train("tokens_per_sample").and_then(Value::as_integer) else { return Table::new() };
    let full = train("sample_break_mode").is_none_or(|mode| mode.as_str() == Some("none"));
    let least = if full { 0 } else { lm::config::max_positions() as i64 };
    let positions = Table::from_iter([("max_positions".to_owned(), Value::Integer(tokens.max(least)))]);
    Table::from_iter([("model".to_owned(), Value::Table(positions))])
}

/// Parses `key.path=value` into a table. A value that is not TOML is taken as text.
pub fn assignment(text: &str) -> Result<Table> {
    let fault =
        || Error::Config(vec![format!("`{text}` is not of the form key=value, as in train.lr=0.001")]);
    let (path, value) = text.split_once('=').ok_or_else(fault)?;
    let (path, value) = (path.trim(), value.trim());
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(fault());
    }
    let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    let mut value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    for key in path.rsplit('.') {
        value = Value::Table(Table::from_iter([(key.to_owned(), value)]));
    }
    match value {
        Value::Table(table) => Ok(table),
        _ => unreachable!("the path has at least one key"),
    }
}

pub(super) fn table_of(value: &impl Serialize) -> Value {
    Value::try_from(value).expect("configurations can always be written as TOML")
}

pub(super) fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            // `lr = 1` is meant where 1.0 is wanted.
            (Some(slot @ Value::Float(_)), Value::Integer(whole)) => *slot = Value::Float(*whole as f64),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

pub(super) fn unknown_keys(path: &str, table: &Table, known: &Table, faults: &mut Vec<String>) {
    for (key, value) in table {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (value, known.get(key)) {
            (Value::Table(inner), Some(Value::Table(known))) => unknown_keys(&full, inner, known, faults),
            (_, Some(_)) => {}
            (_, None) => {
                let section = known.iter().find(|(_, inner)| inner.get(key).is_some());
                let hint = match section {
                    Some((section, _)) if path.is_empty() => format!("; did you mean `{section}.{key}`?"),
                    Some((section, _)) => format!("; did you mean `{path}.{section}.{key}`?"),
                    None => suggestion(key, known.keys()),
                };
                faults.push(format!("unknown key `{full}`{hint}"));
            }
        }
    }
}

/// Describes a value that its key cannot have, in one line and without the names of Rust's types.
pub(super) fn wrong_value(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let (fault, key) = text.trim_end().split_once("\nin ").unwrap_or((text.trim_end(), ""));
    let (found, expected) = fault.rsplit_once("expected ").unwrap_or((fault, ""));
    let expected = match expected {
        "f32" | "f64" => "a number",
        "u32" | "u64" | "usize" => "a whole number, not below 0",
        "a boolean" => "true or false",
        other => other,
    };
    let before = if key.is_empty() { String::new() } else { format!("{key}: ") };
    let after = if expected.is_empty() { String::new() } else { format!("expected {expected}") };
    format!("{before}{found}{after}")
}

/// `; did you mean …?` with the name that is nearest to a wrong one, or that it begins; empty if none is near.
pub fn suggestion(wrong: &str, names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let begun = |name: &str| wrong.chars().count() > 2 && name.starts_with(wrong);
    let far = |name: &str| distance(wrong, name) > 2.max(wrong.chars().count().max(name.chars().count()) / 3);
    let near = names.filter(|name| begun(name.as_ref()) || !far(name.as_ref()));
    let nearest = near.min_by_key(|name| distance(wrong, name.as_ref()));
    nearest.map_or(String::new(), |name| format!("; did you mean `{}`?", name.as_ref()))
}

/// Levenshtein's distance: the number of letters to insert, remove or replace.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
