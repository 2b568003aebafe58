//! Sums over the updates between two lines of the log.

use serde::{Deserialize, Serialize};

use super::TrainLine;
use crate::learner::UpdateReport;

/// Sums since the last line; part of the saved state, so that a resumed run writes the same lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    updates: u64,
    loss: f64,
    nll: f64,
    tokens: u64,
    gate_loss: f64,
    gate_tokens: u64,
    #[serde(default)]
    gate_steps: u64,
    #[serde(default)]
    gate_norm: f64,
    gradient_norm: f64,
    sentences: u64,
    seconds: f64,
}

impl Window {
    /// Adds an update that took `seconds`.
    pub fn add(&mut self, report: &UpdateReport, seconds: f64) {
        self.updates += 1;
        self.loss += report.main.loss;
        self.nll += report.main.nll;
        self.tokens += report.main.tokens;
        if let Some(gate) = report.gate {
            self.gate_loss += gate.loss;
            self.gate_tokens += gate.tokens;
        }
        if let Some(norm) = report.gate_norm {
            self.gate_steps += 1;
            self.gate_norm += norm;
        }
        self.gradient_norm += report.main.gradient_norm;
        self.sentences += report.sentences;
        self.seconds += seconds;
    }

    /// Number of updates in the window.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns the line for these updates and empties the window.
    pub fn line(&mut self, epoch: u64, num_updates: u64, gate_updates: u64, lr: f64) -> TrainLine {
        let window = std::mem::take(self);
        let bits = |sum: f64, tokens: u64| sum / tokens as f64 / std::f64::consts::LN_2;
        let per_update = |sum: f64| sum / window.updates as f64;
        let nll_loss = bits(window.nll, window.tokens);
        TrainLine {
            epoch,
            num_updates,
            gate_updates,
            loss: bits(window.loss, window.tokens),
            nll_loss,
            ppl: nll_loss.exp2(),
            gate_loss: (window.gate_tokens > 0).then(|| bits(window.gate_loss, window.gate_tokens)),
            gate_gnorm: (window.gate_steps > 0).then(|| window.gate_norm / window.gate_steps as f64),
            lr,
            gnorm: per_update(window.gradient_norm),
            wpb: per_update(window.tokens as f64),
            bsz: per_update(window.sentences as f64),
            wps: window.tokens as f64 / window.seconds.max(1e-9),
            seconds: window.seconds,
        }
    }
}
