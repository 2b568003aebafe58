//! Report about an update whose loss or gradient was not finite.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

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
