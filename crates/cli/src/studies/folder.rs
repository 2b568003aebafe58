//! What the folder of a transfer study holds.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use mae_train::checkpoint;
use serde::Deserialize;

use super::result::RunResult;
use super::transfer::Plan;

/// The record of a study.
pub const RECORD: &str = "transfer.json";

/// A run in the folder.
pub struct Found {
    /// The name of its folder.
    pub name: String,
    /// Its method.
    pub method: String,
    /// Part of the training set, in per cent, and seed; none where nothing is trained.
    pub part: Option<(f64, u64)>,
    /// Its result; none if it is not done.
    pub result: Option<RunResult>,
}

/// The runs of the plan's methods in a folder, with any parts and seeds, by their names.
pub fn look(out: &Path, plan: &Plan) -> Result<Vec<Found>> {
    let cannot = || format!("cannot look into {}", out.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(out).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let of_part = || {
            let (rest, seed) = name.rsplit_once('-')?;
            let (method, fraction) = rest.strip_suffix("pct")?.rsplit_once('-')?;
            Some((method.to_owned(), Some((fraction.parse().ok()?, seed.parse().ok()?))))
        };
        let (method, part) = of_part().unwrap_or_else(|| (name.clone(), None));
        let known = plan.methods.iter().find(|known| known.name == method);
        if known.is_none_or(|known| known.free.is_some() != part.is_some()) {
            continue;
        }
        let result = RunResult::read(&entry.path())?;
        if result.is_some() || entry.path().join(checkpoint::LAST).exists() {
            found.push(Found { name, method, part, result });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The results of these runs, by their names.
pub fn results(found: &[Found]) -> BTreeMap<String, RunResult> {
    found.iter().filter_map(|run| Some((run.name.clone(), run.result.clone()?))).collect()
}

/// The plan that the folder's record was made with, if it has one.
pub fn recorded_plan(out: &Path) -> Result<Option<Plan>> {
    #[derive(Deserialize)]
    struct Recorded {
        plan: Plan,
    }
    let path = out.join(RECORD);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let record: Recorded = serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; --plan FILE does without it", path.display()))?;
            Ok(Some(record.plan))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

impl Plan {
    /// Adds the parts and seeds of `more` that it does not have.
    pub fn include(&mut self, more: impl IntoIterator<Item = (f64, u64)>) {
        for (fraction, seed) in more {
            if !self.fractions.contains(&fraction) {
                self.fractions.push(fraction);
            }
            if !self.seeds.contains(&seed) {
                self.seeds.push(seed);
            }
        }
    }

    /// Leaves of it what is there.
    pub fn narrow_to(&mut self, found: &[Found]) {
        self.methods.retain(|method| found.iter().any(|run| run.method == method.name));
        let parts: Vec<(f64, u64)> = found.iter().filter_map(|run| run.part).collect();
        if !parts.is_empty() {
            (self.fractions, self.seeds) = (Vec::new(), Vec::new());
            self.include(parts);
            self.fractions.sort_by(f64::total_cmp);
            self.seeds.sort_unstable();
        }
    }
}
