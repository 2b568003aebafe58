//! One new row per hypothesis: the same attention over cached keys and values, gates over what they remember.

use mae_engine::ops::decode::{Heads, Keys, KvCache, Lineage, Memory, Room, SlotTensor, Spans};
use mae_engine::ops::gated::{Gated, GatedProjection};
use mae_engine::{Device, Ids, ParamId, Params, Segments, Tensor, Var};

use super::{ExpertMode, MixtureAttention, Pass, Projections, linear};
use crate::gate::input::InputState;
use crate::gate::{GateInput, Gating, Needs};

/// The largest search that a state has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchRoom {
    /// Hypotheses at a time, and steps.
    pub steps: Room,
    /// Source sentences at a time.
    pub sentences: usize,
    /// Source tokens at a time.
    pub source: usize,
}

/// State of one attention between steps.
pub struct AttentionState(Option<Remembered>);

struct Remembered {
    /// Self-attention: keys and values of the steps so far.
    kv: KvCache,
    /// Input of the gate so far.
    read: InputState,
    /// A gate that mixes by running means is computed with the projection, and then nothing else reads its input.
    gated: Option<GatedProjection>,
    /// Gate over the source, or random experts: head weights, one row per sentence, made once.
    sentence_weights: Option<SlotTensor>,
    /// True if those are in use.
    by_sentence: bool,
}

impl AttentionState {
    /// Of a sublayer that remembers nothing.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    fn remembered(&mut self) -> &mut Remembered {
        self.0.as_mut().expect("attentions have a state")
    }
}

/// Shared inputs of all attentions of a step.
pub struct StepContext<'a> {
    /// Ancestry of each hypothesis, including the newest step.
    pub lineage: &'a Lineage,
    /// Where there is a memory.
    pub memory: Option<StepMemory<'a>>,
}

/// The memory of a step.
#[derive(Clone, Copy)]
pub struct StepMemory<'a> {
    /// Keys and values of all attentions side by side, made once for each source.
    pub kv: &'a Tensor,
    /// The sentence of each hypothesis.
    pub sentences: &'a Ids,
    /// The rows of the sentences.
    pub spans: &'a Spans,
}

/// Sources that join a search.
pub struct Newcomers<'a> {
    /// The encoder's output `[N, D]`.
    pub memory: &'a Var,
    /// Its sentences.
    pub keys: &'a Segments,
    /// The number that each sentence has in the search.
    pub sentences: &'a Ids,
    /// The row of the search's memory where each row goes.
    pub rows: &'a Ids,
}

impl StepContext<'_> {
    fn memory(&self) -> StepMemory<'_> {
        self.memory.expect("decoders are given a memory")
    }
}

impl MixtureAttention {
    /// Room for a search.
    pub(crate) fn room(&self, device: &Device, room: SearchRoom, width: usize) -> AttentionState {
        let cross = matches!(self.projections, Projections::Query(_));
        let steps = if cross { Room { steps: 0, ..room.steps } } else { room.steps };
        let read = match &self.gating {
            Some(Gating { gate, input }) if gate.needs(&ExpertMode::Mix) != Needs::Nothing => {
                input.state(device, room.steps, width)
            }
            _ => InputState::Nothing,
        };
        AttentionState(Some(Remembered {
            kv: KvCache::new(device, steps, self.inner),
            read,
            gated: None,
            sentence_weights: self
                .gating
                .as_ref()
                .map(|_| SlotTensor::floats(device, [room.sentences, self.heads])),
            by_sentence: false,
        }))
    }

    /// Prepares the first step of a search: takes over what steps compute from parameters once.
    pub(crate) fn prepare(
        &self,
        params: &Params,
        mode: &ExpertMode,
        room: SearchRoom,
        state: &mut AttentionState,
    ) {
        let (Remembered { read, gated, .. }, projection) = (state.remembered(), self.projection());
        let network = self.gating.as_ref().and_then(|gating| gating.gate.network());
        let (Some((norm, network)), ExpertMode::Mix, InputState::Sum(_)) =
            (network, mode.of(self.kind), read)
        else {
            *gated = None;
            return;
        };
        let made = || GatedProjection::new(params, Gated { projection, norm, network }, room.steps);
        gated.get_or_insert_with(made).refresh(params);
    }

    /// The projection of queries.
    fn projection(&self) -> [ParamId; 2] {
        let (Projections::Packed(projection) | Projections::Query(projection)) = self.projections;
        projection
    }

    /// Puts what `state` must know about sources that join.
    pub(crate) fn admit(&self, pass: &mut Pass<'_, '_>, new: &Newcomers<'_>, state: &mut AttentionState) {
        let state = state.remembered();
        state.by_sentence = false;
        if let (Some(gating), Some(kept)) = (&self.gating, &mut state.sentence_weights)
            && let Some(weights) = self.sentence_weights(pass, gating, new.memory, new.keys)
        {
            pass.tape.put(kept, &weights, new.sentences);
            state.by_sentence = true;
        }
    }

    /// Head weights that are the same at all steps of a sentence, if they are.
    fn sentence_weights(
        &self,
        pass: &mut Pass<'_, '_>,
        gating: &Gating,
        memory: &Var,
        keys: &Segments,
    ) -> Option<Tensor> {
        let sentences = keys.count();
        if let Some(drawn) = self.drawn(pass, gating, sentences) {
            return Some(drawn.tensor().clone());
        }
        if gating.input != GateInput::Source {
            return None;
        }
        let needs = gating.gate.needs(pass.mode.of(self.kind));
        let reading = GateInput::read_source(pass.tape, needs, &self.name, (memory, keys));
        Some(match self.weigh(pass, gating, &reading) {
            Some(weights) => weights.tensor().clone(),
            // Plain attention: every head weighs 1.
            None => {
                let ones = vec![1.0; sentences * self.heads];
                Tensor::from_host(pass.tape.device(), [sentences, self.heads], &ones)
            }
        })
    }

    /// x `[R, D]`, one row per hypothesis. `part`: the number of this attention among those to the memory.
    pub(crate) fn step(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        state: &mut AttentionState,
        at: &StepContext<'_>,
        part: usize,
    ) -> Var {
        let state = state.remembered();
        let heads = Heads { count: self.heads, width: self.inner / self.heads };
        let memory = |StepMemory { kv, sentences, spans }| Memory { kv, part, spans, sentences };
        let experts = self.gating.as_ref().and_then(|gating| gating.gate.experts());
        let context = if let (Some(gated), Some(experts)) = (&mut state.gated, experts) {
            let keys = match &self.projections {
                Projections::Packed(_) => Keys::Steps(&mut state.kv),
                Projections::Query(_) => Keys::Memory(memory(at.memory())),
            };
            pass.tape.attend_gated(x, gated, experts, at.lineage, (heads, keys))
        } else {
            let gating = self.gating.as_ref();
            let weights = gating.and_then(|gating| self.step_weights(pass, gating, x, state, at));
            let (tape, weights) = (&mut *pass.tape, weights.as_ref());
            let projected = linear(tape, x, self.projection());
            match &self.projections {
                Projections::Packed(_) => {
                    tape.store_kv(&projected, self.inner, &mut state.kv, at.lineage);
                    tape.attention_cached(&projected, heads, &state.kv, at.lineage, weights)
                }
                Projections::Query(_) => {
                    tape.attention_memory(&projected, heads, &memory(at.memory()), weights)
                }
            }
        };
        linear(pass.tape, &context, self.out)
    }

    fn step_weights(
        &self,
        pass: &mut Pass<'_, '_>,
        gating: &Gating,
        x: &Var,
        state: &mut Remembered,
        at: &StepContext<'_>,
    ) -> Option<Tensor> {
        if let Some(weights) = state.sentence_weights.as_ref().filter(|_| state.by_sentence) {
            return Some(pass.tape.gather(weights.tensor(), at.memory().sentences));
        }
        let needs = gating.gate.needs(pass.mode.of(self.kind));
        let reading = state.read.step(pass.tape, needs, &self.name, (x, at.lineage));
        self.weigh(pass, gating, &reading).map(|weights| weights.tensor().clone())
    }
}
