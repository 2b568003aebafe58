//! Position of a run, and the text side of its model.

use std::sync::Arc;

use mae_data::{ParallelDataset, Segmentation, TextDataset, TextRecord, Vocab};
use serde::{Deserialize, Serialize};

use crate::artifacts::{DICT, SOURCE_DICT, TARGET_DICT};
use crate::learner::Counters;
use crate::log::Window;

/// Layout of the state's file, and order of the optimiser's memory. Format 1 had another order.
pub(super) const STATE_FORMAT: u32 = 2;

/// Position of a run, besides parameters and moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The layout of this file.
    pub format: u32,
    /// Updates and random passes so far.
    pub counters: Counters,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Updates made in it.
    pub position: u64,
    /// Batches used in it; `None` in states of older versions.
    #[serde(default)]
    pub batches: Option<u64>,
    /// Sentences or blocks of the development set, and their target tokens.
    #[serde(default)]
    pub development: Option<[u64; 2]>,
    /// The best value of the checkpoint metric so far.
    pub best: Option<f64>,
    /// Validations since then.
    pub stale: u64,
    /// Sums for the next line of the log.
    pub window: Window,
    /// Loss of the newest update, in bits per target token.
    #[serde(default)]
    pub last_loss: Option<f64>,
    /// Norm of the gates' gradient in the newest G step.
    #[serde(default)]
    pub gate_norm: Option<f64>,
    /// The training set: sentences or blocks, target tokens, and a fingerprint of all lengths.
    #[serde(default)]
    pub training: Option<[u64; 3]>,
    /// Training choices that decide what comes next, as TOML; a changed one is pointed out on resuming.
    pub train: String,
}

impl RunState {
    /// Fault of a state that no run can have been in, if it is one.
    pub(super) fn fault(&self) -> Option<String> {
        let Counters { updates, gate_updates, schedule_start, .. } = self.counters;
        let most = u64::MAX / 4;
        let numbers =
            [self.epoch, self.position, updates, gate_updates, self.batches.unwrap_or(0), self.stale];
        let losses = [self.best, self.last_loss, self.gate_norm];
        if self.epoch == 0 {
            Some("epoch = 0, but epochs are counted from 1".into())
        } else if let Some(number) = numbers.into_iter().find(|&number| number > most) {
            Some(format!("{number} is beyond what can be counted"))
        } else if schedule_start > updates {
            Some(format!("schedule_start = {schedule_start} is after update {updates}"))
        } else if losses.into_iter().flatten().any(|loss| !loss.is_finite()) {
            Some("a loss is not finite".into())
        } else if self.train.parse::<toml::Table>().is_err() {
            Some("`train` is not TOML".into())
        } else {
            None
        }
    }
}

/// Dictionaries and segmentation of a model's text, stored with it.
#[derive(Clone)]
pub struct TextSide {
    /// Dictionaries by their file names.
    pub dictionaries: Vec<(&'static str, Arc<Vocab>)>,
    /// Codes or tokeniser that cut text into pieces.
    pub codes: Option<Segmentation>,
    /// Languages, and rules that plain text goes through first.
    pub record: TextRecord,
}

impl TextSide {
    /// Of a translation model.
    pub fn of_pairs(data: &ParallelDataset, codes: Option<&Segmentation>, record: &TextRecord) -> Self {
        let (source, target) = (data.src_vocab.clone(), data.tgt_vocab.clone());
        let dictionaries = vec![(SOURCE_DICT, source), (TARGET_DICT, target)];
        Self { dictionaries, codes: codes.cloned(), record: record.clone() }
    }

    /// Of a language model.
    pub fn of_text(data: &TextDataset, codes: Option<&Segmentation>) -> Self {
        let dictionaries = vec![(DICT, data.vocab.clone())];
        Self { dictionaries, codes: codes.cloned(), record: TextRecord::default() }
    }
}

/// Parts of its checkpoint that a resumed run does not take, as in fairseq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resets {
    /// Moments, the number of updates, and with it the schedule and the best score.
    pub optimizer: bool,
    /// The schedule of learning rates: it starts anew with the next update.
    pub lr_scheduler: bool,
    /// The best score, validations without progress, and sums for the log.
    pub meters: bool,
    /// The position in the data: the first epoch starts anew.
    pub dataloader: bool,
}

impl Resets {
    /// Changes the state of a resumed run.
    pub(super) fn apply(self, state: &mut RunState) {
        let counters = &mut state.counters;
        if self.optimizer {
            // Passes are still counted: random numbers do not come again.
            *counters = Counters { passes: counters.passes, ..Counters::default() };
        } else if self.lr_scheduler {
            counters.schedule_start = counters.updates;
        }
        if self.optimizer || self.meters {
            (state.best, state.stale, state.window) = (None, 0, Window::default());
        }
        if self.dataloader {
            (state.epoch, state.position, state.batches) = (1, 0, Some(0));
        }
    }

    /// Names of the parts; empty if nothing is reset.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.optimizer, "optimizer"),
            (self.lr_scheduler, "lr_scheduler"),
            (self.meters, "meters"),
            (self.dataloader, "dataloader"),
        ];
        all.into_iter().filter_map(|(is, name)| is.then_some(name)).collect()
    }
}
