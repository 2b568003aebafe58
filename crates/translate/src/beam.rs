//! Beam search over many sentences at once, with the rules of fairseq v0.9's `SequenceGenerator`.
//!
//! Every sentence keeps up to `beam` live hypotheses. At each step the 2·beam best continuations of all of
//! them together are ranked by cumulative log-probability. Those that end (in `</s>`) among the first `beam`
//! are finished; those that end further down are dropped; of the others the first `beam` live on. A sentence
//! is done as soon as it has `beam` finished hypotheses, even if better ones could follow, or when its length
//! limit forces all live ones to end. Finished hypotheses are ranked by their normalised score.
//!
//! That is the plain search; [`crate::options`] lists the other choices. Where a search needs more than the
//! best continuations (several models, forced prefixes, no repetitions, groups, sampling), the device makes whole
//! rows of log-probabilities and chooses from them; the rest is the same.
//!
//! The hypotheses of all unfinished sentences are the rows of one step, see [`crate::running`].

use std::sync::Arc;

use mae_data::PackedBatch;
use mae_model::{ExpertMode, Translator};

use crate::batches::BatchLimits;
use crate::error::{Error, Result};
use crate::hypothesis::Hypothesis;
use crate::options::SearchOptions;
use crate::running::{Job, RunningBatch, Ticket};

/// Translates the sources of one batch: [`Searcher::search`].
pub fn search(
    model: &Translator,
    batch: &PackedBatch,
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<Vec<Hypothesis>>> {
    Searcher::new(model, options, mode)?.search(batch)
}

/// Translates batch after batch with the same options. The caches of one batch, and on a GPU its captured steps,
/// serve the next.
pub struct Searcher<'m> {
    batch: RunningBatch<'m>,
    options: Arc<SearchOptions>,
}

impl<'m> Searcher<'m> {
    /// Creates a searcher for `model`. Fails for options that [`SearchOptions::check`] refuses and for
    /// [`ExpertMode::Sample`], which exists in training only.
    pub fn new(model: &'m Translator, options: &SearchOptions, mode: &ExpertMode) -> Result<Self> {
        Self::ensemble(&[model], options, mode)
    }

    /// Creates a searcher for several models with the same dictionaries: their probabilities are averaged at
    /// every step. Fails as [`Searcher::new`] does, and without models.
    ///
    /// # Panics
    ///
    /// If the models' target dictionaries differ in size; [`crate::Models::load`] compares them.
    pub fn ensemble(models: &[&'m Translator], options: &SearchOptions, mode: &ExpertMode) -> Result<Self> {
        options.check()?;
        let batch = RunningBatch::new(models, mode, BatchLimits::default())?;
        Ok(Self { batch, options: Arc::new(options.clone()) })
    }

    /// Translates the sources of a batch (its targets are not read): for each sentence, in batch order, up to
    /// `nbest` hypotheses and at least one, the best first.
    ///
    /// The result for a sentence does not depend on the others in the batch; random choices depend on the
    /// sentence's number (`batch.ids`) and the seed. Fails with [`Error::NotFinite`] where the model's
    /// outputs are not numbers, as those of a model whose training diverged, and with the device's errors.
    pub fn search(&mut self, batch: &PackedBatch) -> Result<Vec<Vec<Hypothesis>>> {
        self.search_after(batch, &vec![Vec::new(); batch.sentences()])
    }

    /// [`Searcher::search`] for translations that begin with the given tokens, a list per sentence of the
    /// batch. The length limits hold; a list may close with the end mark, then there is nothing to search.
    /// Fails also for another number of lists than sentences, and for tokens that the models do not have.
    pub fn search_after(
        &mut self,
        batch: &PackedBatch,
        prefixes: &[Vec<u32>],
    ) -> Result<Vec<Vec<Hypothesis>>> {
        if prefixes.len() != batch.sentences() {
            let (given, wanted) = (prefixes.len(), batch.sentences());
            return Err(Error::Prefixes(format!("{given} prefixes were given for {wanted} sentences")));
        }
        let mut tickets: Vec<Ticket> = Vec::with_capacity(batch.sentences());
        for (place, prefix) in prefixes.iter().enumerate() {
            let submitted = self.batch.submit(Job {
                source: batch.src_sentence(place).to_vec(),
                prefix: prefix.clone(),
                number: batch.ids[place],
                options: self.options.clone(),
            });
            match submitted {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    tickets.into_iter().for_each(|ticket| self.batch.cancel(ticket));
                    return Err(error);
                }
            }
        }
        let mut results = vec![Vec::new(); tickets.len()];
        let mut fault = None;
        while !self.batch.is_idle() {
            for (ticket, found) in self.batch.step()? {
                let place = tickets.binary_search(&ticket).expect("tickets rise");
                match found {
                    Ok(found) => results[place] = found,
                    Err(error) => fault = fault.or(Some(error)),
                }
            }
        }
        fault.map_or(Ok(results), Err)
    }
}
