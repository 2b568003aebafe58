//! Beam search over many sentences at once, with the rules of fairseq v0.9's `SequenceGenerator`.
//!
//! Every sentence keeps up to `beam` live hypotheses. At each step the 2·beam best continuations of all of
//! them together are ranked by cumulative log-probability. Those that end (in `</s>`) among the first `beam`
//! are finished; those that end further down are dropped; of the others the first `beam` live on. A sentence
//! is done as soon as it has `beam` finished hypotheses, even if better ones could follow, or when its length
//! limit forces all live ones to end. Finished hypotheses are ranked by their normalised score.
//!
//! That is the plain search; [`crate::options`] lists the other choices. Where a search needs more than the
//! best continuations (several models, forced prefixes, no repetitions, groups, sampling), whole rows of
//! log-probabilities are copied to the host; the rest is the same.
//!
//! The hypotheses of all unfinished sentences are the rows of one batch. A finished sentence leaves it at
//! once, so that a step costs only what the others need.

use mae_data::{EOS, PAD, PackedBatch, UNK};
use mae_engine::ops::decode::{Candidate, Constraints, Room, continuations, log_probs, mean_log_probs};
use mae_engine::{Ids, Segments, Tape, Tensor};
use mae_model::attention::Pass;
use mae_model::{DecoderState, ExpertMode, Model, SearchRoom, Translator};

use crate::choice::choose;
use crate::error::{Error, Result};
use crate::experts::ExpertFault;
use crate::hypothesis::{Hypothesis, Live};
use crate::options::SearchOptions;
use crate::sentence::Sentence;

/// Translates the sources of one batch: [`Searcher::search`].
pub fn search(
    model: &Translator,
    batch: &PackedBatch,
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<Vec<Hypothesis>>> {
    Searcher::new(model, options, mode)?.search(batch)
}

/// Translates batch after batch. The caches of one batch, and on a GPU its captured steps, serve the next.
pub struct Searcher<'m> {
    members: Vec<Member<'m>>,
    options: SearchOptions,
    mode: ExpertMode,
}

/// A model of the search with its cache.
struct Member<'m> {
    model: &'m Translator,
    state: Option<DecoderState>,
}

/// Caches that outlive a [`Searcher`], for the next one with the same models: on a GPU they hold captured
/// steps, which take longer to record than a sentence takes to translate.
#[derive(Default)]
pub struct SearchCaches {
    /// One per model, with the mode that they were used with.
    states: Option<(ExpertMode, Vec<Option<DecoderState>>)>,
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
        Self::with_caches(models, options, mode, SearchCaches::default())
    }

    /// Creates a searcher that continues with the caches of an earlier one of the same models.
    ///
    /// # Panics
    ///
    /// As [`Searcher::ensemble`].
    pub fn with_caches(
        models: &[&'m Translator],
        options: &SearchOptions,
        mode: &ExpertMode,
        caches: SearchCaches,
    ) -> Result<Self> {
        options.check()?;
        let types = models.first().ok_or(Error::NoModels)?.target_types();
        assert!(models.iter().all(|model| model.target_types() == types), "models with other dictionaries");
        if matches!(mode, ExpertMode::Sample) {
            return Err(Error::Experts { model: "the model".into(), fault: ExpertFault::TrainingOnly });
        }
        let mut states = match caches.states {
            Some((used, states)) if replays(&used, mode) => states,
            _ => Vec::new(),
        };
        states.resize_with(models.len(), || None);
        let members = models.iter().zip(states).map(|(model, state)| Member { model, state }).collect();
        Ok(Self { members, options: options.clone(), mode: mode.clone() })
    }

    /// The caches, for the next searcher.
    pub fn into_caches(self) -> SearchCaches {
        let states = self.members.into_iter().map(|member| member.state).collect();
        SearchCaches { states: Some((self.mode, states)) }
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
        self.check(batch, prefixes)?;
        let mut results = vec![Vec::new(); batch.sentences()];
        if results.is_empty() {
            return Ok(results);
        }
        let options = self.options.clone();
        let positions =
            self.members.iter().map(|member| member.model.config().max_positions).min().unwrap_or(0);
        let sentence = |place: usize| {
            let max_len = options.max_len(batch.src_sentence(place).len(), positions);
            Sentence::new(place, batch.ids[place], max_len, &prefixes[place])
        };
        let mut sentences: Vec<Sentence> = (0..batch.sentences()).map(sentence).collect();
        let steps = sentences.iter().map(|sentence| sentence.max_len).max().unwrap_or(0) + 1;
        let mode = self.mode.at(&batch.ids);
        for member in &mut self.members {
            member.start(batch, steps, options.beam, &mode);
        }
        let plain = self.members.len() == 1 && options.is_plain() && prefixes.iter().all(Vec::is_empty);
        let mut step = 0;
        while !sentences.is_empty() {
            let live = || sentences.iter().flat_map(|sentence| &sentence.live);
            let tokens: Vec<u32> = live().map(Live::last).collect();
            let candidates = if plain {
                let scores: Vec<f32> = live().map(|hypothesis| hypothesis.cumulative).collect();
                let logits = self.members[0].step(&tokens, &mode)?;
                candidates(&logits, &scores, &sentences, step, &options)
            } else {
                let types = self.members[0].model.target_types();
                choose(self.log_probs(&tokens, &mode)?, types, &sentences, step, &options)
            };
            let (mut parents, mut first_row) = (Vec::new(), 0);
            for (sentence, candidates) in sentences.iter_mut().zip(candidates) {
                let rows = sentence.live.len();
                sentence.advance(&candidates, first_row, &options, &mut parents);
                first_row += rows;
            }
            sentences.retain_mut(|sentence| {
                let done = sentence.live.is_empty();
                if done {
                    results[sentence.place] = sentence.ranked(options.nbest);
                }
                !done
            });
            self.members.iter_mut().for_each(|member| member.reorder(&parents));
            step += 1;
        }
        self.members[0].model.params().device().check()?;
        match results.iter().zip(&batch.ids).find(|(found, _)| found.is_empty()) {
            Some((_, &id)) => Err(Error::NotFinite { unit: "sentence", number: id as usize }),
            None => Ok(results),
        }
    }

    /// Checks that ids are of the models' dictionaries.
    fn check(&self, batch: &PackedBatch, prefixes: &[Vec<u32>]) -> Result<()> {
        if prefixes.len() != batch.sentences() {
            let (given, wanted) = (prefixes.len(), batch.sentences());
            return Err(Error::Prefixes(format!("{given} prefixes were given for {wanted} sentences")));
        }
        let types = self.members[0].model.target_types();
        if let Some(id) = prefixes.iter().flatten().find(|&&id| id as usize >= types) {
            return Err(Error::Prefixes(format!("a prefix holds id {id}, the dictionary has {types} types")));
        }
        Ok(self.members.iter().try_for_each(|member| member.model.check_ids(batch))?)
    }

    /// Log-probabilities, by all models together, of what may follow the hypotheses that end in `tokens`.
    fn log_probs(&mut self, tokens: &[u32], mode: &ExpertMode) -> Result<Vec<f32>> {
        let temperature = self.options.temperature;
        // Each is read before the next model runs: captured steps share their memory.
        let each = self.members.iter_mut().map(|member| {
            let logits = member.step(tokens, mode)?;
            Ok(log_probs(&logits, tokens.len(), temperature))
        });
        Ok(mean_log_probs(each.collect::<Result<_>>()?))
    }
}

impl Member<'_> {
    /// Encodes the sources; one row per sentence before the first step, where all hypotheses would be the same.
    fn start(&mut self, batch: &PackedBatch, steps: usize, beam: usize, mode: &ExpertMode) {
        let device = self.model.params().device();
        // Rounded up, so that the next batch finds enough room and the steps that were captured in it.
        let up = |n: usize, unit: usize| if device.is_gpu() { n.next_multiple_of(unit) } else { n };
        let room = SearchRoom {
            steps: Room { rows: up(batch.sentences() * beam, 64), steps: up(steps, 256) },
            sentences: up(batch.sentences(), 64),
            source: up(batch.src.len(), 1 << 14),
        };
        if !self.state.as_ref().is_some_and(|state| state.fits(room)) {
            self.state = None;
        }
        let state = self.state.get_or_insert_with(|| self.model.search_room(room));
        let mut tape = Tape::evaluation(self.model.params());
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let source = Ids::from_host(device, &batch.src);
        let rows = Segments::from_host(device, &batch.src_starts);
        let memory = self.model.encode(&mut pass, &source, &rows);
        let sentences: Vec<u32> = (0..batch.sentences() as u32).collect();
        self.model.start(state, &memory, &batch.src_starts, &sentences, mode);
    }

    /// The logits after one more token of each hypothesis.
    fn step(&mut self, tokens: &[u32], mode: &ExpertMode) -> Result<Tensor> {
        Ok(self.model.step(self.state.as_mut().expect(STARTED), tokens, mode)?)
    }

    fn reorder(&mut self, parents: &[u32]) {
        self.model.reorder(self.state.as_mut().expect(STARTED), parents);
    }
}

const STARTED: &str = "a search begins with `start`";

/// Returns true if steps that were captured in one mode compute the other. A captured step has its experts
/// built in; random ones are read from the cache.
fn replays(captured: &ExpertMode, mode: &ExpertMode) -> bool {
    match (captured, mode) {
        (ExpertMode::Mix, ExpertMode::Mix)
        | (ExpertMode::Argmax, ExpertMode::Argmax)
        | (ExpertMode::Random(_), ExpertMode::Random(_))
        | (ExpertMode::InEncoder(_), ExpertMode::InEncoder(_)) => true,
        (ExpertMode::Fixed(one), ExpertMode::Fixed(other)) => one == other,
        _ => false,
    }
}

/// The ranked continuations of each sentence after `step` tokens.
fn candidates(
    logits: &Tensor,
    scores: &[f32],
    sentences: &[Sentence],
    step: usize,
    options: &SearchOptions,
) -> Vec<Vec<Candidate>> {
    let (mut going_on, mut at_limit, mut first_row) = (Vec::new(), Vec::new(), 0);
    for sentence in sentences {
        let rows = first_row..first_row + sentence.live.len();
        first_row = rows.end;
        if step < sentence.max_len { going_on.push(rows) } else { at_limit.push(rows) }
    }
    let mut forbidden = vec![PAD];
    if step < options.min_len {
        forbidden.push(EOS);
    }
    let penalties = if options.unkpen == 0.0 { Vec::new() } else { vec![(UNK, options.unkpen)] };
    let constraints = Constraints { forbidden, penalties };
    let found = continuations(logits, scores, [&going_on, &at_limit], 2 * options.beam, &constraints, EOS);
    let (mut open, mut closed) = (found.open.into_iter(), found.closed.into_iter());
    let of = |sentence: &Sentence| if step < sentence.max_len { open.next() } else { closed.next() };
    sentences.iter().map(of).map(Option::unwrap_or_default).collect()
}
