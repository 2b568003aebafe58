//! L0 gates: one hard concrete number for each head, the same for all inputs, and a penalty on open heads (Voita et al.,
//! 2019). Formulas: [`mae_engine::ops::hard_concrete`].
//!
//! Training draws gates between closed (0) and open (1); evaluation uses the gates without noise, most of which end at
//! exactly 0 or 1, so that heads can be removed. Gates start open: with zeros as parameters every head weighs 1 in
//! evaluation, and a model computes what BASE does. They have the optimiser of gates (plain gradient descent by
//! default), whose steps compare the penalty with what a head is worth; Adam would see their signs alone.

use std::sync::Arc;

use mae_engine::ops::hard_concrete::{HardConcrete, Noise};
use mae_engine::{Device, ParamsBuilder, Tape};

use super::{Gate, Needs, Reading, Weighed};
use crate::attention::AttentionConfig;
use crate::config::GateReads;
use crate::groups::GATE;
use crate::pass::ExpertMode;
use crate::system::{GateKind, GateOptimizer, Layers, Mixes, Name, Spec, Start, Training};

/// The row of the table of systems.
pub(crate) const SYSTEM: Spec = Spec {
    key: "l0",
    title: "L0 gates",
    name: Name::Plain { name: "l0", dropped_heads: None, gate_input: GateReads::Mean },
    mixes: Mixes::Heads,
    training: Training::Joint(GateOptimizer::Own),
    gate: Some(GateKind {
        family: "l0",
        layers: Layers::NeutralWith("log_a"),
        start: Start::Neutral,
        check,
        declare,
    }),
};

/// log a of new gates: the smallest round number with which evaluation weighs a head exactly 1. Training closes such a
/// head in 4 of 100 draws.
const START: f32 = 2.5;

fn check(config: &AttentionConfig<'_>, require: &mut dyn FnMut(bool, String)) {
    let penalty = config.mixture.l0_penalty;
    require(
        penalty.is_finite() && penalty >= 0.0,
        format!("mixture.l0_penalty = {penalty} must be a finite number that is not negative"),
    );
}

#[derive(Debug)]
struct L0Gate(HardConcrete);

/// Declares the parameter `<name>.log_a.bias`, which is added to the log a of the start.
fn declare(
    params: &mut ParamsBuilder,
    name: &str,
    config: &AttentionConfig<'_>,
    _: &Device,
) -> Arc<dyn Gate> {
    let log_a = params.vector(format!("{name}.log_a.bias"), config.heads, GATE);
    Arc::new(L0Gate(HardConcrete { log_a, start: START, penalty: config.mixture.l0_penalty }))
}

impl Gate for L0Gate {
    fn needs(&self, _: &ExpertMode) -> Needs {
        Needs::Nothing
    }

    fn weigh(&self, tape: &mut Tape<'_>, rows: &Reading<'_>, mode: &ExpertMode) -> Option<Weighed> {
        let noise = match mode {
            ExpertMode::Given(draws) => Noise::Given(draws[rows.attention].clone()),
            _ => Noise::Drawn,
        };
        let weights = tape.hard_concrete(self.0, rows.count, &noise);
        Some(Weighed { values: weights.tensor().clone(), weights })
    }
}
