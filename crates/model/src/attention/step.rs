//! One new row per hypothesis: the same attention over cached keys and values, gates over running sums.

use mae_engine::ops::decode::{InputWindow, Kept, KvCache, Lineage, Room, RunningSum};
use mae_engine::{Device, Ids, Segments, Tape, Tensor, Var};

use super::{ExpertMode, GateInput, Mixing, MixtureAttention, Pass, Projections, linear};

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
    /// Running gate: what it has read so far.
    read: Read,
    /// Gate over the source, or random experts: head weights, one row per sentence, made once.
    sentence_weights: Option<Kept>,
    /// Whether those are in use.
    by_sentence: bool,
}

/// What running gates remember of their inputs.
enum Read {
    /// Their sum, one row per hypothesis.
    Sum(RunningSum),
    /// The last few.
    Window(InputWindow),
}

impl Read {
    fn clear(&mut self) {
        match self {
            Self::Sum(sum) => sum.clear(),
            Self::Window(window) => window.clear(),
        }
    }

    /// The mean of what is remembered and of x, which is remembered from now on.
    fn step(&mut self, tape: &mut Tape<'_>, x: &Var, lineage: &Lineage) -> Tensor {
        match self {
            Self::Sum(sum) => tape.running_step(x, sum, lineage),
            Self::Window(window) => tape.window_step(x, window, lineage),
        }
    }
}

impl AttentionState {
    /// Of a sublayer that remembers nothing.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// New hypothesis i descends from old hypothesis `parents[i]`.
    pub(crate) fn reorder(&mut self, tape: &mut Tape<'_>, parents: &[u32]) {
        // A window looks at the lineage instead.
        if let Some(Remembered { read: Read::Sum(sum), .. }) = &mut self.0 {
            sum.reorder(tape, parents);
        }
    }

    /// Forgets all steps.
    pub(crate) fn clear(&mut self) {
        if let Some(state) = &mut self.0 {
            state.kv.clear();
            state.read.clear();
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
    /// Where there is a memory: the sentence of each hypothesis, and the memory's sentences.
    pub memory: Option<(&'a Ids, &'a Segments)>,
}

impl StepContext<'_> {
    fn memory(&self) -> (&Ids, &Segments) {
        self.memory.expect("decoders are given a memory")
    }
}

impl MixtureAttention {
    /// Room for a search.
    pub(crate) fn room(&self, device: &Device, room: SearchRoom, width: usize) -> AttentionState {
        let cross = matches!(self.projections, Projections::Apart { .. });
        let steps = if cross { Room { steps: 0, ..room.steps } } else { room.steps };
        let over_source = self.mixing.as_ref().is_some_and(|mixing| mixing.input == GateInput::Source);
        let gated = self.mixing.as_ref().filter(|mixing| mixing.gate.is_some());
        let inputs = if gated.is_some() && !over_source { room.steps } else { Room { rows: 0, steps: 0 } };
        let read = match gated.map(|mixing| mixing.input) {
            Some(GateInput::Running(Some(window))) => {
                Read::Window(InputWindow::new(device, window, inputs, width))
            }
            _ => Read::Sum(RunningSum::new(device, inputs, width)),
        };
        AttentionState(Some(Remembered {
            kv: KvCache::new(device, steps, width),
            memory: cross.then(|| Kept::new(device, [room.source, 2 * width], false)),
            read,
            sentence_weights: self
                .mixing
                .as_ref()
                .map(|_| Kept::new(device, [room.sentences, self.heads], true)),
            by_sentence: false,
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
        state.clear();
        let state = state.remembered();
        if let (Projections::Apart { kv, .. }, Some(kept)) = (&self.projections, &mut state.memory) {
            kept.set(linear(pass.tape, memory, *kv).tensor());
        }
        state.by_sentence = false;
        if let (Some(mixing), Some(kept)) = (&self.mixing, &mut state.sentence_weights)
            && let Some(weights) = self.sentence_weights(pass, mixing, memory, keys)
        {
            kept.set(&weights);
            state.by_sentence = true;
        }
    }

    /// Head weights that are the same at all steps of a sentence, if they are.
    fn sentence_weights(
        &self,
        pass: &mut Pass<'_, '_>,
        mixing: &Mixing,
        memory: &Var,
        keys: &Segments,
    ) -> Option<Tensor> {
        let sentences = keys.count();
        if let ExpertMode::Random(draws) = pass.mode {
            return Some(self.drawn(pass.tape, mixing, draws, sentences).tensor().clone());
        }
        if mixing.input != GateInput::Source {
            return None;
        }
        let pooled = mixing.gate.is_some().then(|| pass.tape.segment_mean(memory, keys));
        Some(match self.mix(pass, mixing, pooled.as_ref(), sentences, None) {
            Some(mix) => mix.weights.tensor().clone(),
            // Plain attention: every head weighs 1.
            None => {
                let ones = vec![1.0; sentences * self.heads];
                Tensor::from_host(pass.tape.device(), [sentences, self.heads], &ones)
            }
        })
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
                let (sentences, keys) = at.memory();
                tape.attention_memory(&q, self.heads, kv, keys, sentences, weights.as_ref())
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
        if let Some(weights) = state.sentence_weights.as_ref().filter(|_| state.by_sentence) {
            return Some(pass.tape.gather(weights.tensor(), at.memory().0));
        }
        let pooled = mixing.gate.is_some().then(|| Var::constant(state.read.step(pass.tape, x, at.lineage)));
        let mix = self.mix(pass, mixing, pooled.as_ref(), x.rows(), None);
        mix.map(|mix| mix.weights.tensor().clone())
    }
}
