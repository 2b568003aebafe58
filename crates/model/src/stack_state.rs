//! The state of a stack between steps, which decoders and language models share.

use mae_engine::ops::decode::{Lineage, SlotTensor, Spans};
use mae_engine::{Device, Ids, Params, Replays, Result, Tape, Tensor, Var};

use crate::attention::{AttentionState, SearchRoom, StepContext, StepMemory};
use crate::pass::{ExpertMode, Pass};
use crate::stack::Stack;

/// Keys, values and gate inputs of every layer, one lineage for all. On a GPU, steps are captured once and replayed.
pub(crate) struct StackState {
    room: SearchRoom,
    lineage: Lineage,
    attentions: Vec<AttentionState>,
    /// Keys and values of the sources, where there is a memory.
    memory: Option<SlotTensor>,
    /// Captured steps by their number of rows.
    steps: Replays<usize, Tensor>,
}

/// One step of a model.
pub(crate) struct Step<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) params: &'a Params,
    /// Rows that are computed.
    pub(crate) rows: usize,
    pub(crate) mode: &'a ExpertMode,
    /// Where there is a memory: the sentence of each hypothesis, and the rows of the sentences.
    pub(crate) memory: Option<(&'a Ids, &'a Spans)>,
}

impl StackState {
    /// Room for searches of up to this size.
    pub(crate) fn new(stack: &Stack, device: &Device, room: SearchRoom, width: usize) -> Self {
        Self {
            room,
            lineage: Lineage::new(device, room.steps),
            attentions: stack.room(device, room, width),
            memory: stack.memory_room(device, room),
            steps: Replays::default(),
        }
    }

    /// The largest search that there is room for.
    pub(crate) fn room(&self) -> SearchRoom {
        self.room
    }

    /// Steps that the oldest hypothesis has taken.
    pub(crate) fn steps(&self) -> usize {
        self.lineage.steps()
    }

    /// Number of hypotheses.
    pub(crate) fn live(&self) -> usize {
        self.lineage.rows()
    }

    /// Number of rows that a step of `live` hypotheses computes: on a GPU rounded up, so that few kinds of steps are
    /// captured.
    pub(crate) fn rows(&self, device: &Device, live: usize) -> usize {
        let most = self.room.steps.rows;
        if device.is_gpu() { live.next_multiple_of((most / 8).max(32)).min(most) } else { live }
    }

    /// `count` hypotheses without a past come after the present ones; returns the states of the attentions, and the room
    /// for keys and values of sources.
    pub(crate) fn begin(&mut self, count: usize) -> (&mut [AttentionState], Option<&mut SlotTensor>) {
        self.lineage.begin(count);
        (&mut self.attentions, self.memory.as_mut())
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave.
    pub(crate) fn reorder(&mut self, parents: &[u32]) {
        self.lineage.reorder(parents);
    }

    /// Takes a step: `embed` reads the new tokens, `logits` scores the next.
    pub(crate) fn step(
        &mut self,
        step: &Step<'_>,
        embed: impl FnOnce(&mut Tape<'_>, &Lineage) -> Var,
        logits: impl FnOnce(&mut Tape<'_>, &Var) -> Tensor,
    ) -> Result<Tensor> {
        let Self { lineage, attentions, memory, steps, room } = self;
        let device = step.params.device();
        lineage.load();
        // Parameters may have changed since the last search, and do not in the middle of one.
        if lineage.steps() == 0 {
            step.stack.prepare(step.params, step.mode, *room, attentions);
        }
        let logits = steps.run(device, step.rows, || {
            let mut tape = Tape::evaluation(step.params);
            let x = embed(&mut tape, lineage);
            tape.advance(lineage, step.rows);
            let memory = step.memory.zip(memory.as_ref());
            let memory =
                memory.map(|((sentences, spans), kept)| StepMemory { kv: kept.tensor(), sentences, spans });
            let at = StepContext { lineage, memory };
            let mut pass = Pass { tape: &mut tape, mode: step.mode, probe: None };
            let features = step.stack.step(&mut pass, x, attentions, &at);
            Ok(logits(&mut tape, &features))
        })?;
        self.lineage.count_step();
        device.check()?;
        Ok(logits)
    }
}
