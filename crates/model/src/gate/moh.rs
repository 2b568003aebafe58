//! MoH: mixture-of-head attention (Jin et al., 2024). Some heads are shared by all rows; of the others, the routed
//! ones, each row uses the few whose logits are largest. Formulas: [`mae_engine::ops::routing`].
//!
//! There is no bias, as in the authors' code, and its factors are kept, which their paper leaves out: equal logits weigh
//! every head in use 1. A balance loss keeps routed heads in use. Heads are left out from the first step on, so that
//! there are no parameters with which a model computes what BASE does, unless all heads are active.

use std::sync::Arc;

use mae_engine::ops::project::Orientation;
use mae_engine::ops::routing::Routing;
use mae_engine::{Device, ParamId, ParamsBuilder, Tape};

use super::{Gate, Needs, Reading, Weighed};
use crate::attention::AttentionConfig;
use crate::config::{GateReads, Mixture};
use crate::groups::GATE;
use crate::pass::ExpertMode;
use crate::system::{GateKind, GateOptimizer, Layers, Mixes, Name, Spec, Start, Training};

/// The row of the table of systems.
pub(crate) const SYSTEM: Spec = Spec {
    key: "moh",
    title: "MoH",
    name: Name::Plain { name: "moh", dropped_heads: None, gate_input: GateReads::Position },
    mixes: Mixes::Heads,
    training: Training::Joint(GateOptimizer::Shared),
    gate: Some(GateKind {
        family: "moh",
        layers: Layers::NeverNeutral,
        start: Start::Random,
        check,
        declare,
    }),
};

impl Mixture {
    /// Shared heads and active routed heads of MoH, of `heads` heads.
    pub fn routed(&self, heads: usize) -> [usize; 2] {
        let or = |given: usize, default: usize| if given > 0 { given } else { default };
        let shared = or(self.shared_heads, heads.div_ceil(4));
        let active = or(self.active_heads, (3 * heads).div_ceil(4));
        [shared, active.saturating_sub(shared)]
    }
}

fn check(config: &AttentionConfig<'_>, require: &mut dyn FnMut(bool, String)) {
    let (heads, mixture) = (config.heads, config.mixture);
    let [shared, routed] = mixture.routed(heads);
    require(
        routed > 0 && shared < heads && shared + routed <= heads,
        format!(
            "mixture.shared_heads = {shared} and mixture.active_heads = {} must be numbers with 0 < shared_heads < \
             active_heads ≤ {heads}, the heads of an attention",
            if mixture.active_heads > 0 { mixture.active_heads } else { shared + routed },
        ),
    );
    let balance = mixture.balance_loss;
    require(
        balance.is_finite() && balance >= 0.0,
        format!("mixture.balance_loss = {balance} must be a finite number that is not negative"),
    );
}

#[derive(Debug)]
struct MohGate {
    /// W_s, W_g and W_0, one on top of the other, `[H + 2, D]`.
    weight: ParamId,
    routing: Routing,
}

/// Declares the parameters `<name>.{shared,routed,between}.weight`.
fn declare(
    params: &mut ParamsBuilder,
    name: &str,
    config: &AttentionConfig<'_>,
    _: &Device,
) -> Arc<dyn Gate> {
    let (heads, width) = (config.heads, config.width);
    let [shared, active] = config.mixture.routed(heads);
    let parts = [("shared", shared), ("routed", heads - shared), ("between", 2)];
    let parts = parts.map(|(part, rows)| (format!("{name}.{part}.weight"), vec![rows, width]));
    let weight = params.block(parts.into(), width, GATE);
    Arc::new(MohGate { weight, routing: Routing { shared, active, balance: config.mixture.balance_loss } })
}

impl Gate for MohGate {
    fn needs(&self, _: &ExpertMode) -> Needs {
        Needs::Gradient
    }

    fn weigh(&self, tape: &mut Tape<'_>, rows: &Reading<'_>, _: &ExpertMode) -> Option<Weighed> {
        let logits = tape.project(rows.input(), self.weight, Orientation::Straight, 0.0);
        let weights = tape.route_heads(&logits, self.routing, rows.sentences);
        Some(Weighed { values: weights.tensor().clone(), weights })
    }
}
