//! Names and keys of studies: what they may be, and which ones a study decides itself.

use std::fmt::Display;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

/// A key of `[train]` that a study decides itself, and what to use instead.
pub type Owned = (&'static str, &'static str);

/// Names of systems and methods become those of folders.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    ensure!(
        !name.is_empty() && !name.starts_with('.') && name.chars().all(plain),
        "`{name}`: names become folders and have letters, digits and . _ + - only"
    );
    Ok(())
}

/// Refuses keys that the study decides itself, for they would be ignored.
pub fn refuse_owned<'a>(layers: impl IntoIterator<Item = &'a Table>, owned: &[Owned]) -> Result<()> {
    for layer in layers {
        let train = layer.get("train");
        for (key, instead) in owned {
            if train.and_then(|train| train.get(key)).is_some() {
                bail!("train.{key} is the study's to decide: use {instead} instead");
            }
        }
    }
    Ok(())
}

/// A value that is given twice in a file is a mistake.
pub fn refuse_twice<T: PartialEq + Display>(name: &str, values: &[T]) -> Result<()> {
    for (i, value) in values.iter().enumerate() {
        ensure!(!values[..i].contains(value), "`{name}` has {value} twice; once is enough");
    }
    Ok(())
}

/// The values in their order, each once.
pub fn each_once<T: PartialEq + Copy>(values: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    values.iter().for_each(|value| {
        if !once.contains(value) {
            once.push(*value);
        }
    });
    once
}

/// Keys of `[train]` as a layer.
pub fn train_keys(keys: Table) -> Table {
    Table::from_iter([("train".to_owned(), Value::Table(keys))])
}

/// A number as TOML has it.
pub fn whole(number: u64) -> Result<Value> {
    Ok(Value::Integer(i64::try_from(number).with_context(|| format!("{number} is too large"))?))
}
