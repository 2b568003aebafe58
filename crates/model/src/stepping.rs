//! The decoder one token at a time, many hypotheses at once.

use std::collections::HashMap;

use mae_engine::ops::decode::Lineage;
use mae_engine::{Device, Ids, Replays, Segments, Tape, Tensor};

use crate::attention::{AttentionState, SearchRoom, StepContext};
use crate::pass::{ExpertMode, Pass};
use crate::translator::{Memory, Translator};

/// What decoding remembers between steps: keys, values and gate sums of every layer, one lineage for all. It lasts for
/// one batch after the other; on a GPU, steps are captured once and replayed.
pub struct DecoderState {
    room: SearchRoom,
    lineage: Lineage,
    sentences: Vec<u32>,
    memory: Segments,
    attentions: Vec<AttentionState>,
    /// Inputs by the number of rows.
    inputs: HashMap<usize, StepInputs>,
    steps: Replays<usize, Tensor>,
}

/// What a step reads from the host.
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
        self.lineage.steps()
    }

    /// Whether a search that needs `room` has it here.
    pub fn fits(&self, room: SearchRoom) -> bool {
        let own = self.room;
        own.steps.rows >= room.steps.rows
            && own.steps.steps >= room.steps.steps
            && own.sentences >= room.sentences
            && own.source >= room.source
    }

    /// Rows that a step of `live` hypotheses computes: on a GPU rounded up, so that few kinds of steps are captured.
    fn rows(&self, device: &Device, live: usize) -> usize {
        let unit = (self.room.steps.rows / 8).max(32);
        if device.is_gpu() { live.next_multiple_of(unit).min(self.room.steps.rows) } else { live }
    }
}

impl Translator {
    /// Room for searches of up to this size, all with the same kind of experts: steps that were captured are replayed.
    pub fn search_room(&self, room: SearchRoom) -> DecoderState {
        let device = self.params().device();
        DecoderState {
            room,
            lineage: Lineage::new(device, room.steps, 0),
            sentences: Vec::new(),
            memory: Segments::with_room(device, room.sentences, room.source, self.config().max_positions),
            attentions: self.decoder().room(device, room, self.config().encoder_embed_dim),
            inputs: HashMap::new(),
            steps: Replays::default(),
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
        state.lineage.restart(sentences.len());
        state.sentences = sentences.to_vec();
        state.memory.load(starts);
        self.decoder().start(&mut pass, &memory.output, &memory.rows, &mut state.attentions);
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave.
    pub fn reorder(&self, state: &mut DecoderState, parents: &[u32]) {
        let mut tape = Tape::evaluation(self.params());
        state.lineage.reorder(parents);
        state.sentences = parents.iter().map(|&parent| state.sentences[parent as usize]).collect();
        for attention in &mut state.attentions {
            attention.reorder(&mut tape, parents);
        }
    }

    /// Reads one token per hypothesis; gives the logits of the next, `[R, V]`, on a GPU with surplus rows at the end.
    pub fn step(
        &self,
        state: &mut DecoderState,
        tokens: &[u32],
        mode: &ExpertMode,
    ) -> mae_engine::Result<Tensor> {
        assert_eq!(tokens.len(), state.sentences.len(), "one token per hypothesis");
        let device = self.params().device().clone();
        let rows = state.rows(&device, tokens.len());
        let DecoderState { lineage, sentences, memory, attentions, inputs, steps, .. } = state;
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs::new(&device, rows));
        inputs.tokens.load(tokens);
        inputs.sentences.load(sentences);
        let logits = steps.run(&device, rows, || {
            let mut tape = Tape::evaluation(self.params());
            let x = self.embed_targets(&mut tape, &inputs.tokens, &inputs.rows, lineage);
            tape.advance(lineage, rows);
            let at = StepContext { lineage, memory: Some((&inputs.sentences, memory)) };
            let mut pass = Pass { tape: &mut tape, mode, probe: None };
            let features = self.decoder().step(&mut pass, x, attentions, &at);
            Ok(self.logits(&mut tape, &features))
        })?;
        state.lineage.count_step();
        device.check()?;
        Ok(logits)
    }
}
