//! The loop: epochs, updates, validation, checkpoints, stopping.

mod beginning;
mod pending;
mod saving;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::Builder;

use mae_data::files::{self, FolderLock};
use mae_data::sampler::{TooLong, subset};
use mae_data::{BatchSampler, Corpus, Redraw, SamplerOptions};
use mae_model::{Config, Model, Translator};

use self::beginning::Beginning;
use self::pending::Pending;
use crate::checkpoint::{Resets, RunState, TextSide, Writer};
use crate::config::{Batching, RunConfig};
use crate::learner::{Learner, Share};
use crate::log::Event;
use crate::record::Record;
use crate::validate::Validator;
use crate::{Error, Result, artifacts, kept, memory, plan, ranks};

/// A run: data, model and choices.
pub struct Trainer<'a, M: Model = Translator> {
    /// Configuration.
    pub config: RunConfig<M::Config>,
    /// The model being trained.
    pub learner: Learner<M>,
    /// Training set.
    pub train: &'a dyn Corpus,
    /// Development set, if there is one.
    pub valid: Option<&'a dyn Corpus>,
    /// Dictionaries and how text is cut, to store with the model.
    pub text: TextSide,
    /// Folder of checkpoints and log, made when updates begin.
    pub folder: PathBuf,
    /// Record of the run, written when updates begin.
    pub record: Option<Record>,
    /// Folder of TensorBoard's files, if there are to be any.
    pub tensorboard: Option<PathBuf>,
    /// Parts of its checkpoint that a resumed run does not take.
    pub resets: Resets,
    /// Scores BLEU, where the configuration asks for it.
    pub validator: Option<Box<dyn Validator<M> + 'a>>,
    /// Set from outside to stop after the current update.
    pub stop: &'a AtomicBool,
    /// Writes the checkpoints.
    pub writer: Writer,
    /// Lock of the folder: nobody else writes there. Ranks after the first write nothing and have none.
    pub lock: Option<&'a FolderLock>,
}

/// Batches that are packed before they are needed.
const BATCHES_AHEAD: usize = 16;
/// Updates that the device may be behind before the loop waits for it.
const UPDATES_AHEAD: usize = 4;

/// Reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As many epochs or updates as configured.
    Finished,
    /// No progress for as many validations as configured.
    OutOfPatience,
    /// Stopped from outside; saved, and ready to be resumed.
    Interrupted,
}

impl<M: Model> Trainer<'_, M> {
    /// Trains, resuming from `checkpoint_last` if there is one. `watch` sees every event.
    pub fn run(mut self, mut watch: impl FnMut(&Event)) -> Result<(Learner<M>, Outcome)> {
        // What ended processes left; nobody else writes here.
        let ours = |name: &str| {
            name.starts_with("checkpoint") || [artifacts::LOG, artifacts::RECORD].contains(&name)
        };
        if self.is_first() {
            files::sweep(&self.folder, ours)?;
        }
        let Beginning { mut state, events: mut opening, outdated } = self.begin()?;
        if let Some(outcome) = self.reason_to_stop(&state) {
            return Ok((self.learner, outcome));
        }
        let redraw = self.redraw()?;
        let sampler = self.sampler(self.train)?;
        if sampler.sentences() == 0 {
            return Err(Error::NoData);
        }
        let skipped = sampler.skipped();
        if skipped.count > 0 {
            opening.push(Event::Skipped {
                pairs: skipped.count,
                tokens: sampler.skipped_tokens(),
                of_tokens: sampler.skipped_tokens() + sampler.target_tokens(),
                examples: skipped.examples.clone(),
            });
        }
        opening.iter().for_each(&mut watch);
        let train = &self.config.train;
        if train.memory_check {
            let available = memory::available();
            watch(&Event::Memory(memory::check(&mut self.learner, &sampler, train.max_tokens, available)?));
        }
        // Nothing else in the folder changes before this line: whatever refuses a run has done so, on all ranks.
        self.learner.team().host().barrier()?;
        let mut files = if self.is_first() { Some(self.open(&outdated, &state)?) } else { None };
        if let Some((log, _)) = &mut files {
            opening.iter().try_for_each(|event| log.write(event))?;
        }
        let mut tell = |event: Event| {
            watch(&event);
            let Some((log, board)) = &mut files else { return Ok(()) };
            // Lines of updates that a checkpoint has must not be lost before it.
            if matches!(event, Event::Saved { .. }) {
                log.sync()?;
            }
            if let Some(board) = board {
                board.write(&event)?;
            }
            if event.is_logged() { log.write(&event) } else { Ok(()) }
        };
        let outcome = match self.epochs((&sampler, redraw.as_ref()), &mut state, &mut tell) {
            Err(Error::NotFinite(diagnosis)) => {
                let diagnosis = self.save_before(*diagnosis, state)?;
                tell(Event::NotFinite(diagnosis.clone()))?;
                return Err(Error::NotFinite(Box::new(diagnosis)));
            }
            ended => ended?,
        };
        self.writer.finish()?;
        // Nobody leaves before everything is saved.
        self.learner.team().host().barrier()?;
        Ok((self.learner, outcome))
    }

    /// True for the rank that logs and saves.
    fn is_first(&self) -> bool {
        self.learner.team().place().is_first()
    }

    fn epochs(
        &mut self,
        data: (&BatchSampler, Option<&Redraw>),
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.reason_to_stop(state) {
                return Ok(outcome);
            }
            if let Some(outcome) = self.epoch(data, state, tell)? {
                return Ok(outcome);
            }
        }
    }

    /// What cuts words anew in each epoch, where the configuration asks for it.
    fn redraw(&self) -> Result<Option<Redraw>> {
        let train = &self.config.train;
        if train.bpe_dropout == 0.0 {
            return Ok(None);
        }
        let longest = self.config.model.max_positions().min(train.max_tokens as usize);
        Ok(Some(Redraw::new(self.text.codes.as_ref(), train.bpe_dropout, train.seed, longest)?))
    }

    fn sampler(&self, data: &dyn Corpus) -> Result<BatchSampler> {
        let train = &self.config.train;
        let positions = self.config.model.max_positions() as u32;
        let options = SamplerOptions {
            max_tokens: train.max_tokens,
            max_sentences: (train.max_sentences > 0).then_some(train.max_sentences),
            max_positions: Some((positions, positions)),
            too_long: TooLong::Skip,
            seed: train.seed,
        };
        let lengths = data.lengths();
        let part = subset(lengths.len(), train.subset, train.seed);
        let sampler = BatchSampler::among(&lengths, &part, options)?;
        Ok(match train.batching {
            Batching::Packed => sampler,
            Batching::Frozen => sampler.freeze(train.required_batch_size_multiple),
        })
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
        (sampler, redraw): (&BatchSampler, Option<&Redraw>),
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let train = self.config.train.clone();
        let redrawn = redraw.and_then(|redraw| self.train.redrawn(redraw, state.epoch));
        let data = redrawn.as_deref().unwrap_or(self.train);
        let batches = match &redrawn {
            Some(_) => self.sampler(data)?.epoch(state.epoch),
            None => sampler.epoch(state.epoch),
        };
        let used = state.batches.unwrap_or(0) as usize;
        let place = self.learner.team().place();
        let of_update = train.update_freq * place.size;
        let rest: Vec<&[Vec<u32>]> = batches[used.min(batches.len())..].chunks(of_update).collect();
        let lengths = if place.is_alone() { Vec::new() } else { data.lengths() };
        let total = state.position + rest.len() as u64;
        tell(Event::Epoch { epoch: state.epoch, updates: total, done: state.position })?;
        let outcome = std::thread::scope(|scope| {
            // Batches are packed ahead, so that the device need not wait for them.
            let (sender, packed) = std::sync::mpsc::sync_channel::<Share>(BATCHES_AHEAD);
            let pack_ahead = move || {
                let mut shares = rest.iter().map(|group| Share::of(group, place, data, &lengths));
                // Nobody receives any more when the run ends early.
                shares.try_for_each(|share| sender.send(share))
            };
            Builder::new().spawn_scoped(scope, pack_ahead).map_err(Error::Threads)?;
            self.updates(packed, total, state, tell)
        })?;
        if outcome.is_some() {
            return Ok(outcome);
        }
        let every = |interval: u64, number: u64| interval > 0 && number.is_multiple_of(interval);
        let over = |limit: u64, number: u64| limit > 0 && number >= limit;
        let updates = state.counters.updates;
        let by_update = train.save_interval_updates > 0
            && (every(train.save_interval_updates, updates)
                || over(train.max_epoch, state.epoch)
                || over(train.max_update, updates));
        if every(train.validate_interval, state.epoch) || by_update {
            self.validate(state, tell)?;
        }
        let saves = every(train.save_interval, state.epoch) || by_update;
        // Before `checkpoint_last`: a run that is killed between the two makes it again.
        if saves && train.keep_last_epochs > 0 {
            let name = format!("checkpoint{}", state.epoch);
            self.keep(name, train.keep_last_epochs, kept::prune_epochs)?;
        }
        state.epoch += 1;
        (state.position, state.batches) = (0, Some(0));
        if saves || self.reason_to_stop(state).is_some() {
            self.save(state, tell)?;
        }
        Ok(None)
    }

    /// Makes the updates of an epoch of `total` updates, for which batches come in.
    fn updates(
        &mut self,
        packed: Receiver<Share>,
        total: u64,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let train = self.config.train.clone();
        let mut pending = Pending::new(&train);
        for batches in packed {
            let number = self.learner.counters().updates + 1;
            let steps = plan::steps(self.config.model.mixture().system, &train, state.epoch, number);
            self.writer.forget();
            let used = state.batches.unwrap_or(0);
            pending.add(self.learner.update(&batches, steps, state.epoch)?, [state.position, used]);
            state.position += 1;
            state.batches = Some(used + batches.batches as u64);
            state.counters = self.learner.counters();
            tell(Event::Update { done: state.position })?;
            pending.report(UPDATES_AHEAD, state, tell)?;
            if ranks::any(self.learner.team(), self.stop.load(Ordering::Relaxed))? {
                pending.report(0, state, tell)?;
                self.save(state, tell)?;
                return Ok(Some(Outcome::Interrupted));
            }
            let at_interval =
                train.save_interval_updates > 0 && number.is_multiple_of(train.save_interval_updates);
            let at_end = self.reason_to_stop(state).is_some();
            if (at_interval || at_end) && state.position < total {
                match at_end {
                    true => pending.report_all(state, tell)?,
                    false => pending.report(0, state, tell)?,
                }
                self.validate(state, tell)?;
                // Before `checkpoint_last`: a run that is killed between the two makes it again.
                if at_interval && train.keep_interval_updates > 0 {
                    let name = kept::interval_name(state.epoch, number);
                    self.keep(name, train.keep_interval_updates, kept::prune_intervals)?;
                }
                self.save(state, tell)?;
                pending.forget_time();
                if let Some(outcome) = self.reason_to_stop(state) {
                    return Ok(Some(outcome));
                }
            }
        }
        pending.report_all(state, tell)?;
        Ok(None)
    }
}
