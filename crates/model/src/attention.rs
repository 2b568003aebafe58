//! Multi-head attention whose heads are weighted before the output projection: by a gate's mixture, by one drawn
//! expert, or not at all. One op serves every system of the paper.

use std::collections::BTreeMap;

use mae_engine::ops::attention::{Attention as AttentionOp, HeadWeights, Inputs};
use mae_engine::ops::linear::Activation;
use mae_engine::ops::mixture::{HeadMix, Pick};
use mae_engine::{Ids, ParamId, ParamsBuilder, Segments, Tape, Tensor, Var};

use crate::config::{CrossGate, DecoderGate, SamplingUnit, System};
use crate::gate::Gate;
use crate::groups::{ATTENTION_OUTPUT, REST};
use crate::stack::StackConfig;

/// How experts combine in a pass.
#[derive(Clone, Debug)]
pub enum ExpertMode {
    /// All of them, by the gate: w = g·M. Without gates they are equal, which is plain attention.
    Mix,
    /// One per row, drawn from the gate (which gets no gradient), or uniformly where there are no gates.
    Sample,
    /// The gate's favourite; the first where there are no gates.
    Argmax,
    /// Expert number i everywhere.
    Fixed(u32),
    /// One per sentence and attention, drawn from all alike; gates are not asked.
    Random(Draws),
    /// Given row by row for each attention, by name; for tests.
    Given(BTreeMap<String, Ids>),
}

/// Gates seen in a pass, for reports.
#[derive(Default)]
pub struct Probe {
    /// One record per gated attention, in the order of the pass.
    pub gates: Vec<GateRecord>,
}

/// The gates of one attention.
pub struct GateRecord {
    /// The attention, `encoder.layers.0.self_attn`.
    pub name: String,
    /// Whether rows are sentences (and not target positions).
    pub per_sentence: bool,
    /// g, `[rows, experts]`.
    pub gates: Tensor,
}

/// A pass through the model: where ops are recorded, and how experts combine.
pub struct Pass<'a, 'p> {
    /// Runs the ops.
    pub tape: &'a mut Tape<'p>,
    /// How experts combine.
    pub mode: &'a ExpertMode,
    /// Where gates are noted, if anybody wants them.
    pub probe: Option<&'a mut Probe>,
}

/// Which attention of a layer this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Encoder self-attention.
    Encoder,
    /// Decoder self-attention.
    Decoder,
    /// Decoder attention to the encoder's output.
    Cross,
}

/// What a gate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateInput {
    /// The mean of the queries' sentence.
    Sentence,
    /// The running mean of the queries, of all or of the last few.
    Running(Option<usize>),
    /// The mean of the source sentence.
    Source,
}

/// One attention with its gate.
#[derive(Clone, Debug)]
pub struct MixtureAttention {
    name: String,
    kind: Kind,
    heads: usize,
    dropout: f32,
    /// Self-attention: one projection to q, k, v side by side. Cross-attention: q, then k and v side by side.
    projections: Projections,
    out: [ParamId; 2],
    mixing: Option<Mixing>,
}

#[derive(Clone, Debug)]
enum Projections {
    Packed([ParamId; 2]),
    Apart { q: [ParamId; 2], kv: [ParamId; 2] },
}

/// What BASE does not have.
#[derive(Clone, Debug)]
struct Mixing {
    gate: Option<Gate>,
    input: GateInput,
    unit: SamplingUnit,
    experts: Tensor,
}

impl MixtureAttention {
    /// Declares the parameters `<name>.{q,k,v,out}_proj.*` and `<name>.gate.*`; `experts` is M.
    pub fn declare(
        params: &mut ParamsBuilder,
        name: &str,
        kind: Kind,
        config: &StackConfig<'_>,
        experts: &Tensor,
    ) -> Self {
        let width = config.width;
        let mut project = |parts: &[&str], group| {
            let weights =
                parts.iter().map(|p| (format!("{name}.{p}_proj.weight"), vec![width, width])).collect();
            let biases = parts.iter().map(|p| (format!("{name}.{p}_proj.bias"), vec![width])).collect();
            [params.block(weights, width, group), params.block(biases, 1, group)]
        };
        let projections = match kind {
            Kind::Encoder | Kind::Decoder => Projections::Packed(project(&["q", "k", "v"], REST)),
            Kind::Cross => Projections::Apart { q: project(&["q"], REST), kv: project(&["k", "v"], REST) },
        };
        let out = project(&["out"], ATTENTION_OUTPUT);
        let mixture = config.mixture;
        let window = (mixture.gate_window > 0).then_some(mixture.gate_window);
        let input = match (kind, mixture.cross_gate, mixture.decoder_gate) {
            (Kind::Encoder, _, _) => GateInput::Sentence,
            (Kind::Cross, CrossGate::Source, _) => GateInput::Source,
            (_, _, DecoderGate::Whole) => GateInput::Sentence,
            (_, _, DecoderGate::Causal) => GateInput::Running(window),
        };
        let gated = mixture.system.is_gated();
        let mixing = (mixture.system != System::Base).then(|| Mixing {
            gate: gated.then(|| Gate::declare(params, &format!("{name}.gate"), config)),
            input,
            unit: mixture.sampling_unit,
            experts: experts.clone(),
        });
        let (heads, dropout) = (config.heads, config.attention_dropout);
        Self { name: name.into(), kind, heads, dropout, projections, out, mixing }
    }

    /// x `[N, D]` attends to itself, or to `memory`.
    pub fn forward(
        &self,
        pass: &mut Pass<'_, '_>,
        x: &Var,
        rows: &Segments,
        memory: Option<(&Var, &Segments)>,
    ) -> Var {
        let weights = self.head_weights(pass, x, rows, memory);
        let tape = &mut *pass.tape;
        let (inputs, keys) = match (&self.projections, memory) {
            (Projections::Packed(qkv), _) => (Inputs::Packed(linear(tape, x, *qkv)), rows),
            (Projections::Apart { q, kv }, Some((memory, keys))) => {
                (Inputs::Apart(linear(tape, x, *q), linear(tape, memory, *kv)), keys)
            }
            (Projections::Apart { .. }, None) => unreachable!("decoders are given a memory"),
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
        rows: &Segments,
        memory: Option<(&Var, &Segments)>,
    ) -> HeadWeights {
        let Some(mixing) = &self.mixing else { return HeadWeights::One };
        // A drawn expert carries no gradient to its gate, so nothing of the gate need be kept.
        let source =
            |var: &Var| if matches!(pass.mode, ExpertMode::Mix) { var.clone() } else { var.detach() };
        let (read, segments) = match (mixing.input, memory) {
            (GateInput::Source, Some((memory, keys))) => (source(memory), keys),
            _ => (source(x), rows),
        };
        let window = match mixing.input {
            GateInput::Running(window) => Some(window),
            GateInput::Sentence | GateInput::Source => None,
        };
        let per_row = window.is_some();
        let drawn = match pass.mode {
            ExpertMode::Random(draws) => Some(self.drawn(pass.tape, mixing, draws, rows.count())),
            _ => None,
        };
        if let (Some(weights), None) = (&drawn, &pass.probe) {
            return HeadWeights::PerSentence(weights.clone());
        }
        let gate_rows = if per_row { read.rows() } else { segments.count() };
        let mix = if mixing.gate.is_none() {
            self.mix(pass, mixing, None, gate_rows, per_row.then_some(segments))
        } else {
            let pooled = match window {
                Some(window) => pass.tape.running_mean(&read, segments, window),
                None => pass.tape.segment_mean(&read, segments),
            };
            self.mix(pass, mixing, Some(&pooled), gate_rows, per_row.then_some(segments))
        };
        if let Some(weights) = drawn {
            return HeadWeights::PerSentence(weights);
        }
        match mix {
            None => HeadWeights::One,
            Some(mix) if per_row => HeadWeights::PerRow(mix.weights),
            Some(mix) => HeadWeights::PerSentence(mix.weights),
        }
    }

    /// Head weights of random experts, one row for each of `sentences` sentences.
    fn drawn(&self, tape: &mut Tape<'_>, mixing: &Mixing, draws: &Draws, sentences: usize) -> Var {
        let mut experts = draws.experts(&self.name, mixing.experts.rows());
        // Where there is room for more sentences than there are.
        experts.resize(sentences, 0);
        let pick = Pick::Given(Ids::from_host(tape.device(), &experts));
        tape.pick_ungated(sentences, &mixing.experts, &pick).weights
    }

    /// Head weights of `rows` gate rows; `None` for plain attention. `sentences` says which rows share a sentence
    /// where a sentence has several.
    fn mix(
        &self,
        pass: &mut Pass<'_, '_>,
        mixing: &Mixing,
        pooled: Option<&Var>,
        rows: usize,
        sentences: Option<&Segments>,
    ) -> Option<HeadMix> {
        let pick = match (pass.mode, sentences, mixing.unit) {
            // Where experts are random, the gates are asked for reports only.
            (ExpertMode::Mix | ExpertMode::Random(_), _, _) => None,
            (ExpertMode::Sample, Some(sentences), SamplingUnit::Sentence) => {
                Some(Pick::SamplePerSentence(sentences.clone()))
            }
            (ExpertMode::Sample, _, _) => Some(Pick::Sample),
            (ExpertMode::Argmax, _, _) => Some(Pick::Argmax),
            (ExpertMode::Fixed(expert), _, _) => Some(Pick::Fixed(*expert)),
            (ExpertMode::Given(draws), _, _) => Some(Pick::Given(draws[&self.name].clone())),
        };
        let tape = &mut *pass.tape;
        let mix = match (&mixing.gate, pooled, pick) {
            (Some(gate), Some(pooled), pick) => gate.mix(tape, pooled, &mixing.experts, pick.as_ref()),
            (_, _, Some(pick)) => tape.pick_ungated(rows, &mixing.experts, &pick),
            (_, _, None) => return None,
        };
        if let Some(probe) = &mut pass.probe {
            let (name, per_sentence) = (self.name.clone(), sentences.is_none());
            probe.gates.push(GateRecord { name, per_sentence, gates: mix.gates.clone() });
        }
        Some(mix)
    }
}

/// The affine map of a weight and a bias.
pub(crate) fn linear(tape: &mut Tape<'_>, x: &Var, [weight, bias]: [ParamId; 2]) -> Var {
    tape.linear(x, weight, bias, Activation::Identity, 0.0)
}

mod draws;
mod step;
pub use draws::Draws;
pub use step::{AttentionState, SearchRoom, StepContext};
