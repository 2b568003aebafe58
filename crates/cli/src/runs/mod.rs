//! Training runs read back from their folders, and drawings of them, for `mae report` and the pages of studies.
//!
//! | room | what |
//! |---|---|
//! | `mod` | `log.jsonl` and `run.toml` of a run |
//! | `curves` | what can be drawn, and against what |
//! | `chart` | curves as SVG |
//! | `dots` | values of several runs of one kind as SVG |
//! | `changes` | what differs between configurations |

pub mod changes;
pub mod chart;
pub mod curves;
pub mod dots;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use mae_data::lines::Tally;
use serde::Serialize;
use serde_json::Value;

/// When something was logged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Updates so far.
    pub updates: f64,
    /// Epochs so far, with fractions.
    pub epochs: f64,
    /// Seconds of training so far; validating and saving are not counted.
    pub seconds: f64,
}

/// A logged line.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When.
    pub at: Moment,
    /// Its numbers by name.
    pub numbers: BTreeMap<String, f64>,
}

/// A training run.
pub struct Run {
    /// The folder's name, or its whole path where names are alike.
    pub name: String,
    /// Means over some updates each.
    pub train: Vec<Logged>,
    /// Validations.
    pub valid: Vec<Logged>,
    /// Keys and values of `run.toml`; empty where there is none.
    pub config: BTreeMap<String, String>,
    /// What a reader should know.
    pub note: Option<String>,
}

/// The figures of a run. Losses are in bits per target token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Its name.
    pub run: String,
    /// Updates made.
    pub updates: u64,
    /// Epochs, with fractions.
    pub epochs: f64,
    /// Seconds of training; validating and saving are not counted.
    pub seconds: f64,
    /// Smoothed training loss of the last line.
    pub train_loss: Option<f64>,
    /// Lowest smoothed development loss.
    pub best_dev_loss: Option<f64>,
    /// The update it was reached after.
    pub best_dev_update: Option<u64>,
    /// Highest BLEU, 0 to 100.
    pub best_bleu: Option<f64>,
    /// Mean gate entropy of the last validation, in nats.
    pub gate_entropy: Option<f64>,
    /// Target tokens per second of training.
    pub tokens_per_second: Option<f64>,
    /// Milliseconds per update.
    pub update_ms: Option<f64>,
}

/// Reads runs; those whose folders are called alike are named by their paths.
pub fn read_all(folders: &[impl AsRef<Path>]) -> Result<Vec<Run>> {
    let (runs, unread) = read_those_there(folders);
    unread.into_iter().next().map_or(Ok(runs), Err)
}

/// The runs that can be read, and why the others cannot.
pub fn read_those_there(folders: &[impl AsRef<Path>]) -> (Vec<Run>, Vec<Error>) {
    let (mut runs, mut unread) = (Vec::new(), Vec::new());
    for folder in folders.iter().map(AsRef::as_ref) {
        match read(folder) {
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

fn read(folder: &Path) -> Result<Run> {
    let path = folder.join("log.jsonl");
    if !path.is_file() {
        bail!(
            "{} holds no log.jsonl; give the folder of a run (--save-dir of `mae train`)",
            folder.display()
        );
    }
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut events, mut damaged) = (Vec::new(), Tally::default());
    let lines = String::from_utf8_lossy(&bytes);
    for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(event) if event.is_object() => events.push(event),
            _ => damaged.add(number),
        }
    }
    let (train, valid) = logged(&events);
    if train.is_empty() && valid.is_empty() {
        let path = path.display();
        if damaged.count > 0 {
            bail!(
                "{path} cannot be read: lines that are not JSON objects: {damaged}, and no update among the others"
            );
        }
        bail!("{path} tells of no update and no validation yet");
    }
    let mut notes = Vec::new();
    if damaged.count > 0 {
        notes.push(format!("lines of log.jsonl that are not JSON objects, left out: {damaged}"));
    }
    let config = match std::fs::read_to_string(folder.join("run.toml")) {
        Ok(text) => changes::flat(&text).with_context(|| format!("{}", folder.join("run.toml").display()))?,
        Err(_) => {
            notes.push("no run.toml, so its configuration is not known".into());
            BTreeMap::new()
        }
    };
    let full = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = full.file_name().map_or(folder.as_os_str(), |name| name).to_string_lossy().into_owned();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    Ok(Run { name, train, valid, config, note })
}

/// Train and validation lines with their moments. A validation happens at the last train line before it, or at its own
/// update.
fn logged(events: &[Value]) -> (Vec<Logged>, Vec<Logged>) {
    let number = |event: &Value, key: &str| event.get(key).and_then(Value::as_f64);
    let kind = |event: &Value| event.get("event").and_then(Value::as_str).unwrap_or("").to_owned();
    // Updates of each epoch, by number from 1.
    let sizes: BTreeMap<u64, f64> = events
        .iter()
        .filter(|event| kind(event) == "epoch")
        .filter_map(|event| Some((event.get("epoch")?.as_u64()?, number(event, "updates")?)))
        .collect();
    let (mut train, mut valid) = (Vec::new(), Vec::new());
    let mut seconds = 0.0;
    for event in events {
        let (Some(updates), is_train) = (number(event, "num_updates"), kind(event) == "train") else {
            continue;
        };
        if !is_train && kind(event) != "valid" {
            continue;
        }
        if is_train {
            seconds += number(event, "seconds").unwrap_or(0.0);
        }
        let epoch = event.get("epoch").and_then(Value::as_u64).unwrap_or(0);
        let at = Moment { updates, epochs: epochs(&sizes, epoch, updates), seconds };
        let numbers = event.as_object().into_iter().flatten();
        let numbers = numbers.filter_map(|(key, value)| Some((key.clone(), value.as_f64()?))).collect();
        let list = if is_train { &mut train } else { &mut valid };
        list.push(Logged { at, numbers });
    }
    // Milliseconds per update, from the updates since the line before.
    let mut before = 0.0;
    for line in &mut train {
        let since = line.at.updates - before;
        before = line.at.updates;
        if let Some(&seconds) = line.numbers.get("seconds")
            && since > 0.0
        {
            line.numbers.insert("update_ms".into(), 1000.0 * seconds / since);
        }
    }
    (train, valid)
}

/// Epochs done after `updates` updates, in epoch `epoch` (from 1); whole epochs where the log does not tell their sizes.
fn epochs(sizes: &BTreeMap<u64, f64>, epoch: u64, updates: f64) -> f64 {
    let before: Option<f64> = (1..epoch).map(|e| sizes.get(&e)).sum();
    match (before, sizes.get(&epoch)) {
        (Some(before), Some(&size)) if size > 0.0 => {
            (epoch - 1) as f64 + ((updates - before) / size).clamp(0.0, 1.0)
        }
        _ => epoch as f64,
    }
}

impl Run {
    /// Its figures.
    pub fn summary(&self) -> Summary {
        let last = self
            .train
            .iter()
            .chain(&self.valid)
            .map(|line| line.at)
            .fold(Moment::default(), |last, at| if at.updates >= last.updates { at } else { last });
        let valid = |key: &str| {
            let values = self.valid.iter().filter_map(move |line| Some((*line.numbers.get(key)?, line.at)));
            values.collect::<Vec<_>>()
        };
        let best_dev = valid("loss").into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let seconds: f64 = self.train.iter().filter_map(|line| line.numbers.get("seconds")).sum();
        let tokens: f64 = self
            .train
            .iter()
            .filter_map(|line| Some(line.numbers.get("wps")? * line.numbers.get("seconds")?))
            .sum();
        let trained = self.train.last().map_or(0.0, |line| line.at.updates);
        Summary {
            run: self.name.clone(),
            updates: last.updates as u64,
            epochs: last.epochs,
            seconds,
            train_loss: self.train.last().and_then(|line| line.numbers.get("loss").copied()),
            best_dev_loss: best_dev.map(|best| best.0),
            best_dev_update: best_dev.map(|best| best.1.updates as u64),
            best_bleu: valid("bleu").into_iter().map(|found| found.0).max_by(f64::total_cmp),
            gate_entropy: valid("gate_entropy").last().map(|found| found.0),
            tokens_per_second: (seconds > 0.0).then(|| tokens / seconds),
            update_ms: (trained > 0.0 && seconds > 0.0).then(|| 1000.0 * seconds / trained),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str]) -> Run {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("log.jsonl"), lines.join("\n")).unwrap();
        read(folder.path()).unwrap()
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
        ]);
        let at: Vec<Moment> = run.train.iter().map(|line| line.at).collect();
        let moment = |updates, epochs, seconds| Moment { updates, epochs, seconds };
        assert_eq!(at, [moment(5.0, 0.5, 2.0), moment(10.0, 1.0, 4.0), moment(15.0, 1.25, 10.0)]);
        assert_eq!(run.valid[0].at, moment(10.0, 1.0, 4.0));
        assert_eq!(run.train[2].numbers["update_ms"], 1200.0);
        assert!(run.note.as_ref().unwrap().contains("not JSON objects, left out: 1 (line 6)"));
        let summary = run.summary();
        assert_eq!((summary.updates, summary.epochs, summary.seconds), (15, 1.25, 10.0));
        assert_eq!((summary.best_dev_loss, summary.best_dev_update), (Some(7.5), Some(10)));
        assert_eq!((summary.best_bleu, summary.gate_entropy), (Some(1.5), Some(1.5)));
        assert_eq!(summary.tokens_per_second, Some(200.0));
        assert_eq!(summary.train_loss, Some(6.0));
    }

    #[test]
    fn epochs_are_whole_where_their_sizes_are_not_known() {
        let sizes = BTreeMap::from([(2, 10.0)]);
        assert_eq!(epochs(&sizes, 2, 15.0), 2.0);
        assert_eq!(epochs(&BTreeMap::new(), 0, 15.0), 0.0);
    }
}
