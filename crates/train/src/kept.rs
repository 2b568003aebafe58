//! Checkpoints besides best and last: after epochs (`checkpoint7`), after a number of updates (`checkpoint_7_12000`),
//! and the best few (`checkpoint.best_bleu_34.5600_12000`: the score, then the updates).

use std::path::{Path, PathBuf};

use mae_data::files;

use crate::checkpoint::{Snapshot, TextSide};
use crate::config::Metric;
use crate::{Error, Result};

/// A checkpoint that was one of the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Its score, as in its name.
    pub value: f64,
    /// After this update.
    pub updates: u64,
    /// Its folder.
    pub path: PathBuf,
}

/// Kind of kept checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptKind {
    /// After epochs.
    Epochs,
    /// After a number of updates.
    Updates,
    /// The best few.
    Best,
}

/// Renames the checkpoints of a kind to `checkpoint7.1` and so on, because their numbers will come again.
pub fn set_aside(run: &Path, kind: KeptKind) -> Result<()> {
    let paths: Vec<PathBuf> = match kind {
        KeptKind::Epochs => epochs(run)?.into_iter().map(|(_, path)| path).collect(),
        KeptKind::Updates => intervals(run)?.into_iter().map(|(_, path)| path).collect(),
        KeptKind::Best => {
            let of = |metric| Ok::<_, Error>(best(run, metric)?.into_iter().map(|best| best.path));
            of(Metric::Loss)?.chain(of(Metric::Bleu)?).collect::<Vec<_>>()
        }
    };
    for path in paths {
        let names = (1..).map(|n: u64| path.with_added_extension(n.to_string()));
        let free = names.into_iter().find(|name| !name.exists()).expect("there are names enough");
        files::rename(&path, &free)?;
    }
    Ok(())
}

/// Returns the epoch checkpoints of a run with their epochs, the oldest first.
pub fn epochs(run: &Path) -> Result<Vec<(u64, PathBuf)>> {
    list(run, |name| name.strip_prefix("checkpoint")?.parse().ok())
}

/// Returns the checkpoints that were saved after a number of updates, with this number, the oldest first.
pub fn intervals(run: &Path) -> Result<Vec<(u64, PathBuf)>> {
    list(run, |name| {
        let (epoch, updates) = name.strip_prefix("checkpoint_")?.split_once('_')?;
        epoch.parse::<u64>().ok()?;
        updates.parse().ok()
    })
}

/// Returns the best checkpoints of a run by a metric, the best first; of equals the older.
pub fn best(run: &Path, metric: Metric) -> Result<Vec<Best>> {
    let prefix = best_prefix(metric);
    let found = list(run, |name| {
        let (value, updates) = name.strip_prefix(&prefix)?.split_once('_')?;
        Some((value.parse::<f64>().ok()?, updates.parse::<u64>().ok()?))
    })?;
    let mut best: Vec<Best> =
        found.into_iter().map(|((value, updates), path)| Best { value, updates, path }).collect();
    let cost = |best: &Best| metric.cost(best.value);
    best.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.updates.cmp(&b.updates)));
    Ok(best)
}

/// Name of the checkpoint after `updates` updates in `epoch`.
pub fn interval_name(epoch: u64, updates: u64) -> String {
    format!("checkpoint_{epoch}_{updates}")
}

fn best_prefix(metric: Metric) -> String {
    format!("checkpoint.best_{}_", metric.name())
}

/// Removes all epoch checkpoints but the newest `keep`.
pub fn prune_epochs(run: &Path, keep: usize) -> Result<()> {
    prune(epochs(run)?, keep)
}

/// Removes all checkpoints of a number of updates but the newest `keep`.
pub fn prune_intervals(run: &Path, keep: usize) -> Result<()> {
    prune(intervals(run)?, keep)
}

/// Writes a model that scored `value` if that is among the `keep` best, and removes those that no longer are.
pub fn keep_best(
    run: &Path,
    metric: Metric,
    (value, updates): (f64, u64),
    keep: usize,
    (snapshot, text): (&Snapshot, &TextSide),
) -> Result<()> {
    let others = best(run, metric)?;
    let better = |other: &Best| other.updates != updates && metric.cost(other.value) <= metric.cost(value);
    if others.iter().filter(|other| better(other)).count() >= keep {
        return Ok(());
    }
    snapshot.write(run, &format!("{}{value:.4}_{updates}", best_prefix(metric)), text)?;
    for old in best(run, metric)?.into_iter().skip(keep) {
        files::remove_folder(&old.path)?;
    }
    Ok(())
}

fn prune(mut oldest_first: Vec<(u64, PathBuf)>, keep: usize) -> Result<()> {
    oldest_first.truncate(oldest_first.len().saturating_sub(keep));
    Ok(oldest_first.iter().try_for_each(|(_, path)| files::remove_folder(path))?)
}

/// Folders of a run whose names `key` understands, in the order of their keys.
fn list<K: PartialOrd>(run: &Path, key: impl Fn(&str) -> Option<K>) -> Result<Vec<(K, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(run).map_err(Error::io(run))? {
        let entry = entry.map_err(Error::io(run))?;
        if let Some(key) = entry.file_name().to_str().and_then(&key) {
            found.push((key, entry.path()));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(found)
}
