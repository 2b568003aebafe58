//! Runs in the folder of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mae_train::artifacts;
use serde::Deserialize;

use crate::error::{Error, Result, read_if_there};
use crate::job::folder_name;
use crate::result::RunResult;
use crate::study::Study;
use crate::transfer::Plan;

/// System and seed of a run that is not done.
pub type Missing = (String, u64);

/// Returns the results in a study's folder, system by system in the order of the study, with seeds of any study; and the
/// runs that are missing.
pub fn gather(study: &Study, out: &Path) -> Result<(Vec<RunResult>, Vec<Missing>)> {
    let mut seeds: BTreeMap<&str, BTreeSet<u64>> = study
        .systems
        .iter()
        .map(|system| (system.name.as_str(), study.seeds.iter().copied().collect()))
        .collect();
    for name in names(out)? {
        if let Some((system, seed)) = name.rsplit_once('-')
            && let (Some(seeds), Ok(seed)) = (seeds.get_mut(system), seed.parse())
        {
            seeds.insert(seed);
        }
    }
    let (mut runs, mut missing) = (Vec::new(), Vec::new());
    for system in &study.systems {
        for &seed in &seeds[system.name.as_str()] {
            match RunResult::read(&out.join(folder_name(&system.name, seed)))? {
                Some(result) => runs.push(result),
                None => missing.push((system.name.clone(), seed)),
            }
        }
    }
    Ok((runs, missing))
}

/// Names in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io("look into", folder))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(Error::io("look into", folder))?.file_name().into_string());
    }
    Ok(names)
}

/// File with the record of a transfer study.
pub const RECORD: &str = "transfer.json";

/// A run in the folder of a transfer study.
pub struct StoredRun {
    /// Name of its folder.
    pub name: String,
    /// Its method.
    pub method: String,
    /// Part of the training set, in per cent, and seed; `None` where nothing is trained.
    pub part: Option<(f64, u64)>,
    /// Its result; `None` if it is not done.
    pub result: Option<RunResult>,
}

/// Returns the runs of the plan's methods in a folder, with any parts and seeds, by their names.
pub fn stored_runs(out: &Path, plan: &Plan) -> Result<Vec<StoredRun>> {
    let mut found = Vec::new();
    for name in names(out)? {
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
        let folder = out.join(&name);
        let result = RunResult::read(&folder)?;
        if result.is_some() || folder.join(artifacts::LAST).exists() {
            found.push(StoredRun { name, method, part, result });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns the results of these runs, by their names.
pub fn results(runs: &[StoredRun]) -> BTreeMap<String, RunResult> {
    runs.iter().filter_map(|run| Some((run.name.clone(), run.result.clone()?))).collect()
}

/// Returns the plan that the folder's record was made with, if it has one.
pub fn recorded_plan(out: &Path) -> Result<Option<Plan>> {
    #[derive(Deserialize)]
    struct Recorded {
        plan: Plan,
    }
    let path = out.join(RECORD);
    let Some(text) = read_if_there(&path)? else { return Ok(None) };
    let advice = "remove it, or name the plan";
    let record: Recorded =
        serde_json::from_str(&text).map_err(|source| Error::Damaged { path, advice, source })?;
    Ok(Some(record.plan))
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

    /// Reduces it to the runs that are there.
    pub fn narrow_to(&mut self, found: &[StoredRun]) {
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
