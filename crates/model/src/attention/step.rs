//! One new row per hypothesis: the same attention over cached keys and values, gates over running sums.

use mae_engine::ops::decode::{Kept, KvCache, Lineage, Room, RunningSum};
use mae_engine::ops::pool::Pooling;
use mae_engine::{Device, Ids, Segments, Tape, Tensor, Var};

use super::{GateInput, Mixing, MixtureAttention, Pass, Projections, linear};

/// How much a search may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchRoom {
    /// Hypotheses at a time, and steps.
    pub steps: Room,
    /// Source sentences.
    pub sentences: usize,
    /// Source tokens.
    pub source: usize,
}

/// What one attention remembers between steps.
pub struct AttentionState(Option<Remembered>);

struct Remembered {
    /// Self-attention: keys and values of the steps so far.
    kv: KvCache,
    /// Cross-attention: keys and values of the memory, made once.
    memory: Option<Kept>,
    /// Running gate: the sum of the inputs so far, one row per hypothesis.
    gate_sum: RunningSum,
    /// Gate over the source: head weights, one row per sentence, made once.
    sentence_weights: Option<Kept>,
}

impl AttentionState {
    /// Of a sublayer that remembers nothing.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`.
    pub(crate) fn reorder(&mut self, tape: &mut Tape<'_>, parents: &[u32]) {
        if let Some(state) = &mut self.0 {
            state.gate_sum.reorder(tape, parents);
        }
    }

    fn remembered(&mut self) -> &mut Remembered {
        self.0.as_mut().expect("attentions have a state")
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
}

impl MixtureAttention {
    /// Room for a search.
    pub(crate) fn room(&self, device: &Device, room: SearchRoom, width: usize) -> AttentionState {
        let cross = matches!(self.projections, Projections::Apart { .. });
        let steps = if cross { Room { steps: 0, ..room.steps } } else { room.steps };
        let over_source = self.mixing.as_ref().is_some_and(|mixing| mixing.input == GateInput::Source);
        let running = self.mixing.as_ref().is_some_and(|mixing| mixing.gate.is_some()) && !over_source;
        let sums = if running { room.steps } else { Room { rows: 0, steps: 0 } };
        AttentionState(Some(Remembered {
            kv: KvCache::new(device, steps, width),
            memory: cross.then(|| Kept::new(device, [room.source, 2 * width], false)),
            gate_sum: RunningSum::new(device, sums, width),
            sentence_weights: over_source.then(|| Kept::new(device, [room.sentences, self.heads], true)),
        }))
    }

    /// Makes `state` that before the first step; `memory` is the encoder's output.
    pub(crate) fn start(
        &self,
        pass: &mut Pass<'_, '_>,
        memory: &Var,
        keys: &Segments,
        state: &mut AttentionState,
    ) {
        let state = state.remembered();
        state.kv.clear();
        state.gate_sum.clear();
        if let (Projections::Apart { kv, .. }, Some(kept)) = (&self.projections, &mut state.memory) {
            kept.set(linear(pass.tape, memory, *kv).tensor());
        }
        let over_source = self.mixing.as_ref().filter(|mixing| mixing.input == GateInput::Source);
        if let (Some(mixing), Some(kept)) = (over_source, &mut state.sentence_weights) {
            let input = (memory, Pooling::Sentence(keys));
            match self.mix(pass, mixing, Some(input), keys.count(), None) {
                Some(mix) => kept.set(mix.weights.tensor()),
                // Plain attention: every head weighs 1.
                None => kept.set(&Tensor::from_host(
                    pass.tape.device(),
                    [keys.count(), self.heads],
                    &vec![1.0; keys.count() * self.heads],
                )),
            }
        }
    }

    /// x `[R, D]`, one row per hypothesis.
    pub(crate) fn step(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        state: &mut AttentionState,
        at: &StepContext<'_>,
    ) -> Var {
        let state = state.remembered();
        let weights = self.mixing.as_ref().and_then(|mixing| self.step_weights(pass, mixing, x, state, at));
        let tape = &mut *pass.tape;
        let context = match &self.projections {
            Projections::Packed(qkv) => {
                let qkv = linear(tape, x, *qkv);
                tape.attention_cached(&qkv, self.heads, &mut state.kv, at.lineage, weights.as_ref())
            }
            Projections::Apart { q, .. } => {
                let q = linear(tape, x, *q);
                let kv = state.memory.as_ref().expect("`room` has made place for the memory").tensor();
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
        state: &mut Remembered,
        at: &StepContext<'_>,
    ) -> Option<Tensor> {
        if let Some(weights) = &state.sentence_weights {
            return Some(pass.tape.gather(weights.tensor(), at.sentences));
        }
        let pooled = mixing
            .gate
            .is_some()
            .then(|| Var::constant(pass.tape.running_step(x, &mut state.gate_sum, at.lineage)));
        let input = pooled.as_ref().map(|pooled| (pooled, Pooling::Nothing));
        let mix = self.mix(pass, mixing, input, x.rows(), None);
        mix.map(|mix| mix.weights.tensor().clone())
    }
}
