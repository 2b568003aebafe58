//! Names and keys of plans: what they may be, and which ones a plan decides itself.

use std::fmt::Display;

use toml::{Table, Value};

use crate::error::PlanFault;

type Result<T> = std::result::Result<T, PlanFault>;

/// A key of `[train]` that a plan decides itself, and what decides it.
pub type Owned = (&'static str, &'static str);

/// Checks the name of a system or method, which becomes that of a folder.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let fits = !name.is_empty() && !name.starts_with('.') && name.chars().all(plain);
    if fits { Ok(()) } else { Err(PlanFault::Name(name.to_owned())) }
}

/// Checks the names of all systems or methods.
pub(crate) fn check_names(what: &'static str, names: &[&str]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        check_name(name)?;
        if names[..i].contains(name) {
            return Err(PlanFault::SameName { what, name: (*name).to_owned() });
        }
    }
    Ok(())
}

/// Refuses keys that the plan decides itself, because they would be ignored.
pub fn refuse_owned<'a>(layers: impl IntoIterator<Item = &'a Table>, owned: &[Owned]) -> Result<()> {
    for layer in layers {
        let train = layer.get("train");
        for &(key, instead) in owned {
            if train.and_then(|train| train.get(key)).is_some() {
                return Err(PlanFault::Owned { key, instead });
            }
        }
    }
    Ok(())
}

/// Refuses a list that is empty or has a value twice.
pub(crate) fn check_list<T: PartialEq + Display>(
    key: &'static str,
    example: &'static str,
    values: &[T],
) -> Result<()> {
    if values.is_empty() {
        return Err(PlanFault::Empty { key, example });
    }
    match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        Some((_, value)) => Err(PlanFault::Twice { key, value: value.to_string() }),
        None => Ok(()),
    }
}

/// Returns the values in their order, each once.
pub fn each_once<T: PartialEq + Copy>(values: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(value) {
            once.push(*value);
        }
    }
    once
}

/// Makes a layer of keys of `[train]`.
pub(crate) fn train_keys(keys: impl IntoIterator<Item = (&'static str, Value)>) -> Table {
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Table::from_iter([("train".to_owned(), Value::Table(keys))])
}

/// Converts a number to TOML.
pub(crate) fn whole(number: u64) -> Result<Value> {
    i64::try_from(number).map(Value::Integer).map_err(|_| PlanFault::TooLarge(number))
}
