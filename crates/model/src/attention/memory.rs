//! Keys and values of a memory: one product makes those of all attentions to it.

use mae_engine::ops::decode::SlotTensor;
use mae_engine::{Ids, ParamId, ParamsBuilder, Part, Parts, Segments, Tape, Var};

use super::AttentionConfig;
use crate::groups::REST;

/// The projections of a memory to the keys and values of several attentions of one size.
#[derive(Clone, Debug)]
pub struct MemoryProjection {
    weight: ParamId,
    bias: ParamId,
    attentions: usize,
    /// Columns of the result.
    width: usize,
}

/// A memory as one attention reads it.
#[derive(Clone, Debug)]
pub struct AttendedMemory<'a> {
    /// The memory itself, `[N, D]`.
    pub states: &'a Var,
    /// Its sentences.
    pub sentences: &'a Segments,
    /// Keys and values of this attention.
    pub kv: Part,
}

impl MemoryProjection {
    /// Declares the parameters `<name>.{k,v}_proj.*` of these attentions.
    pub fn declare(params: &mut ParamsBuilder, names: &[String], config: &AttentionConfig<'_>) -> Self {
        let (inner, cols) = (config.inner(), config.width);
        let every = |kind: &str| {
            let name = |name: &String| ["k", "v"].map(|part| format!("{name}.{part}_proj.{kind}"));
            names.iter().flat_map(name).collect::<Vec<_>>()
        };
        let weights = every("weight").into_iter().map(|name| (name, vec![inner, cols])).collect();
        let biases = every("bias").into_iter().map(|name| (name, vec![inner])).collect();
        Self {
            weight: params.block(weights, cols, REST),
            bias: params.block(biases, 1, REST),
            attentions: names.len(),
            width: 2 * inner * names.len(),
        }
    }

    /// Columns of all keys and values side by side.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Keys and values of all attentions, in the order of their names.
    pub fn project(&self, tape: &mut Tape<'_>, states: &Var) -> Parts {
        tape.linear_parts(states, self.weight, self.bias, self.attentions)
    }

    /// The same for a search, which keeps them: those of each state in one of these rows.
    pub(crate) fn put(&self, tape: &mut Tape<'_>, states: &Var, kept: &mut SlotTensor, rows: &Ids) {
        tape.put_linear(kept, states, [self.weight, self.bias], rows);
    }
}
