//! Events of a run, and the log that keeps them as JSON lines.
//!
//! `log.jsonl` has one event per line. [`JsonLog`] writes it and continues it when a run resumes; [`Event::parse`] reads
//! a line back, and [`crate::history`] a whole run.

mod window;
mod writer;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::window::Window;
pub use self::writer::JsonLog;
use crate::diagnosis::Diagnosis;
use crate::memory::MemoryUse;
use crate::validate::Validation;

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Pairs or blocks that are too long for the batch or the model are left out.
    Skipped {
        /// Number of pairs or blocks.
        pairs: u64,
        /// Their target tokens.
        tokens: u64,
        /// Target tokens of all, those left out included.
        of_tokens: u64,
        /// Numbers of the first few in the training set, from 1.
        examples: Vec<u64>,
    },
    /// A new run starts with the weights of another model.
    Finetuned {
        /// The model folder.
        #[serde(serialize_with = "as_text")]
        from: PathBuf,
        /// True if that model has no gates, so that new ones start uniform.
        new_gates: bool,
    },
    /// A run resumes, but not with everything that it had.
    Reset {
        /// The parts that start anew.
        what: Vec<Cow<'static, str>>,
    },
    /// The largest batch was tried; not written to the log.
    Memory(MemoryUse),
    /// A loss or gradient is not finite; the run ends.
    NotFinite(Diagnosis),
    /// A run resumes with other training keys than before.
    Changed {
        /// Lines of `[train]` that differ now.
        lines: Vec<String>,
    },
    /// An epoch starts, or continues after a restart.
    Epoch {
        /// The epoch, from 1.
        epoch: u64,
        /// Number of its updates.
        updates: u64,
        /// Number of updates that are done already.
        done: u64,
    },
    /// An update was made; not written to the log.
    Update {
        /// Updates of this epoch so far.
        done: u64,
    },
    /// Means over some updates.
    Train(TrainLine),
    /// The model was validated.
    Valid(Validation),
    /// A checkpoint is being written; not written to the log.
    Saved {
        /// Folder of the checkpoint.
        #[serde(serialize_with = "as_text")]
        folder: PathBuf,
        /// Number of the update after which it is saved.
        num_updates: u64,
    },
}

impl Event {
    /// Reads a line of the log; `None` if it is not an event that this version knows.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Returns whether the event is written to the log.
    pub fn is_logged(&self) -> bool {
        !matches!(self, Self::Update { .. } | Self::Saved { .. } | Self::Memory(_))
    }
}

/// Means over the updates since the last line. Losses are in bits per target token, as fairseq prints them. Numbers that
/// a line does not have are NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainLine {
    /// The epoch, from 1.
    #[serde(default)]
    pub epoch: u64,
    /// Updates so far.
    pub num_updates: u64,
    /// Updates of the gates so far.
    #[serde(default)]
    pub gate_updates: u64,
    /// Smoothed loss of F (or joint) steps, bits per token; of G steps where only gates are trained.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub loss: f64,
    /// Plain loss of the same steps, bits per token.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub nll_loss: f64,
    /// 2^nll_loss.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub ppl: f64,
    /// Smoothed loss of G steps before F steps, bits per token.
    #[serde(default)]
    pub gate_loss: Option<f64>,
    /// Mean norm of the gates' gradient in G steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_gnorm: Option<f64>,
    /// Learning rate of the last update.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub lr: f64,
    /// Mean gradient norm.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub gnorm: f64,
    /// Target tokens per update.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub wpb: f64,
    /// Sentences per update.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub bsz: f64,
    /// Target tokens per second.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub wps: f64,
    /// Seconds for these updates.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub seconds: f64,
}

/// Writes a path; bytes that are not UTF-8 are replaced, which JSON cannot hold.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Value of a missing number.
pub(crate) fn nan() -> f64 {
    f64::NAN
}

/// Reads a number; JSON has `null` for those that are not finite.
pub(crate) fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::AttentionGates;

    /// Every event that is written can be read back.
    #[test]
    fn events_come_back_from_their_lines() {
        let line = TrainLine {
            epoch: 2,
            num_updates: 30,
            gate_updates: 4,
            loss: 6.123456789012345,
            nll_loss: 5.0,
            ppl: 32.0,
            gate_loss: None,
            gate_gnorm: Some(0.25),
            lr: 1e-7,
            gnorm: 0.1,
            wpb: 3000.5,
            bsz: 90.0,
            wps: 12345.0,
            seconds: 3.25,
        };
        let valid = Validation {
            epoch: 2,
            num_updates: 30,
            loss: 6.5,
            gate_entropy: Some(1.9),
            gates: vec![AttentionGates {
                attention: "a".into(),
                load: vec![0.25, 0.75],
                ..Default::default()
            }],
            ..Default::default()
        };
        let diagnosis = Diagnosis {
            update: 4,
            epoch: 1,
            batches: [7, 8],
            step: "F step".into(),
            what: "loss".into(),
            value: "NaN".into(),
            last_loss: Some(3.5),
            samples: "".into(),
            sentences: vec![3, 1],
            before: Default::default(),
            saved: None,
        };
        for event in [
            Event::Skipped { pairs: 1, tokens: 9, of_tokens: 99, examples: vec![3] },
            Event::Finetuned { from: "other".into(), new_gates: true },
            Event::Reset { what: vec!["meters".into()] },
            Event::NotFinite(diagnosis),
            Event::Changed { lines: vec!["lr = 1.0".into()] },
            Event::Epoch { epoch: 1, updates: 10, done: 0 },
            Event::Train(line),
            Event::Valid(valid),
        ] {
            assert!(event.is_logged());
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(Event::parse(&text), Some(event), "{text}");
        }
        assert_eq!(Event::parse("{\"event\":\"of the future\"}"), None);
    }

    #[test]
    fn numbers_that_json_cannot_hold_are_nan() {
        let line = "{\"event\":\"train\",\"num_updates\":3,\"loss\":null,\"lr\":0.5}";
        let Some(Event::Train(line)) = Event::parse(line) else { panic!("{line}") };
        assert!(line.loss.is_nan() && line.wps.is_nan());
        assert_eq!((line.lr, line.num_updates, line.gate_loss), (0.5, 3, None));
    }
}
