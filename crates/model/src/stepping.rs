//! The decoder one token at a time, many hypotheses at once.

use mae_engine::ops::decode::Lineage;
use mae_engine::{Ids, Segments, Tape, Tensor};

use crate::attention::{AttentionState, ExpertMode, Pass, StepContext};
use crate::translator::{Memory, Translator};

/// What decoding remembers between steps: keys, values and gate sums of every layer, one lineage for all.
pub struct DecoderState {
    lineage: Lineage,
    sentences: Vec<u32>,
    memory: Segments,
    steps: usize,
    attentions: Vec<AttentionState>,
}

impl DecoderState {
    /// Steps taken.
    pub fn steps(&self) -> usize {
        self.steps
    }
}

impl Translator {
    /// Before the first step: one hypothesis per entry of `sentences`, which says whose source it reads.
    pub fn start(&self, memory: &Memory, sentences: &[u32], mode: &ExpertMode) -> DecoderState {
        let mut tape = Tape::evaluation(self.params());
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        DecoderState {
            lineage: Lineage::new(sentences.len()),
            sentences: sentences.to_vec(),
            memory: memory.rows.clone(),
            steps: 0,
            attentions: self.decoder().start(&mut pass, &memory.output, &memory.rows),
        }
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave.
    pub fn reorder(&self, state: &mut DecoderState, parents: &[u32]) {
        let mut tape = Tape::evaluation(self.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        let ids = Ids::from_host(self.params().device(), parents);
        state.lineage.reorder(parents);
        state.sentences = parents.iter().map(|&parent| state.sentences[parent as usize]).collect();
        for attention in &mut state.attentions {
            attention.reorder(&mut pass, &ids);
        }
    }

    /// Reads one token per hypothesis; gives the logits of the next, `[R, V]`.
    pub fn step(&self, state: &mut DecoderState, tokens: &[u32], mode: &ExpertMode) -> Tensor {
        assert_eq!(tokens.len(), state.lineage.len(), "one token per hypothesis");
        let device = self.params().device().clone();
        let mut tape = Tape::evaluation(self.params());
        // Each hypothesis is a sentence of one row, `steps` places in.
        let starts: Vec<u32> = (0..=tokens.len() as u32).collect();
        let rows = Segments::from_host(&device, &starts);
        let x = self.embed_targets(&mut tape, &Ids::from_host(&device, tokens), &rows, state.steps);
        state.lineage.advance();
        let sentences = Ids::from_host(&device, &state.sentences);
        let at = StepContext {
            lineage: &state.lineage,
            sentences: &sentences,
            memory: &state.memory,
            steps_before: state.steps,
        };
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let features = self.decoder().step(&mut pass, x, &mut state.attentions, &at);
        state.steps += 1;
        self.logits(&mut tape, &features)
    }
}
