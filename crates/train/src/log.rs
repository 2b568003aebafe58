//! What happens in a run, as events; and as JSON lines in `log.jsonl`, which continue where a run continues.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::diagnosis::Diagnosis;
use crate::learner::UpdateReport;
use crate::memory::MemoryUse;
use crate::validate::Validation;
use crate::{Error, Result};

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Pairs or blocks that are too long for the batch or the model are left out.
    Skipped {
        /// How many.
        pairs: u64,
        /// Their target tokens.
        tokens: u64,
        /// Target tokens of all, those left out counted.
        of_tokens: u64,
        /// The numbers of the first few in the training set, from 1.
        examples: Vec<u64>,
    },
    /// A new run begins with the weights of another model.
    Finetuned {
        /// The model folder.
        from: PathBuf,
        /// Whether it had no gates, so that new ones begin without favourites.
        new_gates: bool,
    },
    /// A run goes on, but not with everything that it had (`--reset-*`).
    Reset {
        /// What begins anew.
        what: Vec<&'static str>,
    },
    /// The largest batch was tried; not written to the log.
    Memory(MemoryUse),
    /// A loss or gradient was not a number; the run ends.
    NotFinite(Diagnosis),
    /// A resumed run was given other training choices than before.
    Changed {
        /// The lines of `[train]` that differ now.
        lines: Vec<String>,
    },
    /// An epoch begins, or goes on after a restart.
    Epoch {
        /// The epoch, from 1.
        epoch: u64,
        /// Its updates.
        updates: u64,
        /// Those done already.
        done: u64,
    },
    /// An update was made; not written to the log.
    Update {
        /// Updates of this epoch so far.
        done: u64,
    },
    /// Some updates were made: their means.
    Train(TrainLine),
    /// The model was validated.
    Valid(Validation),
    /// A checkpoint is being written; not written to the log.
    Saved {
        /// Where.
        folder: PathBuf,
        /// After this update.
        num_updates: u64,
    },
}

/// Means over the updates since the last line. Losses are in bits per target token, as fairseq prints them.
#[derive(Clone, Debug, Serialize)]
pub struct TrainLine {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Updates so far.
    pub num_updates: u64,
    /// Updates of the gates so far.
    pub gate_updates: u64,
    /// Smoothed loss of F (or joint) steps, bits per token; of G steps where nothing but gates is trained.
    pub loss: f64,
    /// Plain loss of the same steps, bits per token.
    pub nll_loss: f64,
    /// 2^nll_loss.
    pub ppl: f64,
    /// Smoothed loss of G steps before F steps, bits per token.
    pub gate_loss: Option<f64>,
    /// Learning rate of the last update.
    pub lr: f64,
    /// Mean gradient norm.
    pub gnorm: f64,
    /// Target tokens per update.
    pub wpb: f64,
    /// Sentences per update.
    pub bsz: f64,
    /// Target tokens per second.
    pub wps: f64,
    /// Seconds for these updates.
    pub seconds: f64,
}

/// Sums since the last line; part of the saved state, so that a resumed run writes the same lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    updates: u64,
    loss: f64,
    nll: f64,
    tokens: u64,
    gate_loss: f64,
    gate_tokens: u64,
    gradient_norm: f64,
    sentences: u64,
    seconds: f64,
}

impl Window {
    /// Adds an update that took `seconds`.
    pub fn add(&mut self, report: &UpdateReport, seconds: f64) {
        self.updates += 1;
        self.loss += report.main.loss;
        self.nll += report.main.nll;
        self.tokens += report.main.tokens;
        if let Some(gate) = report.gate {
            self.gate_loss += gate.loss;
            self.gate_tokens += gate.tokens;
        }
        self.gradient_norm += report.main.gradient_norm;
        self.sentences += report.sentences;
        self.seconds += seconds;
    }

    /// Number of updates in it.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The line for these updates; empties the window.
    pub fn line(&mut self, epoch: u64, num_updates: u64, gate_updates: u64, lr: f64) -> TrainLine {
        let window = std::mem::take(self);
        let bits = |sum: f64, tokens: u64| sum / tokens as f64 / std::f64::consts::LN_2;
        let per_update = |sum: f64| sum / window.updates as f64;
        let nll_loss = bits(window.nll, window.tokens);
        TrainLine {
            epoch,
            num_updates,
            gate_updates,
            loss: bits(window.loss, window.tokens),
            nll_loss,
            ppl: nll_loss.exp2(),
            gate_loss: (window.gate_tokens > 0).then(|| bits(window.gate_loss, window.gate_tokens)),
            lr,
            gnorm: per_update(window.gradient_norm),
            wpb: per_update(window.tokens as f64),
            bsz: per_update(window.sentences as f64),
            wps: window.tokens as f64 / window.seconds.max(1e-9),
            seconds: window.seconds,
        }
    }
}

/// Appends events to a file, one JSON object per line.
pub struct JsonLog {
    path: PathBuf,
    file: BufWriter<File>,
}

impl JsonLog {
    /// Opens the log of a run that has made `updates` updates: lines of later ones, written by a process that died
    /// before it could save, are dropped, because those updates will be made again.
    pub fn open(path: &Path, updates: u64) -> Result<Self> {
        if path.exists() {
            let old = BufReader::new(File::open(path).map_err(Error::io(path))?);
            let mut kept = Vec::new();
            for line in old.lines() {
                let line = line.map_err(Error::io(path))?;
                // A line cut short by a crash is no JSON and goes, too.
                let Ok(value) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                if value.get("num_updates").and_then(serde_json::Value::as_u64).is_none_or(|n| n <= updates) {
                    kept.extend_from_slice(line.as_bytes());
                    kept.push(b'\n');
                }
            }
            mae_model::folder::write_aside(path, &kept)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Gives an older log another name, `log.1.jsonl` and so on: updates are counted anew.
    pub fn set_aside(path: &Path) -> Result<()> {
        let mut names = (1..).map(|n: u64| path.with_extension(format!("{n}.jsonl")));
        match names.find(|name| !name.exists()) {
            Some(name) if path.exists() => std::fs::rename(path, name).map_err(Error::io(path)),
            _ => Ok(()),
        }
    }

    /// Writes an event.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_string(event).expect("events can always be written as JSON");
        line.push('\n');
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.flush()).map_err(Error::io(&self.path))
    }
}
