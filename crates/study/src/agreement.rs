//! Checks that runs belong together: made with the same choices, measured in the same way, on the same data.

use std::collections::BTreeMap;
use std::path::Path;

use mae_train::keys::{self, Keys};
use mae_train::{TrainConfig, artifacts, checkpoint};

use crate::error::{Error, Result};
use crate::origins::{self, Origins, PARENT, differing, in_words};
use crate::protocol::Test;
use crate::result::{RESULT, RunResult};

/// The key of the parent's path.
const PARENT_KEY: &str = "train.finetune_from_model";
/// Keys that do not change what a run learns.
const FREE_TO_CHANGE: [&str; 7] = [
    "train.memory_check",
    "train.log_interval",
    "train.keep_last_epochs",
    "train.keep_interval_updates",
    "train.keep_best_checkpoints",
    "train.max_epoch",
    "train.max_update",
];

/// Returns the keys that both have, with different values: `key = then (now …)`.
fn changed(then: &Keys, now: &Keys) -> Vec<String> {
    let both = now.iter().filter_map(|(key, now)| Some((key, then.get(key)?, now)));
    both.filter(|(_, then, now)| then != now)
        .map(|(key, then, now)| format!("{key} = {then} (now {now})"))
        .collect()
}

/// Returns what is different now from what a finished run was made with.
pub(crate) fn changes(
    result: &RunResult,
    config: Option<Keys>,
    test: &Test,
    origins: &Origins,
) -> Vec<String> {
    let mut config = config.unwrap_or_default();
    if origins.contains_key(PARENT) {
        // Its fingerprint is compared instead.
        config.remove(PARENT_KEY);
    }
    let mut changes = changed(&result.config, &config);
    changes.extend(measured_otherwise(result, test));
    changes.extend(differing(&result.made_from, origins).iter().map(|part| format!("another {part}")));
    changes
}

/// Returns how a run was measured, where that is not as `test` asks.
fn measured_otherwise(result: &RunResult, test: &Test) -> Vec<String> {
    let mut now = test.keys();
    // A study without sacreBLEU asks for less, not for something else.
    now.retain(|key, value| key != "translation.language" || value != "\"\"");
    changed(&result.measured, &now)
}

/// Refuses to resume the run in `folder` with other choices than it was started with: its result would be of neither.
pub(crate) fn check_started(
    folder: &Path,
    mut now: Keys,
    train: &TrainConfig,
    origins: &Origins,
) -> Result<()> {
    // The run itself reports a checkpoint that cannot be read.
    let Ok(Some(state)) = checkpoint::state(folder) else { return Ok(()) };
    let path = folder.join(artifacts::RECORD);
    let Ok(record) = std::fs::read_to_string(&path) else { return Ok(()) };
    let then = keys::parse(&record).map_err(|error| Error::from(error).within(path.display().to_string()))?;
    // A run may get a longer budget, but not one that it has passed.
    let passed = |done: u64, limit: u64| limit > 0 && done > limit;
    let over = [
        passed(state.epoch.saturating_sub(1), train.max_epoch),
        passed(state.counters.updates, train.max_update),
    ];
    for key in FREE_TO_CHANGE {
        let is_over = (key == "train.max_epoch" && over[0]) || (key == "train.max_update" && over[1]);
        if !is_over {
            now.remove(key);
        }
    }
    if origins.contains_key(PARENT) {
        now.remove(PARENT_KEY);
    }
    let changes = changed(&then, &now);
    if changes.is_empty() { Ok(()) } else { Err(Error::OtherChoices { run: folder.to_owned(), changes }) }
}

/// Refuses to start or resume runs where others in the study's folder were made from something else.
pub(crate) fn check_origins(out: &Path, now: &Origins) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) };
    for entry in entries {
        let run = entry.map_err(Error::io("look into", out))?.path();
        if !run.join(RESULT).exists() && !run.join(artifacts::LAST).exists() {
            continue;
        }
        let parts = differing(&origins::read(&run)?, now);
        if !parts.is_empty() {
            return Err(Error::OtherOrigins { run, parts });
        }
    }
    Ok(())
}

/// Returns the protocol with the choices that all of `results` were measured by, whatever is asked for now.
pub fn as_measured<'a>(test: &Test, results: impl Iterator<Item = &'a RunResult> + Clone) -> Result<Test> {
    let mut keys = test.keys();
    for (key, value) in &mut keys {
        let mut values = results.clone().map(|result| result.measured.get(key));
        if let Some(Some(first)) = values.next()
            && values.all(|value| value == Some(first))
        {
            value.clone_from(first);
        }
    }
    test.with_keys(&keys).map_err(|error| Error::from(error).within("`measured` of results"))
}

/// Returns remarks on runs, by their names, that do not belong into one table: one sentence each.
pub fn remarks<'a>(test: &Test, runs: impl Iterator<Item = (String, &'a RunResult)> + Clone) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut otherwise: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut parts: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for (name, run) in runs {
        let changes = measured_otherwise(run, test);
        if !changes.is_empty() {
            otherwise.entry(changes.join(", ")).or_default().push(name.clone());
        }
        for (part, value) in &run.made_from {
            parts.entry(part).or_default().entry(value).or_default().push(name.clone());
        }
    }
    for (changes, names) in otherwise {
        remarks.push(format!(
            "Not measured as the study now asks: {}, with {changes}. A run is made again when its folder is removed.",
            names.join(", ")
        ));
    }
    for (part, values) in parts.into_iter().filter(|(_, values)| values.len() > 1) {
        let groups: Vec<String> = values.into_values().map(|names| names.join(", ")).collect();
        remarks.push(format!(
            "Not comparable, for they were not made from the same {}: {}.",
            in_words(part),
            groups.join("; ")
        ));
    }
    remarks
}
