//! A pass through a model: the tape, how experts combine, and a record of what gates did.

use std::collections::BTreeMap;
use std::sync::Arc;

use mae_engine::{Ids, Params, Tape, Tensor};
use serde::Serialize;

pub use crate::draws::Draws;
use crate::importance::HeadMeter;

/// Combination of experts in a pass. Systems without experts ignore it.
#[derive(Clone, Debug)]
pub enum ExpertMode {
    /// All of them, weighted by the gate: w = g·M. Without gates they weigh the same, which is plain attention.
    Mix,
    /// One per row, drawn from the gate (which gets no gradient), or uniformly where there are no gates.
    Sample,
    /// The gate's favourite; the first where there are no gates.
    Argmax,
    /// Expert number i everywhere.
    Fixed(u32),
    /// One per sentence and attention, drawn uniformly; gates are ignored.
    Random(Draws),
    /// As [`ExpertMode::Mix`], with other matrices in place of M in the attentions named: w = g·M′
    /// ([`Experts::matrix_without`](crate::experts::Experts::matrix_without)). Without gates M′ has one row, w.
    Altered(Arc<BTreeMap<String, Tensor>>),
    /// Given row by row for each attention, by name; for tests.
    Given(BTreeMap<String, Ids>),
    /// Head weights `[rows, H]` given for the attentions of these names, with the rows of their gates; all experts, weighted
    /// by the gate, in the others. For evaluation with whole sentences.
    Weights(BTreeMap<String, Tensor>),
    /// The inner mode in the encoder; elsewhere all experts, weighted by the gate.
    InEncoder(Box<ExpertMode>),
}

impl ExpertMode {
    /// The mode of an attention of this kind.
    pub(crate) fn of(&self, kind: Kind) -> &Self {
        match self {
            Self::InEncoder(inner) if kind == Kind::Encoder => inner.of(kind),
            Self::InEncoder(_) => &Self::Mix,
            other => other,
        }
    }

    /// Returns true if a pass reads numbers of the host that change from batch to batch.
    pub(crate) fn reads_host(&self) -> bool {
        match self {
            Self::Random(_) | Self::Given(_) | Self::Weights(_) => true,
            Self::InEncoder(inner) => inner.reads_host(),
            Self::Mix | Self::Sample | Self::Argmax | Self::Fixed(_) | Self::Altered(_) => false,
        }
    }
}

/// A pass through a model: the tape that records ops, and how experts combine.
pub struct Pass<'a, 'p> {
    /// Runs the ops.
    pub tape: &'a mut Tape<'p>,
    /// Combination of experts.
    pub mode: &'a ExpertMode,
    /// Collects what gates did, if wanted.
    pub probe: Option<&'a mut Probe>,
}

/// Gates seen in a pass, for reports.
#[derive(Default)]
pub struct Probe {
    /// One record per gated attention, in the order of the pass.
    pub gates: Vec<GateRecord>,
    /// Gates before their training ([`crate::init::untrained_gates`]): each reads what the model's gate reads and is
    /// recorded beside it.
    pub untrained: Option<Arc<Params>>,
    /// Collects statistics of all heads, if wanted.
    pub heads: Option<HeadMeter>,
}

/// The gates of one attention.
pub struct GateRecord {
    /// Name of the attention, `encoder.layers.0.self_attn`.
    pub name: String,
    /// Kind of the attention; says what its positions are (source, target).
    pub kind: Kind,
    /// Unit of a row.
    pub rows: Rows,
    /// Content of a row.
    pub values: GateValues,
    /// The rows, `[rows, experts]` or `[rows, heads]`.
    pub gates: Tensor,
    /// The same of the untrained gate, where the probe has one.
    pub untrained: Option<Tensor>,
}

/// Kind of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Encoder self-attention: every position sees every other.
    Encoder,
    /// Decoder self-attention: a position sees itself and those before it. The only kind of a language model.
    Decoder,
    /// Attention of the decoder to the encoder's output.
    Cross,
}

/// Unit that has its own gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Each sentence.
    Sentences,
    /// Each position of the queries.
    Positions,
}

/// Meaning of the numbers of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateValues {
    /// Probabilities of experts: a row sums to 1, so it has an entropy.
    Probabilities,
    /// Weights of heads: 1 is plain attention. Rows need not sum to anything, so entropy is not defined.
    Weights,
}
