//! The translation pipeline: groups of sentences in, hypotheses out, in the order of the input.
//!
//! A group is translated with options of its own, and the result for a sentence does not depend on its
//! neighbours. Behind this interface is a [`RunningBatch`](crate::RunningBatch), which the pipeline feeds with the longest
//! sentences of a window first. On a CPU with many threads there are several side by side. With a GPU, the search has
//! a thread of its own: the device need not wait while results are handed over, of which many come at once.

use std::sync::Arc;

use mae_data::{PackedBatch, ParallelDataset, Segmentation, Sentences, Vocab};
use mae_model::{ExpertMode, Translator};

use crate::batches::{BatchLimits, InOrder, LongestFirst, Work, in_order};
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::gates::SentenceGates;
use crate::hypothesis::Hypothesis;
use crate::options::SearchOptions;
use crate::reference::score_references;
use crate::running::{Job, SearchCaches};
use crate::side_by_side::{apart, batches_for, side_by_side};
use crate::text::{Fitted, text};

/// Sentences that wait in the running batch.
const AHEAD: usize = 1024;

/// Translates groups of sentences with one model or an ensemble.
pub struct Pipeline<'m> {
    models: Vec<&'m Translator>,
    limits: BatchLimits,
    caches: SearchCaches,
}

/// Sentences that are translated with the same options.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    /// Source sentences, at most as long as the models' positions.
    pub sources: &'a Sentences,
    /// Beginnings of the translations, one per sentence.
    pub prefixes: Option<&'a [Vec<u32>]>,
    /// Number of the first sentence: random choices depend on a sentence's number.
    pub first: usize,
}

/// Options of a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Search.
    pub search: SearchOptions,
    /// Experts that compute.
    pub mode: ExpertMode,
    /// Gates of the results.
    pub gates: GateReport,
}

/// Gates in the results of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateReport {
    /// None; costs nothing.
    #[default]
    None,
    /// Those of the first model, by one more pass over sources and translations.
    All,
}

/// Translations of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// Hypotheses, the best first; at least one. An empty source has one without tokens.
    pub hypotheses: Vec<Hypothesis>,
    /// Gates, if they were asked for and the source is not empty.
    pub gates: Option<SentenceGates>,
}

impl Translated {
    /// The translation of an empty line.
    pub fn empty() -> Self {
        Self { hypotheses: vec![Hypothesis::empty()], gates: None }
    }
}

impl<'m> Pipeline<'m> {
    /// Creates a pipeline for models with the same dictionaries.
    pub fn new(models: &[&'m Translator], limits: BatchLimits) -> Self {
        Self::with_caches(models, limits, SearchCaches::default())
    }

    /// Creates a pipeline that continues with the caches of an earlier one of the same models.
    pub fn with_caches(models: &[&'m Translator], limits: BatchLimits, caches: SearchCaches) -> Self {
        Self { models: models.to_vec(), limits, caches }
    }

    /// The caches, for the next pipeline.
    pub fn into_caches(self) -> SearchCaches {
        self.caches
    }

    /// Translates a group. `each` gets the results in the order of the sentences; `progress` gets the number
    /// of sentences that a step finished.
    pub fn translate<E: From<Error>>(
        &mut self,
        group: Group<'_>,
        options: &GroupOptions,
        progress: &mut dyn FnMut(usize),
        mut each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        group.check()?;
        let work = Feed { models: &self.models, limits: self.limits, group, options };
        let batches = batches_for(self.models.first().copied(), group.sources.len());
        if batches > 1 {
            return side_by_side(batches, work, progress, each);
        }
        let caches = std::mem::take(&mut self.caches);
        let mut fed = work.batch(caches, AHEAD)?;
        let mut order = LongestFirst::new(group.sources);
        if self.models[0].params().device().is_gpu() {
            let done;
            (self.caches, done) = apart(fed, order, progress, each);
            return done;
        }
        let mut results = InOrder::default();
        let mut run = || -> std::result::Result<(), E> {
            while let Some(found) = fed.step(|| order.next())? {
                results.take(found, progress, &mut each)?;
            }
            Ok(())
        };
        let done = run();
        self.caches = fed.into_caches();
        done
    }

    /// Scores the targets of sentence pairs: natural-log probabilities of all tokens, end marks counted, in
    /// the order of the pairs. `first` is the number of the first pair.
    pub fn score<E: From<Error>>(
        &self,
        (pairs, first): (&ParallelDataset, usize),
        mode: &ExpertMode,
        progress: &mut dyn FnMut(usize),
        mut each: impl FnMut(usize, Vec<f32>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let work = Work {
            count: pairs.len(),
            length: &|i| Some((pairs.src.size(i) as u32, pairs.tgt.size(i) as u32)),
            limits: self.limits,
            rows: 1,
        };
        let find = |ids: &[u32]| {
            let mut batch = PackedBatch::from_pairs(pairs, ids);
            batch.ids.iter_mut().for_each(|id| *id += first as u32);
            score_references(&self.models, &batch, mode)
        };
        in_order(&work, progress, find, |i, found| each(i, found.unwrap_or_default()))
    }
}

impl Group<'_> {
    /// Sentence `i` as the running batch takes it; `None` for an empty line, which is the end mark alone.
    pub(crate) fn job(&self, i: usize, options: &Arc<SearchOptions>) -> Option<Job> {
        let mut source = Vec::new();
        self.sources.append_to(i, &mut source);
        (source.len() > 1).then(|| Job {
            source,
            prefix: self.prefixes.map(|prefixes| prefixes[i].clone()).unwrap_or_default(),
            number: (self.first + i) as u32,
            options: options.clone(),
        })
    }

    fn check(&self) -> Result<()> {
        match self.prefixes {
            Some(prefixes) if prefixes.len() != self.sources.len() => Err(Error::Prefixes(format!(
                "{} prefixes were given for {} sentences",
                prefixes.len(),
                self.sources.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// Translates a set of sources to text: the best translation of each, the pieces that `codes` made joined, in
/// order. A source longer than the model's positions is cut; an empty one gives an empty line.
pub fn best_lines(
    model: &Translator,
    sources: &Sentences,
    (vocab, codes): (&Vocab, Option<&Segmentation>),
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<String>> {
    let positions = model.config().max_positions;
    let too_long = (0..sources.len()).any(|i| sources.size(i) > positions);
    let fitting: Option<Sentences> =
        too_long.then(|| Fitted::new((0..sources.len()).map(|i| sources.get(i)), positions).sentences.into());
    let group = Group { sources: fitting.as_ref().unwrap_or(sources), prefixes: None, first: 0 };
    let options = GroupOptions { search: options.clone(), mode: mode.clone(), gates: GateReport::None };
    let mut lines = Vec::with_capacity(sources.len());
    let mut pipeline = Pipeline::new(&[model], BatchLimits::beside_training());
    pipeline.translate(group, &options, &mut |_| {}, |_, found| -> Result<()> {
        lines.push(text(vocab, codes, &found.hypotheses[0].tokens));
        Ok(())
    })?;
    Ok(lines)
}
