//! Training runs read back from their folders: what they logged, their configurations, and their main figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mae_data::lines::Tally;
use serde::Serialize;

use crate::checkpoint::RunState;
use crate::keys::{self, Keys};
use crate::log::{Event, TrainLine};
use crate::record::{self, Earlier};
use crate::validate::Validation;
use crate::{Error, Result, artifacts};

/// Time at which something was logged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Updates so far.
    pub updates: f64,
    /// Epochs so far, with fractions.
    pub epochs: f64,
    /// Seconds of training so far, without validating and saving.
    pub seconds: f64,
}

/// A logged line.
#[derive(Clone, Debug)]
pub struct Logged<T> {
    /// Time of the line.
    pub at: Moment,
    /// Its numbers.
    pub line: T,
}

/// A training run, read from its folder.
#[derive(Clone, Debug)]
pub struct History {
    /// Name of the folder, or its whole path where several have the same name.
    pub name: String,
    /// Means over some updates each.
    pub train: Vec<Logged<TrainLine>>,
    /// Validations.
    pub valid: Vec<Logged<Validation>>,
    /// Updates of the newest checkpoint, where nothing is logged yet.
    pub saved: Option<u64>,
    /// Keys and values of `run.toml`; empty where there is none.
    pub config: Keys,
    /// Something that a reader should know about the files.
    pub note: Option<String>,
}

/// Main figures of a run. Losses are in bits per target token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the run.
    pub run: String,
    /// Updates made.
    pub updates: u64,
    /// Epochs, with fractions.
    pub epochs: f64,
    /// Seconds of training, without validating and saving.
    pub seconds: f64,
    /// Smoothed training loss of the last line.
    pub train_loss: Option<f64>,
    /// Lowest smoothed development loss.
    pub best_dev_loss: Option<f64>,
    /// Update after which it was measured.
    pub best_dev_update: Option<u64>,
    /// Highest BLEU, 0 to 100.
    pub best_bleu: Option<f64>,
    /// Mean gate entropy of the last validation, in nats.
    pub gate_entropy: Option<f64>,
    /// Updates of the gates.
    pub gate_updates: Option<u64>,
    /// Norm of the gates' gradient in the newest G steps.
    pub gate_gnorm: Option<f64>,
    /// Target tokens per second of training.
    pub tokens_per_second: Option<f64>,
    /// Milliseconds per update.
    pub update_ms: Option<f64>,
}

/// Reason why a run's folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The folder has no log.
    #[error("{} holds no {}; give the folder of a training run", .folder.display(), artifacts::LOG)]
    NoLog {
        /// The folder.
        folder: PathBuf,
    },
    /// The log has neither updates nor validations.
    #[error("{} has no update and no validation yet", .path.display())]
    Empty {
        /// The log.
        path: PathBuf,
    },
    /// The log is not one.
    #[error("{} cannot be read: lines that are not JSON objects: {damaged}, and no update among the others", .path.display())]
    Damaged {
        /// The log.
        path: PathBuf,
        /// The damaged lines.
        damaged: Tally,
    },
    /// `run.toml` is not TOML.
    #[error("{}: {source}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Fault and its line.
        source: toml::de::Error,
    },
}

/// Reads the runs in these folders, and the reasons why others cannot be read. Runs whose folders have the same name are
/// named by their paths.
pub fn read_all(folders: &[impl AsRef<Path>]) -> (Vec<History>, Vec<Error>) {
    let (mut runs, mut unread) = (Vec::new(), Vec::new());
    for folder in folders.iter().map(AsRef::as_ref) {
        match History::read(folder) {
            Ok(run) => runs.push((run, folder)),
            Err(error) => unread.push(error),
        }
    }
    let names: Vec<String> = runs.iter().map(|(run, _)| run.name.clone()).collect();
    for (run, folder) in &mut runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = folder.display().to_string();
        }
    }
    (runs.into_iter().map(|(run, _)| run).collect(), unread)
}

impl History {
    /// Reads the run in a folder, which may still be training.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(artifacts::LOG);
        if !path.is_file() {
            return Err(HistoryError::NoLog { folder: folder.to_owned() }.into());
        }
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        let (mut events, mut damaged) = (Vec::new(), Tally::default());
        let lines = String::from_utf8_lossy(&bytes);
        for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            match Event::parse(line) {
                Some(event) => events.push(event),
                // Other objects may be events of a newer version.
                None if serde_json::from_str::<serde_json::Map<_, _>>(line).is_ok() => {}
                None => damaged.add(number),
            }
        }
        let (train, valid) = logged(events);
        let mut notes = Vec::new();
        let mut saved = None;
        if train.is_empty() && valid.is_empty() {
            saved = saved_updates(folder);
            match (saved, damaged.count) {
                (Some(updates), _) => notes.push(format!(
                    "saved after update {updates}, before the first line of its {} (train.log_interval updates each)",
                    artifacts::LOG
                )),
                (None, 0) => return Err(HistoryError::Empty { path }.into()),
                (None, _) => return Err(HistoryError::Damaged { path, damaged }.into()),
            }
        }
        if damaged.count > 0 {
            notes.push(format!("lines of {} that are not JSON objects, left out: {damaged}", artifacts::LOG));
        }
        let path = folder.join(artifacts::RECORD);
        let config = match std::fs::read_to_string(&path) {
            Ok(text) => keys::parse(&text).map_err(|source| HistoryError::Record { path, source })?,
            Err(_) => {
                notes.push(format!("no {}, so its configuration is not known", artifacts::RECORD));
                Keys::new()
            }
        };
        notes.extend(changes_of(&record::earlier(folder), &config));
        let full = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let name = full.file_name().map_or(folder.as_os_str(), |name| name).to_string_lossy().into_owned();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Self { name, train, valid, saved, config, note })
    }

    /// Milliseconds per update, over the updates since the line before.
    pub fn update_times(&self) -> Vec<(Moment, f64)> {
        let mut before = 0.0;
        let time = |line: &Logged<TrainLine>| {
            let updates = line.at.updates - before;
            before = line.at.updates;
            (updates > 0.0).then(|| (line.at, 1000.0 * line.line.seconds / updates))
        };
        self.train.iter().filter_map(time).collect()
    }

    /// Computes the main figures.
    pub fn summary(&self) -> Summary {
        let moments = self.train.iter().map(|line| line.at).chain(self.valid.iter().map(|line| line.at));
        let last =
            moments.fold(Moment::default(), |last, at| if at.updates >= last.updates { at } else { last });
        let losses =
            self.valid.iter().map(|valid| (valid.line.loss, valid.at)).filter(|(loss, _)| !loss.is_nan());
        let best_dev = losses.min_by(|a, b| a.0.total_cmp(&b.0));
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let seconds: f64 = self.train.iter().filter_map(|line| finite(line.line.seconds)).sum();
        let tokens: f64 =
            self.train.iter().filter_map(|line| finite(line.line.wps * line.line.seconds)).sum();
        let trained = self.train.last().map_or(0.0, |line| line.at.updates);
        Summary {
            run: self.name.clone(),
            updates: self.saved.unwrap_or(last.updates as u64),
            epochs: last.epochs,
            seconds,
            train_loss: self.train.last().and_then(|line| finite(line.line.loss)),
            best_dev_loss: best_dev.map(|best| best.0),
            best_dev_update: best_dev.map(|best| best.1.updates as u64),
            best_bleu: self.valid.iter().filter_map(|valid| valid.line.bleu).max_by(f64::total_cmp),
            gate_entropy: self.valid.iter().filter_map(|valid| valid.line.gate_entropy).next_back(),
            gate_updates: self.valid.iter().filter_map(|valid| valid.line.gate_updates).next_back(),
            gate_gnorm: self.train.iter().filter_map(|line| line.line.gate_gnorm).next_back(),
            tokens_per_second: (seconds > 0.0).then(|| tokens / seconds),
            update_ms: (trained > 0.0 && seconds > 0.0).then(|| 1000.0 * seconds / trained),
        }
    }
}

/// Updates of the newest checkpoint. Nothing is mended here: the run may be going on.
fn saved_updates(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join(artifacts::LAST).join(artifacts::STATE)).ok()?;
    serde_json::from_str::<RunState>(&text).ok().map(|state| state.counters.updates)
}

/// Changes of the configuration in the course of a run, from record to record.
fn changes_of(earlier: &[Earlier], now: &Keys) -> Vec<String> {
    let later = earlier.iter().skip(1).map(|record| &record.config).chain([now]);
    let change = |(before, after): (&Earlier, &Keys)| {
        let changed = keys::differences(&before.config, after);
        let changed: Vec<String> =
            changed.iter().map(|key| format!("{} from {} to {}", key.key, key.there, key.here)).collect();
        let updates = before.until;
        (!changed.is_empty()).then(|| format!("changed after update {updates}: {}", changed.join(", ")))
    };
    earlier.iter().zip(later).filter_map(change).collect()
}

/// The lines of updates and of validations, with their times.
fn logged(events: Vec<Event>) -> (Vec<Logged<TrainLine>>, Vec<Logged<Validation>>) {
    // Updates of each epoch, by number from 1.
    let sizes: BTreeMap<u64, f64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Epoch { epoch, updates, .. } => Some((*epoch, *updates as f64)),
            _ => None,
        })
        .collect();
    let (mut train, mut valid, mut seconds) = (Vec::new(), Vec::new(), 0.0);
    let moment = |epoch: u64, updates: u64, seconds: f64| {
        let updates = updates as f64;
        Moment { updates, epochs: epochs(&sizes, epoch, updates), seconds }
    };
    for event in events {
        match event {
            Event::Train(line) => {
                if line.seconds.is_finite() {
                    seconds += line.seconds;
                }
                train.push(Logged { at: moment(line.epoch, line.num_updates, seconds), line });
            }
            Event::Valid(line) => {
                valid.push(Logged { at: moment(line.epoch, line.num_updates, seconds), line });
            }
            _ => {}
        }
    }
    (train, valid)
}

/// Epochs done after `updates` updates, in epoch `epoch` (from 1); whole epochs where their sizes are not logged.
fn epochs(sizes: &BTreeMap<u64, f64>, epoch: u64, updates: f64) -> f64 {
    let before: Option<f64> = (1..epoch).map(|e| sizes.get(&e)).sum();
    match (before, sizes.get(&epoch)) {
        (Some(before), Some(&size)) if size > 0.0 => {
            (epoch - 1) as f64 + ((updates - before) / size).clamp(0.0, 1.0)
        }
        _ => epoch as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str]) -> History {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(artifacts::LOG), lines.join("\n")).unwrap();
        History::read(folder.path()).unwrap()
    }

    #[test]
    fn moments_count_updates_epochs_and_training_time() {
        let run = run(&[
            r#"{"event":"epoch","epoch":1,"updates":10,"done":0}"#,
            r#"{"event":"train","epoch":1,"num_updates":5,"loss":8.0,"wps":100.0,"seconds":2.0}"#,
            r#"{"event":"train","epoch":1,"num_updates":10,"loss":7.0,"wps":300.0,"seconds":2.0}"#,
            r#"{"event":"valid","epoch":1,"num_updates":10,"loss":7.5,"bleu":1.5,"gate_entropy":2.0}"#,
            r#"{"event":"epoch","epoch":2,"updates":20,"done":0}"#,
            "cut off {",
            r#"{"event":"train","epoch":2,"num_updates":15,"loss":6.0,"wps":200.0,"seconds":6.0}"#,
            r#"{"event":"valid","epoch":2,"num_updates":15,"loss":8.5,"bleu":null,"gate_entropy":1.5}"#,
            r#"{"event":"of a newer version"}"#,
        ]);
        let at: Vec<Moment> = run.train.iter().map(|line| line.at).collect();
        let moment = |updates, epochs, seconds| Moment { updates, epochs, seconds };
        assert_eq!(at, [moment(5.0, 0.5, 2.0), moment(10.0, 1.0, 4.0), moment(15.0, 1.25, 10.0)]);
        assert_eq!(run.valid[0].at, moment(10.0, 1.0, 4.0));
        assert_eq!(run.update_times()[2].1, 1200.0);
        assert!(run.note.as_ref().unwrap().contains("not JSON objects, left out: 1 (line 6)"));
        let summary = run.summary();
        assert_eq!((summary.updates, summary.epochs, summary.seconds), (15, 1.25, 10.0));
        assert_eq!((summary.best_dev_loss, summary.best_dev_update), (Some(7.5), Some(10)));
        assert_eq!((summary.best_bleu, summary.gate_entropy), (Some(1.5), Some(1.5)));
        assert_eq!(summary.tokens_per_second, Some(200.0));
        assert_eq!(summary.train_loss, Some(6.0));
    }

    #[test]
    fn a_run_that_was_stopped_before_its_first_line_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join(artifacts::LOG),
            r#"{"event":"epoch","epoch":1,"updates":9,"done":0}"#,
        )
        .unwrap();
        let empty = History::read(folder.path()).unwrap_err();
        assert!(empty.to_string().contains("no update and no validation yet"), "{empty}");
        let mut state = RunState { epoch: 1, ..RunState::default() };
        state.counters.updates = 7;
        let last = folder.path().join(artifacts::LAST);
        std::fs::create_dir(&last).unwrap();
        std::fs::write(last.join(artifacts::STATE), serde_json::to_string(&state).unwrap()).unwrap();
        let run = History::read(folder.path()).unwrap();
        assert_eq!((run.summary().updates, run.summary().train_loss), (7, None));
        assert!(run.note.unwrap().contains("saved after update 7, before the first line of its log.jsonl"));
    }

    #[test]
    fn a_changed_configuration_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("log.jsonl", r#"{"event":"train","epoch":1,"num_updates":5,"loss":8.0}"#);
        write("run.1.toml", "# until update 3\n[train]\nlr = 0.5\n");
        write("run.2.toml", "# until update 4\n[train]\nlr = 0.25\n");
        write("run.toml", "[train]\nlr = 0.25\nseed = 2\n");
        let note = History::read(folder.path()).unwrap().note.unwrap();
        let expected = "changed after update 3: train.lr from 0.5 to 0.25; changed after update 4: train.seed from nothing to 2";
        assert_eq!(note, expected);
    }

    #[test]
    fn epochs_are_whole_where_their_sizes_are_not_known() {
        let sizes = BTreeMap::from([(2, 10.0)]);
        assert_eq!(epochs(&sizes, 2, 15.0), 2.0);
        assert_eq!(epochs(&BTreeMap::new(), 0, 15.0), 0.0);
    }
}
