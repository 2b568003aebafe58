//! Validation, and the checkpoints after it.

use std::path::Path;

use mae_data::files::FolderLock;
use mae_engine::HostCopy;
use mae_model::{Config, Model};

use super::Trainer;
use crate::checkpoint::{RunState, Snapshot};
use crate::config::Metric;
use crate::diagnosis::{Diagnosis, Divergence};
use crate::log::Event;
use crate::ranks;
use crate::validate::development_loss_among;
use crate::{Error, Result, artifacts, kept};

impl<M: Model> Trainer<'_, M> {
    pub(super) fn validate(
        &mut self,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        let Some(valid) = self.valid else { return Ok(()) };
        let model = &self.learner.model;
        let train = &self.config.train;
        let ranks = self.learner.team().host();
        let mut validation = development_loss_among(ranks, model, valid, train)?;
        if !validation.loss.is_finite() || !validation.nll_loss.is_finite() {
            return Err(Error::Diverged(Divergence::of_validation(validation.loss, state.counters.updates)));
        }
        if let Some(validator) = &mut self.validator {
            let own =
                if ranks.place().is_first() { validator.bleu(model).map_err(Error::Validator)? } else { 0.0 };
            let bytes = ranks::from_first(ranks, own.to_le_bytes().to_vec())?;
            validation.bleu = bytes.try_into().ok().map(f64::from_le_bytes);
        }
        let (metric, keep) = (train.best_checkpoint_metric, train.keep_best_checkpoints);
        let value = match metric {
            Metric::Loss => validation.loss,
            Metric::Bleu => validation.bleu.unwrap_or(0.0),
        };
        let is_best = state.best.is_none_or(|best| metric.cost(value) < metric.cost(best));
        if is_best {
            state.best = Some(value);
            state.stale = 0;
        } else {
            state.stale += 1;
        }
        let updates = state.counters.updates;
        validation.is_best = is_best;
        validation.best = state.best.unwrap_or(value);
        validation.epoch = state.epoch;
        validation.num_updates = updates;
        if self.config.model.mixture().system.is_gated() {
            validation.gate_updates = Some(state.counters.gate_updates);
            validation.gate_gnorm = state.gate_norm;
        }
        tell(Event::Valid(validation))?;
        if !self.is_first() || (!is_best && keep == 0) {
            return Ok(());
        }
        let snapshot = self.writer.snapshot(&self.learner.model)?;
        if keep > 0 {
            let (snapshot, folder, text) = (snapshot.clone(), self.folder.clone(), self.text.clone());
            self.writer.hand_over(move || {
                kept::keep_best(&folder, metric, (value, updates), keep, (&snapshot, &text))
            })?;
        }
        if is_best {
            self.write(snapshot, artifacts::BEST, state, tell)?;
        }
        Ok(())
    }

    /// Saves everything that the run needs to resume.
    pub(super) fn save(
        &mut self,
        state: &RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        let Some(memory) = self.memory()? else { return Ok(()) };
        let snapshot = self.writer.snapshot(&self.learner.model)?.and_run(memory, state);
        self.write(snapshot, artifacts::LAST, state, tell)
    }

    /// The memory of the optimisers for rank 0, to which all give their slices if they share it.
    fn memory(&self) -> Result<Option<Vec<(String, HostCopy)>>> {
        if !self.is_first() && !self.learner.is_sharded() {
            return Ok(None);
        }
        let memory = self.learner.memory()?;
        Ok(self.is_first().then_some(memory))
    }

    /// Saves the model under a name of its own, and lets `prune` leave `count` of the kind.
    pub(super) fn keep(
        &mut self,
        name: String,
        count: usize,
        prune: fn(&Path, usize) -> Result<()>,
    ) -> Result<()> {
        if !self.is_first() {
            return Ok(());
        }
        self.lock.map_or(Ok(()), FolderLock::check)?;
        let snapshot = self.writer.snapshot(&self.learner.model)?;
        let (folder, text) = (self.folder.clone(), self.text.clone());
        self.writer.hand_over(move || {
            snapshot.write(&folder, &name, &text)?;
            prune(&folder, count)
        })
    }

    /// Saves the state before an update that failed, beside `checkpoint_last`, with a report about it.
    pub(super) fn save_before(&mut self, mut diagnosis: Diagnosis, state: RunState) -> Result<Diagnosis> {
        let Some(memory) = self.memory()? else { return Ok(diagnosis) };
        self.writer.finish()?;
        let snapshot = self.writer.snapshot(&self.learner.model)?.and_run(memory, &state);
        let saved = match snapshot.write(&self.folder, artifacts::NOT_FINITE, &self.text) {
            // Parameters broke before this update, so there is nothing to keep.
            Err(Error::Diverged(_)) => return Ok(diagnosis),
            saved => saved?,
        };
        let json = serde_json::to_string(&diagnosis).expect("a diagnosis can always be written as JSON");
        mae_data::files::write(saved.join(artifacts::DIAGNOSIS), json.as_bytes())?;
        diagnosis.saved = Some(saved);
        Ok(diagnosis)
    }

    /// Lets a snapshot be written while training continues.
    fn write(
        &mut self,
        snapshot: Snapshot,
        name: &'static str,
        state: &RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        self.learner.model.params().device().check()?;
        self.lock.map_or(Ok(()), FolderLock::check)?;
        tell(Event::Saved { folder: self.folder.join(name), num_updates: state.counters.updates })?;
        let (folder, text) = (self.folder.clone(), self.text.clone());
        self.writer.hand_over(move || snapshot.write(&folder, name, &text).map(|_| ()))
    }
}
