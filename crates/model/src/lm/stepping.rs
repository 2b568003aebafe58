//! The language model one token at a time, several texts at once.

use std::collections::HashMap;

use mae_engine::cpu::together;
use mae_engine::ops::adaptive::BandedIds;
use mae_engine::ops::decode::Room;
use mae_engine::{Segments, Tensor};

use super::LanguageModel;
use crate::attention::SearchRoom;
use crate::pass::ExpertMode;
use crate::stack_state::{StackState, Step};

/// State of generation between steps.
pub struct LmState {
    stack: StackState,
    /// Inputs by the number of rows.
    inputs: HashMap<usize, StepInputs>,
}

/// Input of a step.
struct StepInputs {
    tokens: BandedIds,
    /// Each text is a block of one row.
    rows: Segments,
}

impl LmState {
    /// Number of tokens that each text has read.
    pub fn steps(&self) -> usize {
        self.stack.steps()
    }

    /// Number of texts and tokens that there is room for.
    pub fn room(&self) -> Room {
        self.stack.room().steps
    }
}

impl LanguageModel {
    /// Room for so many texts and tokens; no more tokens than the model has positions.
    pub fn state(&self, room: Room) -> LmState {
        let positions = self.config.max_positions;
        assert!(room.steps <= positions, "{} steps, the model has {positions} positions", room.steps);
        let search = SearchRoom { steps: room, sentences: 0, source: 0 };
        let (device, width) = (self.params.device(), self.config.decoder_embed_dim);
        LmState { stack: StackState::new(&self.decoder, device, search, width), inputs: HashMap::new() }
    }

    /// Starts again with `texts` empty texts.
    pub fn start(&self, state: &mut LmState, texts: usize) {
        let most = state.room().rows;
        assert!(texts <= most, "{texts} texts, there is room for {most}");
        self.reorder(state, &[]);
        state.stack.begin(texts);
    }

    /// New text i continues old text `parents[i]`; those not named leave.
    pub fn reorder(&self, state: &mut LmState, parents: &[u32]) {
        state.stack.reorder(parents);
    }

    /// Reads one token per text; returns numbers `[R, V]` whose softmax is the distribution of the next, on a GPU with
    /// surplus rows at the end.
    pub fn step(&self, state: &mut LmState, tokens: &[u32], mode: &ExpertMode) -> mae_engine::Result<Tensor> {
        assert_eq!(tokens.len(), state.stack.live(), "one token per text");
        let most = state.room().steps;
        assert!(state.steps() < most, "there is room for {most} tokens");
        let device = self.params.device();
        let LmState { stack, inputs, .. } = state;
        let rows = stack.rows(device, tokens.len());
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs {
            tokens: BandedIds::with_room(device, self.bands(), rows, &vec![rows; self.bands().count()]),
            rows: Segments::from_host(device, &(0..=rows as u32).collect::<Vec<_>>()),
        });
        inputs.tokens.load(tokens);
        let step = Step { stack: &self.decoder, params: &self.params, rows, mode, memory: None };
        let mut step = || {
            stack.step(
                &step,
                |tape, lineage| self.embed(tape, &inputs.tokens, &inputs.rows, Some(lineage)),
                |tape, features| self.logits(tape, features),
            )
        };
        if device.is_gpu() { step() } else { together(step) }
    }
}
