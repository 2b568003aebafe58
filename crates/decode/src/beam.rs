//! Beam search over many sentences at once, with the rules of fairseq v0.9's `SequenceGenerator`.
//!
//! Every sentence keeps up to `beam` live hypotheses. At each step the 2·beam best continuations of all of them
//! together are ranked by cumulative log-probability. Those that end (in `</s>`) among the first `beam` are finished;
//! those that end further down are forgotten; of the others the first `beam` live on. A sentence is done as soon as it
//! has `beam` finished hypotheses, whatever could still come, or when its length limit forces all live ones to end.
//! Finished hypotheses are ranked by their normalised score.
//!
//! The hypotheses of all sentences that are not done are the rows of one batch. Who is done leaves it at once, so a
//! step costs what the rest needs.

use mae_data::{EOS, PAD, PackedBatch, UNK};
use mae_engine::ops::decode::{Candidate, Constraints, Room, continuations};
use mae_engine::{Ids, Result, Segments, Tape, Tensor};
use mae_model::attention::Pass;
use mae_model::{DecoderState, ExpertMode, SearchRoom, Translator};

use crate::hypothesis::{Hypothesis, Live};
use crate::options::SearchOptions;

/// Translates the sources of one batch: [`Searcher::search`].
pub fn search(
    model: &Translator,
    batch: &PackedBatch,
    options: &SearchOptions,
    mode: &ExpertMode,
) -> Result<Vec<Vec<Hypothesis>>> {
    Searcher::new(model, options, mode).search(batch)
}

/// Translates batch after batch; what a batch needs besides its results is used again by the next.
pub struct Searcher<'m> {
    model: &'m Translator,
    options: SearchOptions,
    mode: ExpertMode,
    state: Option<DecoderState>,
}

impl<'m> Searcher<'m> {
    /// A searcher for `model`.
    ///
    /// # Panics
    ///
    /// With options that [`SearchOptions::check`] refuses.
    pub fn new(model: &'m Translator, options: &SearchOptions, mode: &ExpertMode) -> Self {
        if let Err(invalid) = options.check() {
            panic!("{invalid}");
        }
        Self { model, options: options.clone(), mode: mode.clone(), state: None }
    }

    /// Translates the sources of a batch (its targets are not looked at): for each sentence, in batch order, up to
    /// `nbest` hypotheses, the best first. An error comes from the device.
    ///
    /// The result for a sentence does not depend on the others in the batch. A sentence has no hypothesis at all only
    /// if the model's outputs are not numbers, as of a model whose training blew up.
    ///
    /// # Panics
    ///
    /// With [`ExpertMode::Sample`]: experts are drawn in training only.
    pub fn search(&mut self, batch: &PackedBatch) -> Result<Vec<Vec<Hypothesis>>> {
        let mut results = vec![Vec::new(); batch.sentences()];
        if results.is_empty() {
            return Ok(results);
        }
        let mut sentences: Vec<Sentence> = (0..batch.sentences())
            .map(|place| {
                let source = batch.src_sentence(place).len();
                Sentence::new(place, self.options.max_len(source, self.model.config().max_positions))
            })
            .collect();
        let steps = sentences.iter().map(|sentence| sentence.max_len).max().unwrap_or(0) + 1;
        let (model, options) = (self.model, self.options.clone());
        let mode = self.mode.clone();
        let state = self.start(batch, steps);
        while !sentences.is_empty() {
            let step = state.steps();
            let live = || sentences.iter().flat_map(|sentence| &sentence.live);
            let tokens: Vec<u32> = live().map(Live::last).collect();
            let scores: Vec<f32> = live().map(|hypothesis| hypothesis.cumulative).collect();
            let logits = model.step(state, &tokens, &mode)?;
            let candidates = candidates(&logits, &scores, &sentences, step, &options);
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
            model.reorder(state, &parents);
        }
        model.params().device().check()?;
        Ok(results)
    }

    /// Encodes the sources; one row per sentence before the first step, where all hypotheses would be the same.
    fn start(&mut self, batch: &PackedBatch, steps: usize) -> &mut DecoderState {
        let device = self.model.params().device();
        // Rounded up, so that the next batch finds enough room and the steps that were captured in it.
        let up = |n: usize, unit: usize| if device.is_gpu() { n.next_multiple_of(unit) } else { n };
        let room = SearchRoom {
            steps: Room { rows: up(batch.sentences() * self.options.beam, 64), steps: up(steps, 256) },
            sentences: up(batch.sentences(), 64),
            source: up(batch.src.len(), 1 << 14),
        };
        if !self.state.as_ref().is_some_and(|state| state.fits(room)) {
            self.state = None;
        }
        let state = self.state.get_or_insert_with(|| self.model.search_room(room));
        let mut tape = Tape::evaluation(self.model.params());
        let mut pass = Pass { tape: &mut tape, mode: &self.mode, probe: None };
        let source = Ids::from_host(device, &batch.src);
        let rows = Segments::from_host(device, &batch.src_starts);
        let memory = self.model.encode(&mut pass, &source, &rows);
        let sentences: Vec<u32> = (0..batch.sentences() as u32).collect();
        self.model.start(state, &memory, &batch.src_starts, &sentences, &self.mode);
        state
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

/// The search for one sentence's translation.
struct Sentence {
    /// Which sentence of the batch.
    place: usize,
    max_len: usize,
    /// Best first; none when the search is over.
    live: Vec<Live>,
    /// In the order they were found.
    finished: Vec<Hypothesis>,
}

impl Sentence {
    fn new(place: usize, max_len: usize) -> Self {
        Self { place, max_len, live: vec![Live::default()], finished: Vec::new() }
    }

    /// Takes a step: finishes hypotheses and chooses who lives on, whose rows are added to `parents`. `first_row` is
    /// the row of the first live hypothesis.
    fn advance(
        &mut self,
        candidates: &[Candidate],
        first_row: usize,
        options: &SearchOptions,
        parents: &mut Vec<u32>,
    ) {
        let extended = |candidate: &Candidate| self.live[candidate.row as usize - first_row].with(candidate);
        let ends = |candidate: &&Candidate| candidate.token == EOS;
        let room = options.beam - self.finished.len();
        let ending = candidates.iter().take(options.beam).filter(ends).take(room);
        let finished: Vec<Hypothesis> = ending.map(|end| extended(end).finish(options)).collect();
        let mut live = Vec::new();
        if finished.len() < room {
            let living = candidates.iter().filter(|candidate| candidate.token != EOS).take(options.beam);
            for candidate in living {
                live.push(extended(candidate));
                parents.push(candidate.row);
            }
        }
        self.live = live;
        self.finished.extend(finished);
    }

    /// The best finished hypotheses; of equal ones the earlier found.
    fn ranked(&mut self, count: usize) -> Vec<Hypothesis> {
        let mut all = std::mem::take(&mut self.finished);
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAM: usize = 2;

    /// A sentence after one step, with two live hypotheses in rows 7 and 8.
    fn sentence() -> Sentence {
        let mut sentence = Sentence::new(0, 9);
        take(&mut sentence, &[(-1.0, 3, 10), (-2.0, 3, 11)], 3);
        sentence
    }

    /// Takes a step with candidates (score, row, token); gives the parents.
    fn take(sentence: &mut Sentence, candidates: &[(f32, u32, u32)], first_row: usize) -> Vec<u32> {
        let candidates: Vec<Candidate> =
            candidates.iter().map(|&(score, row, token)| Candidate { score, row, token }).collect();
        let options = SearchOptions { beam: BEAM, ..SearchOptions::default() };
        let mut parents = Vec::new();
        sentence.advance(&candidates, first_row, &options, &mut parents);
        parents
    }

    #[test]
    fn ends_count_only_among_the_first_of_the_beam() {
        let mut sentence = sentence();
        let parents = take(&mut sentence, &[(-1.5, 8, EOS), (-2.0, 8, 4), (-2.5, 7, EOS), (-3.0, 7, 5)], 7);
        assert_eq!(parents, [8, 7]);
        assert_eq!(sentence.live.iter().map(Live::last).collect::<Vec<_>>(), [4, 5]);
        let found = sentence.ranked(BEAM);
        assert_eq!(found.len(), 1, "the end at rank 3 is forgotten");
        assert_eq!((&found[0].tokens[..], found[0].score), (&[11, EOS][..], -0.75));
    }

    #[test]
    fn a_full_beam_of_ends_stops_the_sentence() {
        let mut sentence = sentence();
        let one_end = [(-2.0, 7, 4), (-2.5, 7, EOS), (-3.0, 8, 5), (-3.5, 8, 6)];
        assert_eq!(take(&mut sentence, &one_end, 7), [7, 8]);
        let two_ends = [(-2.25, 1, EOS), (-4.0, 2, EOS), (-5.0, 1, 4), (-6.0, 1, 5)];
        assert!(take(&mut sentence, &two_ends, 1).is_empty(), "nobody lives on");
        assert!(sentence.live.is_empty());
        let found = sentence.ranked(BEAM);
        assert_eq!(found.len(), BEAM, "no more than the beam are kept, the first found first");
        assert_eq!(found[0].tokens, [10, 4, EOS]);
        assert_eq!(found[1].tokens, [10, EOS]);
        assert_eq!(found[0].positional, [-1.0, -1.0, -0.25]);
    }
}
