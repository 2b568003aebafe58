//! A running batch that is fed with the sentences of a group.

use std::collections::HashMap;
use std::sync::Arc;

use mae_data::PackedBatch;
use mae_model::Translator;

use crate::batches::BatchLimits;
use crate::error::Result;
use crate::gates::gates_of;
use crate::hypothesis::Hypothesis;
use crate::options::SearchOptions;
use crate::pipeline::{GateReport, Group, GroupOptions, Translated};
use crate::running::{RunningBatch, SearchCaches, Ticket};

/// A group to translate, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Feed<'a, 'm> {
    pub(crate) models: &'a [&'m Translator],
    pub(crate) limits: BatchLimits,
    pub(crate) group: Group<'a>,
    pub(crate) options: &'a GroupOptions,
}

impl<'a, 'm> Feed<'a, 'm> {
    /// A batch in which up to `ahead` sentences wait.
    pub(crate) fn batch(self, caches: SearchCaches, ahead: usize) -> Result<FedBatch<'a, 'm>> {
        let batch = RunningBatch::with_caches(self.models, &self.options.mode, self.limits, caches)?;
        let search = Arc::new(self.options.search.clone());
        Ok(FedBatch { feed: self, batch, ahead, search, tickets: HashMap::new() })
    }

    /// Adds gates to translations, if they are asked for.
    fn with_gates(&self, found: Vec<(usize, Vec<Hypothesis>)>) -> Result<Vec<(usize, Translated)>> {
        let (places, hypotheses): (Vec<usize>, Vec<Vec<Hypothesis>>) = found.into_iter().unzip();
        let gates = if self.options.gates == GateReport::None || places.is_empty() {
            vec![None; places.len()]
        } else {
            let ids: Vec<u32> = places.iter().map(|&i| i as u32).collect();
            let mut batch = PackedBatch::from_sources(self.group.sources, &ids);
            batch.ids.iter_mut().for_each(|id| *id += self.group.first as u32);
            let gates = gates_of(self.models[0], &batch, &hypotheses, &self.options.mode)?;
            gates.into_iter().map(Some).collect()
        };
        let both = hypotheses.into_iter().zip(gates);
        let translated = both.map(|(hypotheses, gates)| Translated { hypotheses, gates });
        Ok(places.into_iter().zip(translated).collect())
    }
}

/// A running batch with the numbers of its sentences.
pub(crate) struct FedBatch<'a, 'm> {
    feed: Feed<'a, 'm>,
    batch: RunningBatch<'m>,
    ahead: usize,
    search: Arc<SearchOptions>,
    tickets: HashMap<Ticket, usize>,
}

impl FedBatch<'_, '_> {
    /// Takes more sentences from `next` and takes a step; returns the sentences that are done now, `None` after the last.
    pub(crate) fn step(
        &mut self,
        mut next: impl FnMut() -> Option<usize>,
    ) -> Result<Option<Vec<(usize, Translated)>>> {
        let Self { feed, batch, ahead, search, tickets } = self;
        let mut done = Vec::new();
        while batch.waiting() < *ahead
            && let Some(i) = next()
        {
            match feed.group.job(i, search) {
                Some(job) => drop(tickets.insert(batch.submit(job)?, i)),
                None => done.push((i, Translated::empty())),
            }
        }
        if batch.is_idle() {
            return Ok((!done.is_empty()).then_some(done));
        }
        let mut found = Vec::new();
        for (ticket, hypotheses) in batch.step()? {
            found.push((tickets.remove(&ticket).expect("submitted above"), hypotheses?));
        }
        done.extend(feed.with_gates(found)?);
        Ok(Some(done))
    }

    /// The caches, for the next batch.
    pub(crate) fn into_caches(self) -> SearchCaches {
        self.batch.into_caches()
    }
}
