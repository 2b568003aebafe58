//! The decoder one token at a time, many hypotheses at once. Sentences join and leave between steps.

use std::collections::HashMap;

use mae_engine::ops::decode::Spans;
use mae_engine::{Device, Ids, Segments, Tape, Tensor};

use crate::attention::{Newcomers, SearchRoom};
use crate::pass::{ExpertMode, Pass};
use crate::slots::Slots;
use crate::stack_state::{StackState, Step};
use crate::translator::{Memory, Translator};

/// State of decoding between steps. It lasts for one sentence after the other; on a GPU, steps are captured once and
/// replayed.
pub struct DecoderState {
    stack: StackState,
    /// The sentence of each hypothesis.
    sentences: Vec<u32>,
    slots: Slots,
    spans: Spans,
    /// Inputs by the number of rows.
    inputs: HashMap<usize, StepInputs>,
}

/// Input of a step.
struct StepInputs {
    tokens: Ids,
    sentences: Ids,
    /// Each hypothesis is a sentence of one row.
    rows: Segments,
}

impl StepInputs {
    fn new(device: &Device, rows: usize) -> Self {
        let starts: Vec<u32> = (0..=rows as u32).collect();
        Self {
            tokens: Ids::with_room(device, rows),
            sentences: Ids::with_room(device, rows),
            rows: Segments::from_host(device, &starts),
        }
    }
}

impl DecoderState {
    /// The largest search that there is room for.
    pub fn room(&self) -> SearchRoom {
        self.stack.room()
    }

    /// How many of the first sentences with so many source tokens each can join now.
    pub fn fitting(&self, lengths: &[usize]) -> usize {
        self.slots.fitting(lengths)
    }
}

impl Translator {
    /// Room for searches of up to this size, all with the same kind of experts: steps that were captured are replayed.
    pub fn search_room(&self, room: SearchRoom) -> DecoderState {
        let device = self.params().device();
        DecoderState {
            stack: StackState::new(self.decoder(), device, room, self.config().encoder_embed_dim),
            sentences: Vec::new(),
            slots: Slots::new(room.sentences, room.source),
            spans: Spans::new(device, room.sentences),
            inputs: HashMap::new(),
        }
    }

    /// Encoded sentences join with one hypothesis each, after the present ones; `starts` are their boundaries in
    /// `memory`.
    ///
    /// # Panics
    ///
    /// If there is no room for them: [`DecoderState::fitting`].
    pub fn admit(&self, state: &mut DecoderState, memory: &Memory, starts: &[u32], mode: &ExpertMode) {
        let (mut changes, mut rows) = (Vec::new(), Vec::new());
        for boundary in starts.windows(2) {
            let length = (boundary[1] - boundary[0]) as usize;
            let (sentence, first) = state.slots.take(length).expect("callers ask for room first");
            let span = first as u32..(first + length) as u32;
            changes.push((sentence, span.start, span.end));
            state.sentences.push(sentence);
            rows.extend(span);
        }
        state.spans.set(changes.iter().copied());
        let device = self.params().device();
        let sentences: Vec<u32> = changes.iter().map(|change| change.0).collect();
        let new = Newcomers {
            memory: &memory.output,
            keys: &memory.rows,
            sentences: &Ids::from_host(device, &sentences),
            rows: &Ids::from_host(device, &rows),
        };
        let mut tape = Tape::evaluation(self.params());
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        self.decoder().admit(&mut pass, &new, state.stack.begin(sentences.len()));
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave, and so do sentences without
    /// hypotheses.
    pub fn reorder(&self, state: &mut DecoderState, parents: &[u32]) {
        state.sentences = parents.iter().map(|&parent| state.sentences[parent as usize]).collect();
        state.slots.keep(&state.sentences);
        state.stack.reorder(self.params(), parents);
    }

    /// Reads one token per hypothesis, the end mark before the first; returns the logits of the next, `[R, V]`, on a GPU with surplus rows at the end.
    pub fn step(
        &self,
        state: &mut DecoderState,
        tokens: &[u32],
        mode: &ExpertMode,
    ) -> mae_engine::Result<Tensor> {
        assert_eq!(tokens.len(), state.sentences.len(), "one token per hypothesis");
        let device = self.params().device();
        let DecoderState { stack, sentences, spans, inputs, .. } = state;
        let rows = stack.rows(device, tokens.len());
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs::new(device, rows));
        inputs.tokens.load(&self.previous_tokens(tokens));
        inputs.sentences.load(sentences);
        let memory = Some((&inputs.sentences, &*spans));
        let step = Step { stack: self.decoder(), params: self.params(), rows, mode, memory };
        stack.step(
            &step,
            |tape, lineage| self.embed_targets(tape, &inputs.tokens, &inputs.rows, lineage),
            |tape, features| self.logits(tape, features),
        )
    }
}
