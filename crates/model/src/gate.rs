//! The gating function: pooled input → batch norm → linear → tanh → dropout → linear: logits over experts.

use mae_engine::ops::batch_norm::BatchNorm;
use mae_engine::ops::mixture::{GateNetwork, HeadMix, Pick};
use mae_engine::{ParamsBuilder, Tape, Tensor, Var};

use crate::groups::{GATE, STATISTICS};
use crate::stack::StackConfig;

/// The gate of one attention.
#[derive(Clone, Debug)]
pub struct Gate {
    norm: BatchNorm,
    network: GateNetwork,
}

impl Gate {
    /// Declares the parameters `<name>.{norm,fc1,fc2}.*`.
    pub fn declare(params: &mut ParamsBuilder, name: &str, config: &StackConfig<'_>) -> Self {
        let (width, hidden, experts) = (config.width, config.mixture.gate_hidden, config.experts().count());
        let norm = BatchNorm {
            weight: params.vector(format!("{name}.norm.weight"), width, GATE),
            bias: params.vector(format!("{name}.norm.bias"), width, GATE),
            running_mean: params.vector(format!("{name}.norm.running_mean"), width, STATISTICS),
            running_var: params.vector(format!("{name}.norm.running_var"), width, STATISTICS),
        };
        let mut linear = |part: &str, rows: usize, cols: usize| {
            [
                params.matrix(format!("{name}.{part}.weight"), [rows, cols], GATE),
                params.vector(format!("{name}.{part}.bias"), rows, GATE),
            ]
        };
        let network = GateNetwork {
            fc1: linear("fc1", hidden, width),
            fc2: linear("fc2", experts, hidden),
            dropout: config.mixture.gate_dropout,
        };
        Self { norm, network }
    }

    /// Pooled inputs `[n, D]` to head weights: of all experts by the gate, or of the one that `pick` says, without a
    /// gradient to the gate.
    pub fn mix(&self, tape: &mut Tape<'_>, pooled: &Var, experts: &Tensor, pick: Option<&Pick>) -> HeadMix {
        let rows = tape.batch_norm(pooled, self.norm);
        match pick {
            Some(pick) => tape.pick_by_gate(&rows, &self.network, experts, pick),
            None => {
                let logits = tape.gate_logits(&rows, &self.network);
                tape.mix_experts(&logits, experts)
            }
        }
    }
}
