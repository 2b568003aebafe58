//! A lane of a running batch: sentences whose hypotheses are the rows of one step.
//!
//! A turn has three parts: `collect` takes the continuations that the last step found, `admit` lets sentences
//! join, `ask` starts the next step. On a GPU the device works between `ask` and the next `collect`.

use std::collections::VecDeque;
use std::ops::Range;

use mae_engine::ops::chances::{Chances, Place};
use mae_engine::ops::decode::{Candidate, Continuations, LiveRow, Room, continuations};
use mae_model::{DecoderState, ExpertMode, Model, SearchRoom, Translator};

use crate::batches::LaneLimits;
use crate::choice::{self, SYMBOLS};
use crate::error::{Error, Result};
use crate::running::{Finished, Job, Ticket};
use crate::sentence::Sentence;
use crate::shortlisted::{Columns, Listed};

/// Decoder states of a lane, one per model, and the room that they have; none before the first sentence.
#[derive(Default)]
pub(crate) struct LaneState(Option<(SearchRoom, Vec<DecoderState>)>);

/// Sentences that take their steps together.
pub(crate) struct Lane {
    state: LaneState,
    sentences: Vec<Sentence>,
    cancelled: Vec<Ticket>,
    asked: Option<Asked>,
    /// True if nobody joins until all have left, because more room is needed.
    draining: bool,
    /// The types whose logits a step computes, if some sentence has a shortlist.
    columns: Option<Columns>,
}

/// Continuations that were asked for.
enum Asked {
    /// Those of plain sentences, in order, and of those that need more.
    Device { ranked: Option<Continuations>, special: Option<choice::Asked> },
    /// Those of all sentences, where some have shortlists.
    Listed(Vec<Vec<Candidate>>),
}

/// Demand of a sentence.
struct Demand {
    rows: usize,
    steps: usize,
    source: usize,
}

const STARTED: &str = "a lane with sentences has states";

impl Lane {
    pub(crate) fn new(state: LaneState) -> Self {
        Self {
            state,
            sentences: Vec::new(),
            cancelled: Vec::new(),
            asked: None,
            draining: false,
            columns: None,
        }
    }

    /// The states, without sentences.
    pub(crate) fn into_state(mut self, models: &[&Translator]) -> LaneState {
        self.keep(models, &[]);
        self.state
    }

    pub(crate) fn sentences(&self) -> usize {
        self.sentences.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sentences.is_empty()
    }

    /// Drops a sentence, if it is here, at the end of the step.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if self.sentences.iter().any(|sentence| sentence.ticket == ticket) {
            self.cancelled.push(ticket);
        }
    }

    /// Ends the step that was asked for: hypotheses end and live on, finished sentences leave.
    pub(crate) fn collect(&mut self, models: &[&Translator], finished: &mut Vec<Finished>) -> Result<()> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let candidates = self.candidates(models.len(), asked)?;
        models[0].params().device().check()?;
        let (mut parents, mut first_row) = (Vec::new(), 0);
        let sentences = std::mem::take(&mut self.sentences);
        for (mut sentence, candidates) in sentences.into_iter().zip(candidates) {
            let rows = sentence.live.len();
            if !self.cancelled.contains(&sentence.ticket) {
                sentence.advance(&candidates, first_row, &mut parents);
                if sentence.live.is_empty() {
                    finished.push(found(sentence));
                } else {
                    self.sentences.push(sentence);
                }
            }
            first_row += rows;
        }
        self.cancelled.clear();
        self.keep(models, &parents);
        Ok(())
    }

    /// The candidates of all sentences, in order.
    fn candidates(&self, models: usize, asked: Asked) -> Result<Vec<Vec<Candidate>>> {
        let (ranked, special) = match asked {
            Asked::Listed(found) => return Ok(found),
            Asked::Device { ranked, special } => (ranked, special),
        };
        let others: Vec<&Sentence> =
            self.sentences.iter().filter(|sentence| !is_plain(sentence, models)).collect();
        let ranked = ranked.map(Continuations::ranked).transpose()?.unwrap_or_default();
        let special = special.map(|asked| asked.collect(&others)).transpose()?.unwrap_or_default();
        let (mut ranked, mut special) = (ranked.into_iter(), special.into_iter());
        let of = |sentence: &Sentence| match is_plain(sentence, models) {
            true => ranked.next().unwrap_or_default(),
            false => special.next().unwrap_or_default(),
        };
        Ok(self.sentences.iter().map(of).collect())
    }

    fn keep(&mut self, models: &[&Translator], parents: &[u32]) {
        if let Some((_, states)) = &mut self.state.0 {
            models.iter().zip(states).for_each(|(model, state)| model.reorder(state, parents));
        }
    }

    /// Returns true if enough rows are free for sentences to join: all of them, or an eighth.
    pub(crate) fn has_room(&self, limits: &LaneLimits) -> bool {
        let used = self.used_rows();
        used == 0 || limits.rows.saturating_sub(used) >= limits.rows / 8
    }

    /// Rows that the sentences may need.
    fn used_rows(&self) -> usize {
        self.sentences.iter().map(|sentence| sentence.options.beam).sum()
    }

    /// Lets waiting sentences join, `free` at most, in their order, as far as there is room.
    pub(crate) fn admit(
        &mut self,
        models: &[&Translator],
        mode: &ExpertMode,
        limits: &LaneLimits,
        mut free: usize,
        waiting: &mut VecDeque<(Ticket, Job)>,
    ) -> Result<()> {
        self.draining &= !self.is_idle();
        if !self.has_room(limits) {
            return Ok(());
        }
        while free > 0 && !self.draining && !waiting.is_empty() {
            if self.is_idle() {
                self.make_room(models, limits, waiting);
            }
            let count = self.joining(models, limits, free, waiting);
            if count == 0 {
                break;
            }
            free -= count;
            let new = waiting.drain(..count).collect();
            self.join(models, mode, new)?;
        }
        Ok(())
    }

    /// Number of waiting sentences that are encoded next. Decides whether the lane must drain for more room.
    fn joining(
        &mut self,
        models: &[&Translator],
        limits: &LaneLimits,
        free: usize,
        waiting: &VecDeque<(Ticket, Job)>,
    ) -> usize {
        let (room, states) = self.state.0.as_ref().expect(STARTED);
        let used = self.used_rows();
        let (mut rows, mut tokens, mut lengths) = (used, 0, Vec::new());
        for (_, job) in waiting.iter().take(free) {
            let demand = Demand::of(job, models);
            (rows, tokens) = (rows + demand.rows, tokens + demand.source);
            // Alone, a sentence may be larger than the limits.
            let allowed = (rows <= limits.rows || used + lengths.len() == 0)
                && (tokens <= limits.tokens || lengths.is_empty());
            let fits = rows <= room.steps.rows && demand.steps <= room.steps.steps;
            if !allowed || !fits {
                // Nobody joins until there is the room that the limits allow.
                self.draining = allowed && !fits && lengths.is_empty();
                break;
            }
            lengths.push(demand.source);
        }
        states[0].fitting(&lengths)
    }

    /// Makes the states of an empty lane large enough for those who wait, as far as the limits go, and for the
    /// first in any case.
    fn make_room(&mut self, models: &[&Translator], limits: &LaneLimits, waiting: &VecDeque<(Ticket, Job)>) {
        let demands = waiting.iter().take(limits.rows).map(|(_, job)| Demand::of(job, models));
        let demands: Vec<Demand> = demands.collect();
        let mut room = match models[0].params().device().is_gpu() {
            true => Demand::gpu_room(&demands, limits),
            false => Demand::cpu_room(&demands, limits, positions(models)),
        };
        if let Some((old, _)) = &self.state.0 {
            room.steps.rows = room.steps.rows.max(old.steps.rows);
            room.steps.steps = room.steps.steps.max(old.steps.steps);
            room.sentences = room.sentences.max(old.sentences);
            room.source = room.source.max(old.source);
            if room == *old {
                return;
            }
        }
        // The old states give their memory back first.
        self.state.0 = None;
        self.state.0 = Some((room, models.iter().map(|model| model.search_room(room)).collect()));
    }

    /// Encodes sentences, which join with one hypothesis each: all would be the same before the first step.
    fn join(&mut self, models: &[&Translator], mode: &ExpertMode, new: Vec<(Ticket, Job)>) -> Result<()> {
        let (mut source, mut starts) = (Vec::new(), vec![0]);
        for (_, job) in &new {
            source.extend_from_slice(&job.source);
            starts.push(source.len() as u32);
        }
        let numbers: Vec<u32> = new.iter().map(|(_, job)| job.number).collect();
        let mode = mode.at(&numbers);
        let (_, states) = self.state.0.as_mut().expect(STARTED);
        for (model, state) in models.iter().zip(states) {
            model.admit(state, &source, &starts, &mode)?;
        }
        for (ticket, Job { source, prefix, number, options }) in new {
            let max_len = options.max_len(source.len(), positions(models));
            let types = options.shortlist.as_ref().map(|list| list.of(&source, &prefix));
            let mut sentence = Sentence::new(ticket, number, options, max_len);
            (sentence.prefix, sentence.types) = (prefix, types);
            self.sentences.push(sentence);
        }
        let before = self.columns.take();
        self.columns = Columns::of(&self.sentences);
        if self.columns.is_some() || before.is_some() {
            let (_, states) = self.state.0.as_mut().expect(STARTED);
            for (model, state) in models.iter().zip(states) {
                model.restrict(state, self.columns.as_ref().and_then(Columns::types));
            }
        }
        Ok(())
    }

    /// Starts a step of all hypotheses.
    pub(crate) fn ask(&mut self, models: &[&Translator], mode: &ExpertMode) -> Result<()> {
        if self.sentences.is_empty() {
            return Ok(());
        }
        let tokens: Vec<u32> =
            self.sentences.iter().flat_map(|sentence| &sentence.live).map(|live| live.last).collect();
        let rows = Rows::of(&self.sentences, models.len());
        let (mut ranked, mut chances, mut types, mut listed) = (None, None::<Chances>, 0, Vec::new());
        let (_, states) = self.state.0.as_mut().expect(STARTED);
        for (model, state) in models.iter().zip(states) {
            let logits = model.step(state, &tokens, mode)?;
            types = model.target_types();
            if let Some(columns) = &self.columns {
                listed.push(columns.logits(&self.sentences, &logits));
                continue;
            }
            if !rows.groups.is_empty() {
                let count =
                    2 * self.sentences.iter().map(|sentence| sentence.options.beam).max().unwrap_or(1);
                ranked = Some(continuations(&logits, &rows.live, &rows.groups, count, SYMBOLS)?);
            }
            // They are taken before the next model runs: captured steps share their memory.
            match &mut chances {
                _ if rows.places.is_empty() => {}
                None => chances = Some(Chances::of(&logits, &rows.places, models.len())),
                Some(chances) => chances.add(&logits, &rows.places),
            }
        }
        self.asked = Some(match self.columns.is_some() {
            true => Asked::Listed(Listed::choose(&self.sentences, &listed, types)),
            false => {
                let special: Vec<_> =
                    rows.special.iter().map(|&(i, row)| (&self.sentences[i], row)).collect();
                let special = chances.map(|chances| choice::ask(chances, &special)).transpose()?;
                Asked::Device { ranked, special }
            }
        });
        Ok(())
    }
}

/// Returns true if the best continuations by one model are enough.
fn is_plain(sentence: &Sentence, models: usize) -> bool {
    models == 1 && sentence.is_plain()
}

/// Rows of a step by what their sentences need.
struct Rows {
    /// All rows.
    live: Vec<LiveRow>,
    /// Rows of each plain sentence.
    groups: Vec<Range<usize>>,
    /// Place of each other sentence in the lane, and its first row.
    special: Vec<(usize, usize)>,
    /// Their rows.
    places: Vec<Place>,
}

impl Rows {
    fn of(sentences: &[Sentence], models: usize) -> Self {
        let live: Vec<LiveRow> = sentences.iter().flat_map(Sentence::rows).collect();
        let mut rows = Self { live, groups: Vec::new(), special: Vec::new(), places: Vec::new() };
        let mut first = 0;
        for (i, sentence) in sentences.iter().enumerate() {
            let end = first + sentence.live.len();
            if is_plain(sentence, models) {
                rows.groups.push(first..end);
            } else {
                rows.special.push((i, first));
                rows.places.extend(choice::places(sentence, first));
            }
            first = end;
        }
        rows
    }
}

impl Demand {
    fn of(job: &Job, models: &[&Translator]) -> Self {
        let steps = job.options.max_len(job.source.len(), positions(models)) + 1;
        Self { rows: job.options.beam, steps, source: job.source.len() }
    }

    /// Room for these sentences on a GPU, where it is memory: no more than they need, rounded up, so that the next
    /// ones find enough room and the steps that were captured in it.
    fn gpu_room(all: &[Self], limits: &LaneLimits) -> SearchRoom {
        let wanted: usize = all.iter().map(|demand| demand.rows).sum();
        let rows = wanted.min(limits.rows).max(all[0].rows).next_multiple_of(64);
        let steps = all.iter().map(|demand| demand.steps).max().unwrap_or(0).next_multiple_of(256);
        let source = (8 * limits.tokens).min(128 * rows).max(all[0].source).next_multiple_of(1 << 12);
        SearchRoom { steps: Room { rows, steps }, sentences: rows, source }
    }

    /// Room on a CPU, where it is a limit only and memory is taken as it is needed.
    fn cpu_room(all: &[Self], limits: &LaneLimits, positions: usize) -> SearchRoom {
        let rows = limits.rows.max(all[0].rows);
        let source = (8 * limits.tokens).max(all[0].source);
        SearchRoom { steps: Room { rows, steps: positions }, sentences: rows, source }
    }
}

/// Positions that all models have.
pub(crate) fn positions(models: &[&Translator]) -> usize {
    models.iter().map(|model| model.config().max_positions).min().unwrap_or(0)
}

/// The result of a sentence that is done.
fn found(sentence: Sentence) -> Finished {
    let (ticket, number) = (sentence.ticket, sentence.line as usize);
    let hypotheses = sentence.ranked();
    let result = match hypotheses.is_empty() {
        true => Err(Error::NotFinite { unit: "sentence", number }),
        false => Ok(hypotheses),
    };
    (ticket, result)
}
