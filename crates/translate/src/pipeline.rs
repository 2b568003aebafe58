//! The translation pipeline: groups of sentences in, hypotheses out, in the order of the input.
//!
//! A group is translated with options of its own, and the result for a sentence does not depend on its
//! neighbours. The batches behind this interface are an implementation detail: sentences of like lengths are
//! searched together.

use mae_data::{PackedBatch, ParallelDataset, Segmentation, Sentences, Vocab};
use mae_model::{ExpertMode, Translator};

use crate::batches::{BatchLimits, Work, in_order};
use crate::beam::{SearchCaches, Searcher};
use crate::error::{Error, Result};
use crate::gates::{SentenceGates, gates_of};
use crate::hypothesis::Hypothesis;
use crate::options::SearchOptions;
use crate::reference::score_references;
use crate::text::{Fitted, text};

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
    fn empty() -> Self {
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
    /// of sentences of each finished batch.
    pub fn translate<E: From<Error>>(
        &mut self,
        group: Group<'_>,
        options: &GroupOptions,
        progress: &mut dyn FnMut(usize),
        mut each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        group.check()?;
        let caches = std::mem::take(&mut self.caches);
        let mut searcher = Searcher::with_caches(&self.models, &options.search, &options.mode, caches)?;
        let words = |i: usize| Some(group.sources.size(i) as u32).filter(|&tokens| tokens > 1);
        let work = Work {
            count: group.sources.len(),
            // The end mark alone is an empty line.
            length: &|i| words(i).map(|tokens| (tokens, 0)),
            limits: self.limits,
            rows: options.search.beam,
        };
        let model = self.models[0];
        let find = |ids: &[u32]| {
            let mut batch = PackedBatch::from_sources(group.sources, ids);
            batch.ids.iter_mut().for_each(|id| *id += group.first as u32);
            let hypotheses = match group.prefixes {
                None => searcher.search(&batch)?,
                Some(prefixes) => {
                    let own: Vec<_> = ids.iter().map(|&i| prefixes[i as usize].clone()).collect();
                    searcher.search_after(&batch, &own)?
                }
            };
            let gates = match options.gates {
                GateReport::None => vec![None; hypotheses.len()],
                GateReport::All => {
                    let gates = gates_of(model, &batch, &hypotheses, &options.mode)?;
                    gates.into_iter().map(Some).collect()
                }
            };
            let both = hypotheses.into_iter().zip(gates);
            Ok(both.map(|(hypotheses, gates)| Translated { hypotheses, gates }).collect())
        };
        let each = |i, found: Option<Translated>| each(i, found.unwrap_or_else(Translated::empty));
        let done = in_order(&work, progress, find, each);
        self.caches = searcher.into_caches();
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
