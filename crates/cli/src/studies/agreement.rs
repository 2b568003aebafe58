//! Whether runs belong together: made with the same choices, measured in the same way, on the same data.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use mae_train::TrainConfig;
use mae_train::checkpoint;

use super::origins::{self, Origins, PARENT, differing, in_words};
use super::protocol::Test;
use super::result::{RESULT, RunResult};
use crate::runs::changes::flat;

/// Choices, key by key.
pub type Keys = BTreeMap<String, String>;

/// The key of the parent's path.
const PARENT_KEY: &str = "train.finetune_from_model";
/// Keys that decide nothing of what a run learns.
const FREE_TO_CHANGE: [&str; 7] = [
    "train.memory_check",
    "train.log_interval",
    "train.keep_last_epochs",
    "train.keep_interval_updates",
    "train.keep_best_checkpoints",
    "train.max_epoch",
    "train.max_update",
];

/// The keys that both have, with different values: `key = then (now …)`.
pub fn changed(then: &Keys, now: &Keys) -> Vec<String> {
    let both = now.iter().filter_map(|(key, now)| Some((key, then.get(key)?, now)));
    both.filter(|(_, then, now)| then != now)
        .map(|(key, then, now)| format!("{key} = {then} (now {now})"))
        .collect()
}

/// What is different now from what a finished run was made with.
pub fn changes(result: &RunResult, config: Option<Keys>, test: &Test, origins: &Origins) -> Vec<String> {
    let mut config = config.unwrap_or_default();
    if origins.contains_key(PARENT) {
        // Known by what it is, wherever it lies.
        config.remove(PARENT_KEY);
    }
    let mut changes = changed(&result.config, &config);
    changes.extend(measured_otherwise(result, test));
    changes.extend(differing(&result.made_from, origins).iter().map(|part| format!("another {part}")));
    changes
}

/// How a run was measured, where that is not as `test` asks.
fn measured_otherwise(result: &RunResult, test: &Test) -> Vec<String> {
    let mut now = test.keys();
    // Who does without sacreBLEU asks for less, not for something else.
    now.retain(|key, value| key != "translation.language" || value != "\"\"");
    changed(&result.measured, &now)
}

/// Refuses to go on with the half-done run in `folder` by other choices than it was begun with, for its result would be of
/// neither.
pub fn check_begun(folder: &Path, mut now: Keys, train: &TrainConfig, origins: &Origins) -> Result<()> {
    // A checkpoint that cannot be read is told by the run itself.
    let Ok(Some(state)) = checkpoint::state(folder) else { return Ok(()) };
    let Ok(record) = std::fs::read_to_string(folder.join("run.toml")) else { return Ok(()) };
    let then = flat(&record).with_context(|| format!("{}/run.toml", folder.display()))?;
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
    ensure!(
        changes.is_empty(),
        "{0} was begun with {1}: go on as it was begun, or remove {0} to begin anew",
        folder.display(),
        changes.join(", ")
    );
    Ok(())
}

/// Refuses to begin or go on with runs where others in the study's folder were made from something else.
pub fn check_origins(out: &Path, now: &Origins) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) };
    for entry in entries {
        let run = entry.with_context(|| format!("cannot look into {}", out.display()))?.path();
        if !run.join(RESULT).exists() && !run.join(checkpoint::LAST).exists() {
            continue;
        }
        let others = differing(&origins::read(&run)?, now);
        ensure!(
            others.is_empty(),
            "{} was made from another {}: results in one folder are of one data set and one parent; choose another --out, or \
             remove the runs that were made from the other",
            run.display(),
            others.join(" and another ")
        );
    }
    Ok(())
}

/// What keeps a table of these runs, by their names, from being what its caption says: one sentence each.
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
