//! The gating function: pooled input → batch norm → linear → tanh → dropout → linear: logits over experts.

use mae_engine::ops::batch_norm::BatchNorm;
use mae_engine::ops::linear::Activation;
use mae_engine::{ParamId, ParamsBuilder, Tape, Var};

use crate::config::ModelConfig;
use crate::groups::{GATE, STATISTICS};

/// The gate of one attention.
#[derive(Clone, Debug)]
pub struct Gate {
    norm: BatchNorm,
    fc1: [ParamId; 2],
    fc2: [ParamId; 2],
    dropout: f32,
}

impl Gate {
    /// Declares the parameters `<name>.{norm,fc1,fc2}.*`.
    pub fn declare(params: &mut ParamsBuilder, name: &str, config: &ModelConfig) -> Self {
        let (width, hidden, experts) =
            (config.encoder_embed_dim, config.mixture.gate_hidden, config.experts().count());
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
        Self {
            norm,
            fc1: linear("fc1", hidden, width),
            fc2: linear("fc2", experts, hidden),
            dropout: config.mixture.gate_dropout,
        }
    }

    /// Pooled inputs `[n, D]` to logits `[n, experts]`.
    pub fn logits(&self, tape: &mut Tape<'_>, pooled: &Var) -> Var {
        let rows = tape.batch_norm(pooled, self.norm);
        let hidden = tape.linear(&rows, self.fc1[0], self.fc1[1], Activation::Tanh, self.dropout);
        tape.linear(&hidden, self.fc2[0], self.fc2[1], Activation::Identity, 0.0)
    }
}
