//! Report about an update whose loss or gradient was not finite.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::learner::Counters;

/// An update that failed. It changed no parameter, and neither did any update after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The update, from 1.
    pub update: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The first and the last batch of the update, counted from 1 in the epoch.
    pub batches: [u64; 2],
    /// F, G or joint step.
    pub step: Cow<'static, str>,
    /// Loss or gradient norm.
    pub what: Cow<'static, str>,
    /// Its value: JSON has no number for it.
    pub value: String,
    /// Loss of the update before, in bits per target token.
    pub last_loss: Option<f64>,
    /// Name of the items in its batches, as in `sentences`.
    #[serde(skip)]
    pub samples: Cow<'static, str>,
    /// The sentences or blocks: their numbers in the training set, from 0.
    pub sentences: Vec<u32>,
    /// Counters before it.
    #[serde(skip)]
    pub before: Counters,
    /// The checkpoint of what was there before it.
    #[serde(skip)]
    pub saved: Option<PathBuf>,
}

/// Sentences that a message names.
const EXAMPLES: usize = 20;

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { update, epoch, batches: [first, last], step, what, value, samples, sentences, .. } = self;
        let batches =
            if first == last { format!("batch {first}") } else { format!("batches {first} to {last}") };
        write!(f, "update {update} (epoch {epoch}, {batches}): the {what} of the {step} is {value}")?;
        if let Some(loss) = self.last_loss {
            write!(f, "; the loss of the update before was {loss:.3} bits/token")?;
        }
        let numbers: Vec<String> = sentences.iter().take(EXAMPLES).map(u32::to_string).collect();
        let more = if sentences.len() > EXAMPLES { ", …" } else { "" };
        write!(
            f,
            ". Its {} {samples} (numbers in the training set, from 0): {}{more}. checkpoint_last is as it was",
            sentences.len(),
            numbers.join(", ")
        )?;
        if let Some(saved) = &self.saved {
            write!(
                f,
                "; the parameters before this update, and the numbers of all {samples}, are in {}",
                saved.display()
            )?;
        }
        write!(
            f,
            ". Lower the learning rate (train.lr; the highest of cosine is train.max_lr), set train.clip_norm, or look at these {samples}"
        )
    }
}

/// Training that has diverged without a loss or a gradient of an update that says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// What is not finite, as in `the validation loss`.
    what: String,
    /// Moment at which it was noticed, as in `after update 30`.
    when: String,
}

impl Divergence {
    /// Of the loss of a validation.
    pub(crate) fn of_validation(loss: f64, update: u64) -> Self {
        Self { what: format!("the validation loss is {loss}"), when: format!("after update {update}") }
    }

    /// Of a parameter, noticed before a checkpoint was written.
    pub(crate) fn of_weights(parameter: String, checkpoint: &Path) -> Self {
        let what = format!("`{parameter}` holds numbers that are not finite");
        Self { what, when: format!("as {} was to be written", checkpoint.display()) }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, when } = self;
        write!(
            f,
            "training has diverged: {what}, {when}. Nothing of it was saved: checkpoint_last and checkpoint_best are as \
             they were. Lower the learning rate (train.lr, train.gate_lr; the highest of cosine is train.max_lr) or set \
             train.clip_norm"
        )
    }
}
