//! Sigmoid head gates: w = 2·σ(W·x + b), one weight for each head.
//!
//! The headwise gate of gated attention (Qiu et al., 2025), σ(W·x), with a bias and a factor of 2. The factor does not
//! change what a model can compute (σ before an output projection twice as large is the same), but with W = b = 0, the
//! initial values, every head weighs exactly 1: a model starts as BASE does, where σ is steepest. The gates are trained
//! with the rest, by the same optimiser; weight decay pulls them towards plain attention.

use std::sync::Arc;

use mae_engine::{Device, ParamId, ParamsBuilder, Tape};

use super::{Gate, Needs, Reading, Weighed};
use crate::attention::{AttentionConfig, linear};
use crate::config::GateReads;
use crate::groups::GATE;
use crate::pass::ExpertMode;
use crate::system::{GateKind, GateOptimizer, Layers, Mixes, Name, Spec, Start, Training};

/// The row of the table of systems.
pub(crate) const SYSTEM: Spec = Spec {
    key: "sigmoid",
    title: "sigmoid gates",
    name: Name::Plain { name: "sigmoid", dropped_heads: None, gate_input: GateReads::Position },
    mixes: Mixes::Heads,
    training: Training::Joint(GateOptimizer::Shared),
    gate: Some(GateKind {
        family: "sigmoid",
        layers: Layers::NeutralWith("proj"),
        start: Start::Neutral,
        check: |_, _| {},
        declare,
    }),
};

/// The largest weight; half of it is the weight of a logit of 0.
const SCALE: f32 = 2.0;

#[derive(Debug)]
struct SigmoidGate {
    /// W `[H, D]` and b.
    proj: [ParamId; 2],
}

/// Declares the parameters `<name>.proj.{weight,bias}`.
fn declare(
    params: &mut ParamsBuilder,
    name: &str,
    config: &AttentionConfig<'_>,
    _: &Device,
) -> Arc<dyn Gate> {
    let weight = params.matrix(format!("{name}.proj.weight"), [config.heads, config.width], GATE);
    let bias = params.vector(format!("{name}.proj.bias"), config.heads, GATE);
    Arc::new(SigmoidGate { proj: [weight, bias] })
}

impl Gate for SigmoidGate {
    fn needs(&self, _: &ExpertMode) -> Needs {
        Needs::Gradient
    }

    fn weigh(&self, tape: &mut Tape<'_>, rows: &Reading<'_>, _: &ExpertMode) -> Option<Weighed> {
        let logits = linear(tape, rows.input(), self.proj);
        let weights = tape.sigmoid(&logits, SCALE);
        Some(Weighed { values: weights.tensor().clone(), weights })
    }
}
