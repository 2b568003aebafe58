//! Multi-head attention whose heads are weighted before the output projection: by a gate, by one drawn expert, or not
//! at all. One op serves every system.
//!
//! [`MixtureAttention`] can be used in any model: declare it with an [`AttentionConfig`], call
//! [`MixtureAttention::forward`] in a [`Pass`]. Keys and values of a memory come from a [`MemoryProjection`]. The
//! parameters of a gate are in the group [`GATE`](crate::groups::GATE), so that G and F steps can train one or the other.

mod memory;
mod step;

use mae_engine::ops::attention::{Attention as AttentionOp, HeadWeights, Inputs};
use mae_engine::ops::linear::Activation;
use mae_engine::ops::mixture::Pick;
use mae_engine::{Device, Ids, ParamId, ParamsBuilder, Segments, Tape, Var};

use crate::config::Mixture;
use crate::experts::Experts;
use crate::gate::{GateInput, Gating, Reading};
use crate::groups::{ATTENTION_OUTPUT, REST};
pub use crate::pass::{Draws, ExpertMode, GateRecord, Kind, Pass, Probe};
use crate::pass::{GateValues, Rows};
use crate::{Error, Result};
pub use memory::{AttendedMemory, MemoryProjection};
pub use step::{AttentionState, Newcomers, SearchRoom, StepContext, StepMemory};

/// Sizes and choices of one attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig<'a> {
    /// Kind of attention: the sides that it connects.
    pub kind: Kind,
    /// D: width of the input and the output.
    pub width: usize,
    /// H.
    pub heads: usize,
    /// K, the width of a head; 0: D / H.
    pub head_dim: usize,
    /// Dropout of attention probabilities.
    pub dropout: f32,
    /// Mixture of the heads.
    pub mixture: &'a Mixture,
}

impl AttentionConfig<'_> {
    /// The experts; `None` for systems without.
    pub fn experts(&self) -> Option<Experts> {
        self.mixture.experts(self.heads)
    }

    /// H·K: width of queries, keys and values.
    pub fn inner(&self) -> usize {
        if self.head_dim > 0 { self.heads * self.head_dim } else { self.width }
    }

    /// An error with all faults at once.
    pub fn check(&self) -> Result<()> {
        let Self { width, heads, head_dim, dropout, .. } = *self;
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        let divides = heads > 0 && width > 0 && (head_dim > 0 || width.is_multiple_of(heads));
        require(divides, format!("heads = {heads} must divide width = {width}, which must be above 0"));
        require((0.0..1.0).contains(&dropout), format!("dropout = {dropout} must be at least 0 and below 1"));
        self.mixture.check(self, &mut require);
        if faults.is_empty() { Ok(()) } else { Err(Error::Config(faults)) }
    }
}

/// One attention with its gate.
#[derive(Clone, Debug)]
pub struct MixtureAttention {
    name: String,
    kind: Kind,
    heads: usize,
    /// H·K.
    inner: usize,
    dropout: f32,
    projections: Projections,
    out: [ParamId; 2],
    /// `None` for systems that weigh every head 1.
    gating: Option<Gating>,
    values: GateValues,
}

#[derive(Clone, Debug)]
enum Projections {
    /// Self-attention: one projection to q, k, v side by side.
    Packed([ParamId; 2]),
    /// Attention to a memory: q; keys and values come with the memory.
    Query([ParamId; 2]),
}

impl MixtureAttention {
    /// Declares the parameters `<name>.{q,k,v,out}_proj.*` and `<name>.gate.*` of an attention on `device`; attention to
    /// a memory has k and v from a [`MemoryProjection`].
    pub fn declare(
        params: &mut ParamsBuilder,
        name: &str,
        config: &AttentionConfig<'_>,
        device: &Device,
    ) -> Result<Self> {
        config.check()?;
        let AttentionConfig { kind, width, heads, dropout, mixture, .. } = *config;
        let inner = config.inner();
        let mut project = |parts: &[&str], [rows, cols]: [usize; 2], group| {
            let weights =
                parts.iter().map(|p| (format!("{name}.{p}_proj.weight"), vec![rows, cols])).collect();
            let biases = parts.iter().map(|p| (format!("{name}.{p}_proj.bias"), vec![rows])).collect();
            [params.block(weights, cols, group), params.block(biases, 1, group)]
        };
        let mut into_heads = |parts: &[&str]| project(parts, [inner, width], REST);
        let projections = match kind {
            Kind::Encoder | Kind::Decoder => Projections::Packed(into_heads(&["q", "k", "v"])),
            Kind::Cross => Projections::Query(into_heads(&["q"])),
        };
        let out = project(&["out"], [width, inner], ATTENTION_OUTPUT);
        let gating = mixture.system.gate().map(|kind_of_gate| Gating {
            gate: (kind_of_gate.declare)(params, &format!("{name}.gate"), config, device),
            input: GateInput::of(kind, mixture),
        });
        let values = mixture.system.values();
        Ok(Self { name: name.into(), kind, heads, inner, dropout, projections, out, gating, values })
    }

    /// x `[N, D]`, the sentences `rows`, attends to itself, or to `memory`.
    ///
    /// # Panics
    ///
    /// If an attention of kind [`Kind::Cross`] is given no memory.
    pub fn forward(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        rows: &Segments,
        memory: Option<AttendedMemory<'_>>,
    ) -> Var {
        let states = memory.as_ref().map(|memory| (memory.states, memory.sentences));
        let weights = self.head_weights(pass, x, rows, states);
        let weights = match pass.probe.as_ref().and_then(|probe| probe.heads.as_ref()) {
            Some(meter) => meter.metered(pass.tape, (&self.name, self.kind), weights, [x.rows(), self.heads]),
            None => weights,
        };
        let tape = &mut *pass.tape;
        let (inputs, keys) = match (&self.projections, memory) {
            (Projections::Packed(qkv), _) => (Inputs::Packed(linear(tape, x, *qkv)), rows),
            (Projections::Query(q), Some(memory)) => {
                (Inputs::Shared(linear(tape, x, *q), memory.kv), memory.sentences)
            }
            (Projections::Query(_), None) => panic!("{}: attention to a memory without one", self.name),
        };
        let op = AttentionOp {
            heads: self.heads,
            causal: self.kind == Kind::Decoder,
            dropout: self.dropout,
            queries: rows.clone(),
            keys: keys.clone(),
            weights,
        };
        let context = tape.attention(&inputs, op);
        linear(tape, &context, self.out)
    }

    fn head_weights(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        sentences: &Segments,
        memory: Option<(&Var, &Segments)>,
    ) -> HeadWeights {
        let Some(gating) = &self.gating else { return HeadWeights::One };
        let drawn = self.drawn(pass, gating, sentences.count());
        if let (Some(weights), None) = (&drawn, &pass.probe) {
            return HeadWeights::PerSentence(weights.clone());
        }
        if let ExpertMode::Weights(given) = pass.mode
            && let Some(weights) = given.get(&self.name)
        {
            let weights = Var::constant(weights.clone());
            return match gating.input.rows() {
                Rows::Positions => HeadWeights::PerRow(weights),
                Rows::Sentences => HeadWeights::PerSentence(weights),
            };
        }
        let needs = gating.gate.needs(pass.mode.of(self.kind));
        let reading = gating.input.read(pass.tape, needs, &self.name, (x, sentences), memory);
        let weights = self.weigh(pass, gating, &reading);
        match (drawn, weights, gating.input.rows()) {
            (Some(drawn), _, _) => HeadWeights::PerSentence(drawn),
            (None, None, _) => HeadWeights::One,
            (None, Some(weights), Rows::Positions) => HeadWeights::PerRow(weights),
            (None, Some(weights), Rows::Sentences) => HeadWeights::PerSentence(weights),
        }
    }

    /// Head weights of random experts, one row for each of `sentences` sentences, if the mode asks for them.
    fn drawn(&self, pass: &mut Pass<'_, '_>, gating: &Gating, sentences: usize) -> Option<Var> {
        let (ExpertMode::Random(draws), Some(experts)) = (pass.mode.of(self.kind), gating.gate.experts())
        else {
            return None;
        };
        let mut drawn = draws.experts(&self.name, experts.rows());
        // Where there is room for more sentences than there are.
        drawn.resize(sentences, 0);
        let pick = Pick::Given(Ids::from_host(pass.tape.device(), &drawn));
        Some(pass.tape.pick_ungated(sentences, experts, &pick).weights)
    }

    /// Head weights of what the gate has read; `None` where every head weighs 1.
    fn weigh(&self, pass: &mut Pass<'_, '_>, gating: &Gating, reading: &Reading<'_>) -> Option<Var> {
        let weighed = gating.gate.weigh(pass.tape, reading, pass.mode.of(self.kind))?;
        if let Some(probe) = &mut pass.probe {
            let untrained = probe.untrained.as_deref().and_then(|params| {
                let mut tape = Tape::evaluation(params);
                gating.gate.weigh(&mut tape, &reading.detached()?, &ExpertMode::Mix)
            });
            probe.gates.push(GateRecord {
                name: self.name.clone(),
                kind: self.kind,
                rows: gating.input.rows(),
                values: self.values,
                gates: weighed.values,
                untrained: untrained.map(|weighed| weighed.values),
            });
        }
        Some(weighed.weights)
    }
}

/// The affine map of a weight and a bias.
pub(crate) fn linear(tape: &mut Tape<'_>, x: &Var, [weight, bias]: [ParamId; 2]) -> Var {
    tape.linear(x, weight, bias, Activation::Identity, 0.0)
}
