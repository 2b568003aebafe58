//! One new row per hypothesis: the same attention over cached keys and values, gates over running sums.

use mae_engine::ops::decode::{KvCache, Lineage};
use mae_engine::{Ids, Segments, Tensor, Var};

use super::{GateInput, Mixing, MixtureAttention, Pass, Projections, linear};

/// What one attention remembers between steps.
#[derive(Default)]
pub struct AttentionState {
    /// Self-attention: keys and values of the steps so far.
    kv: KvCache,
    /// Cross-attention: keys and values of the memory, made once.
    memory: Option<Tensor>,
    /// Running gate: the sum of the inputs so far, one row per hypothesis.
    gate_sum: Option<Tensor>,
    /// Gate over the source: head weights, one row per sentence, made once.
    sentence_weights: Option<Tensor>,
}

impl AttentionState {
    /// New hypothesis i descends from old hypothesis `parents[i]`.
    pub(crate) fn reorder(&mut self, pass: &mut Pass<'_, '_>, parents: &Ids) {
        if let Some(sum) = &self.gate_sum {
            self.gate_sum = Some(pass.tape.gather(sum, parents));
        }
    }
}

/// What all attentions of a step share.
pub struct StepContext<'a> {
    /// Where each hypothesis' past lies; the newest step is in it already.
    pub lineage: &'a Lineage,
    /// Sentence of each hypothesis.
    pub sentences: &'a Ids,
    /// Sentences of the memory.
    pub memory: &'a Segments,
    /// Steps taken before this one.
    pub steps_before: usize,
}

impl MixtureAttention {
    /// The state before the first step; `memory` is the encoder's output.
    pub(crate) fn start(&self, pass: &mut Pass<'_, '_>, memory: &Var, keys: &Segments) -> AttentionState {
        let mut state = AttentionState::default();
        if let Projections::Apart { kv, .. } = &self.projections {
            state.memory = Some(linear(pass.tape, memory, *kv).tensor().clone());
        }
        if let Some(mixing) = self.mixing.as_ref().filter(|mixing| mixing.input == GateInput::Source) {
            let pooled = mixing.gate.is_some().then(|| pass.tape.segment_mean(memory, keys));
            let mix = self.mix(pass, mixing, pooled.as_ref(), keys.count(), None);
            state.sentence_weights = mix.map(|mix| mix.weights.tensor().clone());
        }
        state
    }

    /// x `[R, D]`, one row per hypothesis.
    pub(crate) fn step(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        state: &mut AttentionState,
        at: &StepContext<'_>,
    ) -> Var {
        let weights = self.mixing.as_ref().and_then(|mixing| self.step_weights(pass, mixing, x, state, at));
        let tape = &mut *pass.tape;
        let context = match &self.projections {
            Projections::Packed(qkv) => {
                let qkv = linear(tape, x, *qkv);
                let width = x.cols();
                let q = Var::constant(tape.columns(qkv.tensor(), 0..width));
                state.kv.push(tape.columns(qkv.tensor(), width..3 * width));
                tape.attention_cached(&q, self.heads, &state.kv, at.lineage, weights.as_ref())
            }
            Projections::Apart { q, .. } => {
                let q = linear(tape, x, *q);
                let kv = state.memory.as_ref().expect("`start` has made the memory's keys and values");
                tape.attention_memory(&q, self.heads, kv, at.memory, at.sentences, weights.as_ref())
            }
        };
        linear(pass.tape, &context, self.out)
    }

    fn step_weights(
        &self,
        pass: &mut Pass<'_, '_>,
        mixing: &Mixing,
        x: &Var,
        state: &mut AttentionState,
        at: &StepContext<'_>,
    ) -> Option<Tensor> {
        if mixing.input == GateInput::Source {
            return state.sentence_weights.as_ref().map(|weights| pass.tape.gather(weights, at.sentences));
        }
        let pooled = mixing.gate.is_some().then(|| {
            let sum = match &state.gate_sum {
                Some(sum) => pass.tape.sum(sum, x.tensor()),
                None => x.tensor().clone(),
            };
            let mean = pass.tape.scaled(&sum, 1.0 / (at.steps_before + 1) as f32);
            state.gate_sum = Some(sum);
            Var::constant(mean)
        });
        let mix = self.mix(pass, mixing, pooled.as_ref(), x.rows(), None);
        mix.map(|mix| mix.weights.tensor().clone())
    }
}
