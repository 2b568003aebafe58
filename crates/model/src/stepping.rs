//! The decoder one token at a time, many hypotheses at once.

use std::collections::HashMap;

use mae_engine::{Device, Ids, Segments, Tape, Tensor};

use crate::attention::SearchRoom;
use crate::pass::{ExpertMode, Pass};
use crate::stack_state::{StackState, Step};
use crate::translator::{Memory, Translator};

/// State of decoding between steps. It lasts for one batch after the other; on a GPU, steps are captured once and
/// replayed.
pub struct DecoderState {
    stack: StackState,
    sentences: Vec<u32>,
    memory: Segments,
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
    /// Steps taken.
    pub fn steps(&self) -> usize {
        self.stack.steps()
    }

    /// Whether a search that needs `room` has it here.
    pub fn fits(&self, room: SearchRoom) -> bool {
        let own = self.stack.room();
        own.steps.rows >= room.steps.rows
            && own.steps.steps >= room.steps.steps
            && own.sentences >= room.sentences
            && own.source >= room.source
    }
}

impl Translator {
    /// Room for searches of up to this size, all with the same kind of experts: steps that were captured are replayed.
    pub fn search_room(&self, room: SearchRoom) -> DecoderState {
        let device = self.params().device();
        DecoderState {
            stack: StackState::new(self.decoder(), device, room, self.config().encoder_embed_dim),
            sentences: Vec::new(),
            memory: Segments::with_room(device, room.sentences, room.source, self.config().max_positions),
            inputs: HashMap::new(),
        }
    }

    /// Before the first step: one hypothesis per entry of `sentences`, which says whose source it reads; `starts` are
    /// the boundaries of the memory's sentences.
    pub fn start(
        &self,
        state: &mut DecoderState,
        memory: &Memory,
        starts: &[u32],
        sentences: &[u32],
        mode: &ExpertMode,
    ) {
        let mut tape = Tape::evaluation(self.params());
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let attentions = state.stack.restart(sentences.len());
        state.sentences = sentences.to_vec();
        state.memory.load(starts);
        self.decoder().start(&mut pass, &memory.output, &memory.rows, attentions);
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave.
    pub fn reorder(&self, state: &mut DecoderState, parents: &[u32]) {
        state.sentences = parents.iter().map(|&parent| state.sentences[parent as usize]).collect();
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
        let DecoderState { stack, sentences, memory, inputs } = state;
        let rows = stack.rows(device, tokens.len());
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs::new(device, rows));
        inputs.tokens.load(&self.previous_tokens(tokens));
        inputs.sentences.load(sentences);
        let memory = Some((&inputs.sentences, &*memory));
        let step = Step { stack: self.decoder(), params: self.params(), rows, mode, memory };
        stack.step(
            &step,
            |tape, lineage| self.embed_targets(tape, &inputs.tokens, &inputs.rows, lineage),
            |tape, features| self.logits(tape, features),
        )
    }
}
