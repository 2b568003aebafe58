//! A running batch: sentences join at step boundaries, are searched together, and leave when they are done.
//!
//! `submit` hands a sentence in, `step` takes the hypotheses of all present sentences one token further and
//! returns the translations that this completed. Each sentence has options of its own, and its translation does
//! not depend on its neighbours, nor on when it joined.
//!
//! An idle batch takes what waits at once. A busy one lets sentences gather until an eighth of its rows is free,
//! because encoding a few sentences costs a GPU as much as encoding many.
//!
//! On a GPU there are two lanes, each with half of the rows: while the host ranks the hypotheses of one, the
//! device computes the other.

use std::collections::VecDeque;
use std::sync::Arc;

use mae_engine::cpu::together;
use mae_model::{ExpertMode, Model, Translator};

use crate::batches::{BatchLimits, LaneLimits};
use crate::error::{Error, Result};
use crate::experts::ExpertFault;
use crate::hypothesis::Hypothesis;
use crate::lane::{Lane, LaneState, positions};
use crate::options::SearchOptions;

/// Name of a sentence in a running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// A sentence to translate.
#[derive(Clone, Debug)]
pub struct Job {
    /// Source ids, the end mark at the end; not longer than the models' positions.
    pub source: Vec<u32>,
    /// Beginning of the translation. It may close with the end mark; then there is nothing to search.
    pub prefix: Vec<u32>,
    /// Number of the sentence: random choices depend on it.
    pub number: u32,
    /// Search options.
    pub options: Arc<SearchOptions>,
}

/// A translated sentence: up to `nbest` hypotheses and at least one, the best first.
pub type Finished = (Ticket, Result<Vec<Hypothesis>>);

/// Sentences that are translated together, with one model or an ensemble.
pub struct RunningBatch<'m> {
    models: Vec<&'m Translator>,
    mode: ExpertMode,
    limits: BatchLimits,
    waiting: VecDeque<(Ticket, Job)>,
    lanes: Vec<Lane>,
    /// The lane whose turn it is.
    turn: usize,
    tickets: u64,
}

/// Caches that outlive a [`RunningBatch`], for the next one with the same models: on a GPU they hold captured
/// steps, which take longer to record than a sentence takes to translate.
#[derive(Default)]
pub struct SearchCaches {
    /// States of the lanes, with the mode that they were used with.
    states: Option<(ExpertMode, Vec<LaneState>)>,
}

impl<'m> RunningBatch<'m> {
    /// Creates an empty batch for models with the same dictionaries, whose probabilities are averaged at every
    /// step. Fails without models, and for [`ExpertMode::Sample`], which exists in training only.
    ///
    /// # Panics
    ///
    /// If the models' target dictionaries differ in size; [`crate::Models::load`] compares them.
    pub fn new(models: &[&'m Translator], mode: &ExpertMode, limits: BatchLimits) -> Result<Self> {
        Self::with_caches(models, mode, limits, SearchCaches::default())
    }

    /// Creates an empty batch that continues with the caches of an earlier one of the same models.
    ///
    /// # Panics
    ///
    /// As [`RunningBatch::new`].
    pub fn with_caches(
        models: &[&'m Translator],
        mode: &ExpertMode,
        limits: BatchLimits,
        caches: SearchCaches,
    ) -> Result<Self> {
        let first = models.first().ok_or(Error::NoModels)?;
        let types = first.target_types();
        assert!(models.iter().all(|model| model.target_types() == types), "models with other dictionaries");
        if matches!(mode, ExpertMode::Sample) {
            return Err(Error::Experts { model: "the model".into(), fault: ExpertFault::TrainingOnly });
        }
        let mut states = match caches.states {
            Some((used, states)) if replays(&used, mode) => states,
            _ => Vec::new(),
        };
        let count = if first.params().device().is_gpu() { 2 } else { 1 };
        states.resize_with(count, LaneState::default);
        Ok(Self {
            models: models.to_vec(),
            mode: mode.clone(),
            limits,
            waiting: VecDeque::new(),
            lanes: states.into_iter().map(Lane::new).collect(),
            turn: 0,
            tickets: 0,
        })
    }

    /// The caches, for the next batch. Sentences that are still here are dropped.
    pub fn into_caches(self) -> SearchCaches {
        let (models, lanes) = (&self.models, self.lanes);
        let states = lanes.into_iter().map(|lane| lane.into_state(models)).collect();
        SearchCaches { states: Some((self.mode, states)) }
    }

    /// Hands a sentence in; it joins as soon as there is room. Fails for options that contradict each other, an
    /// empty or too long source, and ids that the models do not have.
    pub fn submit(&mut self, job: Job) -> Result<Ticket> {
        job.options.check()?;
        self.check(&job)?;
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.waiting.push_back((ticket, job));
        Ok(ticket)
    }

    /// Drops a sentence, wherever it is; one that is finished or unknown is no error.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.lanes.iter_mut().for_each(|lane| lane.cancel(ticket));
    }

    /// Number of sentences that have not joined yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of sentences that are being searched.
    pub fn running(&self) -> usize {
        self.lanes.iter().map(Lane::sentences).sum()
    }

    /// Returns true if nothing waits and nothing is being searched.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running() == 0
    }

    /// Lets waiting sentences join, takes a step, and returns the sentences that this completed. Without
    /// sentences it does nothing.
    ///
    /// A sentence for which the models give no numbers has [`Error::NotFinite`] as its result. An error of the
    /// step itself is one of the device; the batch is of no use then.
    pub fn step(&mut self) -> Result<Vec<Finished>> {
        let mut finished = Vec::new();
        let limits = self.limits.of_lane(self.lanes.len(), self.models[0].params().device());
        let most = self.limits.max_sentences.map_or(usize::MAX, |most| most as usize);
        let Some(at) = self.next_lane(&limits) else { return Ok(finished) };
        self.turn = at + 1;
        let running = self.running();
        let Self { models, mode, waiting, lanes, .. } = self;
        let lane = &mut lanes[at];
        let mut turn = || {
            lane.collect(models, &mut finished)?;
            let free = most.saturating_sub(running - finished.len());
            lane.admit(models, mode, &limits, free, waiting)?;
            lane.ask(models, mode)
        };
        match models[0].params().device().is_gpu() {
            true => turn()?,
            false => together(turn)?,
        }
        Ok(finished)
    }

    /// The next lane in turn that has something to do. An idle one stays so while another can take who waits:
    /// two half-empty lanes are slower than a full one.
    fn next_lane(&self, limits: &LaneLimits) -> Option<usize> {
        let count = self.lanes.len();
        let taken_elsewhere = self.lanes.iter().any(|lane| !lane.is_idle() && lane.has_room(limits));
        let waits = !self.waiting.is_empty() && !taken_elsewhere;
        (0..count).map(|i| (self.turn + i) % count).find(|&at| !self.lanes[at].is_idle() || waits)
    }

    fn check(&self, job: &Job) -> Result<()> {
        let types = self.models[0].target_types();
        if let Some(id) = job.prefix.iter().find(|&&id| id as usize >= types) {
            return Err(Error::Prefixes(format!("a prefix holds id {id}, the dictionary has {types} types")));
        }
        let (tokens, positions) = (job.source.len(), positions(&self.models));
        if !(1..=positions).contains(&tokens) {
            return Err(Error::Source { tokens, positions });
        }
        if let Some(list) = &job.options.shortlist {
            if self.models[0].params().device().is_gpu() {
                return Err(Error::ShortlistOnGpu);
            }
            assert_eq!(list.types(), types, "a shortlist of another dictionary");
        }
        Ok(self.models.iter().try_for_each(|model| model.check_source(&job.source))?)
    }
}

/// Returns true if steps that were captured in one mode compute the other. A captured step has its experts
/// built in; random ones are read from the cache.
fn replays(captured: &ExpertMode, mode: &ExpertMode) -> bool {
    match (captured, mode) {
        (ExpertMode::Mix, ExpertMode::Mix)
        | (ExpertMode::Argmax, ExpertMode::Argmax)
        | (ExpertMode::Random(_), ExpertMode::Random(_)) => true,
        (ExpertMode::Fixed(one), ExpertMode::Fixed(other)) => one == other,
        (ExpertMode::Altered(one), ExpertMode::Altered(other)) => Arc::ptr_eq(one, other),
        (ExpertMode::InEncoder(one), ExpertMode::InEncoder(other)) => replays(one, other),
        _ => false,
    }
}
