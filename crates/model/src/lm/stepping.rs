//! The language model one token at a time, several texts at once.

use std::collections::HashMap;

use mae_engine::ops::adaptive::BandedIds;
use mae_engine::ops::decode::{Lineage, Room};
use mae_engine::{Device, Replays, Segments, Tape, Tensor};

use super::LanguageModel;
use crate::attention::{AttentionState, SearchRoom, StepContext};
use crate::pass::{ExpertMode, Pass};

/// What generation remembers between steps: keys, values and the gates' last inputs of every layer, one lineage for all.
pub struct LmState {
    room: Room,
    texts: usize,
    lineage: Lineage,
    attentions: Vec<AttentionState>,
    /// Inputs by the number of rows.
    inputs: HashMap<usize, StepInputs>,
    steps: Replays<usize, Tensor>,
}

/// What a step reads from the host.
struct StepInputs {
    tokens: BandedIds,
    /// Each text is a block of one row.
    rows: Segments,
}

impl LmState {
    /// Tokens read by each text.
    pub fn steps(&self) -> usize {
        self.lineage.steps()
    }

    /// How much there is room for.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Rows that a step computes: on a GPU rounded up, so that few kinds of steps are captured.
    fn rows(&self, device: &Device) -> usize {
        let unit = (self.room.rows / 8).max(32);
        if device.is_gpu() { self.texts.next_multiple_of(unit).min(self.room.rows) } else { self.texts }
    }
}

impl LanguageModel {
    /// Room for so many texts and tokens; no more tokens than the model has positions.
    pub fn state(&self, room: Room) -> LmState {
        let (device, width) = (self.params.device(), self.config.decoder_embed_dim);
        let positions = self.config.max_positions;
        assert!(room.steps <= positions, "{} steps, the model has {positions} positions", room.steps);
        let search = SearchRoom { steps: room, sentences: 0, source: 0 };
        LmState {
            room,
            texts: 0,
            lineage: Lineage::new(device, room, 0),
            attentions: self.decoder.room(device, search, width),
            inputs: HashMap::new(),
            steps: Replays::default(),
        }
    }

    /// Begins anew with `texts` empty texts.
    pub fn start(&self, state: &mut LmState, texts: usize) {
        assert!(texts <= state.room.rows, "{texts} texts, there is room for {}", state.room.rows);
        state.texts = texts;
        state.lineage.restart(texts);
        self.decoder.restart(&mut state.attentions);
    }

    /// New text i continues old text `parents[i]`; those not named leave.
    pub fn reorder(&self, state: &mut LmState, parents: &[u32]) {
        let mut tape = Tape::evaluation(&self.params);
        state.texts = parents.len();
        state.lineage.reorder(parents);
        for attention in &mut state.attentions {
            attention.reorder(&mut tape, parents);
        }
    }

    /// Reads one token per text; gives numbers `[R, V]` whose softmax is the distribution of the next, on a GPU with
    /// surplus rows at the end.
    pub fn step(&self, state: &mut LmState, tokens: &[u32], mode: &ExpertMode) -> mae_engine::Result<Tensor> {
        assert_eq!(tokens.len(), state.texts, "one token per text");
        assert!(state.steps() < state.room.steps, "there is room for {} tokens", state.room.steps);
        let device = self.params.device().clone();
        let rows = state.rows(&device);
        let LmState { lineage, attentions, inputs, steps, .. } = state;
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs {
            tokens: BandedIds::with_room(&device, self.bands(), rows, &vec![rows; self.bands().count()]),
            rows: Segments::from_host(&device, &(0..=rows as u32).collect::<Vec<_>>()),
        });
        inputs.tokens.load(tokens);
        let logits = steps.run(&device, rows, || {
            let mut tape = Tape::evaluation(&self.params);
            let x = self.embed(&mut tape, &inputs.tokens, &inputs.rows, Some(lineage));
            tape.advance(lineage, rows);
            let at = StepContext { lineage, memory: None };
            let mut pass = Pass { tape: &mut tape, mode, probe: None };
            let features = self.decoder.step(&mut pass, x, attentions, &at);
            Ok(self.logits(&mut tape, &features))
        })?;
        state.lineage.count_step();
        device.check()?;
        Ok(logits)
    }
}
