//! The loop: epochs, updates, validation, checkpoints, stopping.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use mae_data::Segmentation;
use mae_data::sampler::TooLong;
use mae_data::{BatchSampler, PackedBatch, ParallelDataset, SamplerOptions};

use crate::checkpoint::{self, RunState, Snapshot, TextSide, Writer};
use crate::config::{Metric, RunConfig};
use crate::learner::{Learner, PendingUpdate};
use crate::log::{Event, JsonLog};
use crate::plan;
use crate::validate::{Validator, development_loss};
use crate::{Error, Result};

/// Everything a run works with.
pub struct Trainer<'a> {
    /// Its choices.
    pub config: RunConfig,
    /// The model being trained.
    pub learner: Learner,
    /// Training set.
    pub train: &'a ParallelDataset,
    /// Development set, if there is one.
    pub valid: Option<&'a ParallelDataset>,
    /// How text is cut, to store with the model.
    pub codes: Option<&'a Segmentation>,
    /// Where checkpoints and the log go.
    pub folder: PathBuf,
    /// Scores BLEU, where the configuration asks for it.
    pub validator: Option<Box<dyn Validator + 'a>>,
    /// Set from outside to stop after the current update.
    pub stop: &'a AtomicBool,
    /// Writes the checkpoints.
    pub writer: Writer,
}

/// Batches that are packed before they are needed.
const BATCHES_AHEAD: usize = 16;
/// Updates that the device may be behind before we wait for it.
const UPDATES_AHEAD: usize = 4;

/// Updates that were asked for and not reported yet.
struct Pending {
    updates: VecDeque<PendingUpdate>,
    /// When the last report came.
    last: Instant,
}

impl Pending {
    /// Reports updates that are done, and waits until no more than `most` are not.
    fn report(
        &mut self,
        most: usize,
        state: &mut RunState,
        log_interval: u64,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        while self.updates.len() > most || self.updates.front().is_some_and(PendingUpdate::is_ready) {
            let Some(update) = self.updates.pop_front() else { break };
            let report = update.wait()?;
            let now = Instant::now();
            state.window.add(&report, (now - self.last).as_secs_f64());
            self.last = now;
            if state.window.updates() >= log_interval {
                let line = state.window.line(state.epoch, report.number, report.gate_updates, report.rate);
                tell(Event::Train(line))?;
            }
        }
        Ok(())
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As many epochs or updates as configured.
    Finished,
    /// No progress for as many validations as configured.
    OutOfPatience,
    /// Stopped from outside; saved, and ready to go on.
    Interrupted,
}

impl Trainer<'_> {
    /// Trains, going on from `checkpoint_last` if there is one. `watch` sees every event.
    pub fn run(mut self, mut watch: impl FnMut(&Event)) -> Result<(Learner, Outcome)> {
        std::fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder))?;
        let mut state = match checkpoint::load_last(&self.folder, &mut self.learner)? {
            Some(state) => state,
            None => RunState { epoch: 1, ..RunState::default() },
        };
        let train = toml::to_string(&self.config.train).expect("configurations can be written as TOML");
        let before = std::mem::replace(&mut state.train, train);
        let mut log = JsonLog::open(&self.folder.join("log.jsonl"), state.counters.updates)?;
        let mut tell = |event: Event| {
            watch(&event);
            match event {
                Event::Update { .. } | Event::Saved { .. } => Ok(()),
                event => log.write(&event),
            }
        };
        let known: Vec<&str> = before.lines().collect();
        let changed = state.train.lines().filter(|line| !known.contains(line)).map(str::to_owned);
        let lines: Vec<String> = if before.is_empty() { Vec::new() } else { changed.collect() };
        if !lines.is_empty() {
            tell(Event::Changed { lines })?;
        }
        let sampler = self.sampler()?;
        if sampler.sentences() == 0 {
            return Err(Error::NoData);
        }
        let skipped = sampler.skipped();
        if skipped.count > 0 {
            tell(Event::Skipped { pairs: skipped.count, examples: skipped.examples.clone() })?;
        }
        let outcome = loop {
            if let Some(outcome) = self.reason_to_stop(&state) {
                break outcome;
            }
            if let Some(outcome) = self.epoch(&sampler, &mut state, &mut tell)? {
                break outcome;
            }
        };
        self.writer.finish()?;
        Ok((self.learner, outcome))
    }

    fn sampler(&self) -> Result<BatchSampler> {
        let positions = self.config.model.max_positions as u32;
        let options = SamplerOptions {
            max_tokens: self.config.train.max_tokens,
            max_sentences: None,
            max_positions: Some((positions, positions)),
            too_long: TooLong::Skip,
            seed: self.config.train.seed,
        };
        Ok(BatchSampler::new(&self.train.lengths(), options)?)
    }

    fn reason_to_stop(&self, state: &RunState) -> Option<Outcome> {
        let train = &self.config.train;
        let over = |limit: u64, value: u64| limit > 0 && value >= limit;
        if over(train.patience, state.stale) {
            Some(Outcome::OutOfPatience)
        } else if over(train.max_epoch, state.epoch - 1) || over(train.max_update, state.counters.updates) {
            Some(Outcome::Finished)
        } else {
            None
        }
    }

    /// The rest of the current epoch; an outcome if the run ends in it.
    fn epoch(
        &mut self,
        sampler: &BatchSampler,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let train = self.config.train.clone();
        let batches = sampler.epoch(state.epoch);
        let updates: Vec<&[Vec<u32>]> = batches.chunks(train.update_freq).collect();
        tell(Event::Epoch { epoch: state.epoch, updates: updates.len() as u64, done: state.position })?;
        let data = self.train;
        let rest = &updates[(state.position as usize).min(updates.len())..];
        let outcome = std::thread::scope(|scope| {
            // Batches are packed ahead, so that the device need not wait for them.
            let (sender, packed) = std::sync::mpsc::sync_channel::<Vec<PackedBatch>>(BATCHES_AHEAD);
            scope.spawn(move || {
                let pack = |ids: &Vec<u32>| PackedBatch::from_pairs(data, ids);
                // Nobody receives any more when the run ends early.
                rest.iter()
                    .map(|group| group.iter().map(pack).collect())
                    .try_for_each(|batch| sender.send(batch))
            });
            self.updates(packed, updates.len() as u64, state, tell)
        })?;
        if outcome.is_some() {
            return Ok(outcome);
        }
        if train.validate_interval > 0 && state.epoch.is_multiple_of(train.validate_interval) {
            self.validate(state, tell)?;
        }
        let finished = state.epoch;
        state.epoch += 1;
        state.position = 0;
        self.save(state, tell)?;
        if train.keep_last_epochs > 0 {
            let snapshot = Snapshot::of_model(&self.learner.model);
            let (folder, text, keep) = (self.folder.clone(), self.text(), train.keep_last_epochs);
            self.writer.hand_over(move || {
                snapshot.write(&folder, &format!("checkpoint{finished}"), &text)?;
                checkpoint::prune_epochs(&folder, keep)
            })?;
        }
        Ok(None)
    }

    /// Makes the updates of an epoch of `total` updates, for which batches come in.
    fn updates(
        &mut self,
        packed: Receiver<Vec<PackedBatch>>,
        total: u64,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let train = self.config.train.clone();
        let mut pending = Pending { updates: VecDeque::new(), last: Instant::now() };
        for batches in packed {
            let number = self.learner.counters().updates + 1;
            let steps = plan::steps(self.config.model.mixture.system, &train, state.epoch, number);
            pending.updates.push_back(self.learner.update(&batches, steps, state.epoch)?);
            state.position += 1;
            state.counters = self.learner.counters();
            tell(Event::Update { done: state.position })?;
            pending.report(UPDATES_AHEAD, state, train.log_interval, tell)?;
            if self.stop.load(Ordering::Relaxed) {
                pending.report(0, state, train.log_interval, tell)?;
                self.save(state, tell)?;
                return Ok(Some(Outcome::Interrupted));
            }
            let at_interval =
                train.save_interval_updates > 0 && number.is_multiple_of(train.save_interval_updates);
            let at_end = self.reason_to_stop(state).is_some();
            if (at_interval || at_end) && state.position < total {
                pending.report(0, state, train.log_interval, tell)?;
                self.validate(state, tell)?;
                self.save(state, tell)?;
                pending.last = Instant::now();
                if let Some(outcome) = self.reason_to_stop(state) {
                    return Ok(Some(outcome));
                }
            }
        }
        pending.report(0, state, train.log_interval, tell)?;
        Ok(None)
    }

    fn validate(&mut self, state: &mut RunState, tell: &mut impl FnMut(Event) -> Result<()>) -> Result<()> {
        let Some(valid) = self.valid else { return Ok(()) };
        let model = &self.learner.model;
        let mut validation = development_loss(model, valid, &self.config.train)?;
        if let Some(validator) = &mut self.validator {
            validation.bleu = Some(validator.bleu(model).map_err(Error::Validator)?);
        }
        // Scores are compared so that lower is better.
        let (value, sign) = match self.config.train.best_checkpoint_metric {
            Metric::Loss => (validation.loss, 1.0),
            Metric::Bleu => (validation.bleu.unwrap_or(0.0), -1.0),
        };
        validation.is_best = state.best.is_none_or(|best| sign * value < sign * best);
        if validation.is_best {
            state.best = Some(value);
            state.stale = 0;
        } else {
            state.stale += 1;
        }
        validation.best = state.best.unwrap_or(value);
        validation.epoch = state.epoch;
        validation.num_updates = state.counters.updates;
        let is_best = validation.is_best;
        tell(Event::Valid(validation))?;
        if is_best {
            let snapshot = Snapshot::of_model(model);
            self.write(snapshot, checkpoint::BEST, state, tell)?;
        }
        Ok(())
    }

    fn save(&mut self, state: &RunState, tell: &mut impl FnMut(Event) -> Result<()>) -> Result<()> {
        let snapshot = Snapshot::of_run(&self.learner, state);
        self.write(snapshot, checkpoint::LAST, state, tell)
    }

    /// Has a snapshot written while training goes on.
    fn write(
        &mut self,
        snapshot: Snapshot,
        name: &'static str,
        state: &RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        self.learner.model.params().device().check()?;
        let (folder, text) = (self.folder.clone(), self.text());
        self.writer.hand_over(move || snapshot.write(&folder, name, &text).map(|_| ()))?;
        tell(Event::Saved { folder: self.folder.join(name), num_updates: state.counters.updates })
    }

    fn text(&self) -> TextSide {
        let (source, target) = (self.train.src_vocab.clone(), self.train.tgt_vocab.clone());
        TextSide { source, target, codes: self.codes.cloned() }
    }
}
