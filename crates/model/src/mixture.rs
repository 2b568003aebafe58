//! `[model.mixture]`: the system, and the keys of its gates.

use serde::{Deserialize, Serialize};

use crate::attention::AttentionConfig;
use crate::experts::Experts;
use crate::system::System;

/// Mixture of heads: the system and the keys of its gates. A system ignores keys that it does not use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// The system.
    #[serde(default)]
    pub system: System,
    /// t: heads that each expert leaves out.
    #[serde(default = "one")]
    pub dropped_heads: usize,
    /// Hidden width of gates over experts.
    #[serde(default = "gate_hidden")]
    pub gate_hidden: usize,
    /// Dropout inside gates over experts.
    #[serde(default = "gate_dropout")]
    pub gate_dropout: f32,
    /// Input of gates: a mean, which the next three keys specify, or each position by itself. Not written if it is the
    /// mean.
    #[serde(default, skip_serializing_if = "GateReads::is_mean")]
    pub gate_input: GateReads,
    /// Input of the gate of decoder self-attention.
    #[serde(default)]
    pub decoder_gate: DecoderGate,
    /// Number of inputs, the newest ones, that the running mean of causal gates is over; 0: all.
    #[serde(default)]
    pub gate_window: usize,
    /// Input of the gate of cross-attention.
    #[serde(default)]
    pub cross_gate: CrossGate,
    /// Unit that shares one draw.
    #[serde(default)]
    pub sampling_unit: SamplingUnit,
    /// MoH: heads that every row uses; 0: a quarter of them. Not written if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_heads: usize,
    /// MoH: heads that a row uses, the shared ones among them; 0: three quarters of them. Not written if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub active_heads: usize,
    /// MoH: factor of the balance loss. Not written if it is the default.
    #[serde(default = "balance_loss", skip_serializing_if = "is_usual_balance")]
    pub balance_loss: f32,
    /// L0: λ, the penalty on each open head. Not written if it is the default.
    #[serde(default = "l0_penalty", skip_serializing_if = "is_usual_penalty")]
    pub l0_penalty: f32,
}

fn l0_penalty() -> f32 {
    0.02
}

fn is_usual_penalty(value: &f32) -> bool {
    *value == l0_penalty()
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

fn balance_loss() -> f32 {
    0.01
}

fn is_usual_balance(value: &f32) -> bool {
    *value == balance_loss()
}

fn one() -> usize {
    1
}

fn gate_hidden() -> usize {
    256
}

fn gate_dropout() -> f32 {
    0.1
}

impl Default for Mixture {
    fn default() -> Self {
        Self {
            system: System::BASE,
            dropped_heads: one(),
            gate_hidden: gate_hidden(),
            gate_dropout: gate_dropout(),
            gate_input: GateReads::default(),
            decoder_gate: DecoderGate::default(),
            gate_window: 0,
            cross_gate: CrossGate::default(),
            sampling_unit: SamplingUnit::default(),
            shared_heads: 0,
            active_heads: 0,
            balance_loss: balance_loss(),
            l0_penalty: l0_penalty(),
        }
    }
}

impl Mixture {
    /// Keys that files hold only where their value is not this one.
    pub const UNWRITTEN: [(&str, &str); 5] = [
        ("gate_input", "mean"),
        ("shared_heads", "0"),
        ("active_heads", "0"),
        ("balance_loss", "0.01"),
        ("l0_penalty", "0.02"),
    ];

    /// The experts of an attention of `heads` heads; `None` for systems without.
    pub fn experts(&self, heads: usize) -> Option<Experts> {
        self.system.has_experts().then_some(Experts { heads, dropped: self.dropped_heads })
    }

    /// The name that a user gives this system of `heads` heads: `mae7`, `sigmoid`.
    pub fn name(&self, heads: usize) -> String {
        self.system.name(heads.saturating_sub(self.dropped_heads))
    }

    /// The keys that decide which parameters gates have and what they read, with their values.
    pub fn gate_keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = Vec::new();
        if self.system.has_experts() {
            keys.push(("mixture.dropped_heads", self.dropped_heads.to_string()));
            keys.push(("mixture.gate_hidden", self.gate_hidden.to_string()));
        }
        if self.system == System::MOH {
            keys.push(("mixture.shared_heads", self.shared_heads.to_string()));
            keys.push(("mixture.active_heads", self.active_heads.to_string()));
        }
        keys.push(("mixture.gate_input", lower(self.gate_input)));
        keys.push(("mixture.decoder_gate", lower(self.decoder_gate)));
        keys.push(("mixture.gate_window", self.gate_window.to_string()));
        keys.push(("mixture.cross_gate", lower(self.cross_gate)));
        keys
    }

    /// Tells `require` what must hold of these keys in an attention, and the fault where it does not.
    pub(crate) fn check(&self, attention: &AttentionConfig<'_>, require: &mut dyn FnMut(bool, String)) {
        let p = self.gate_dropout;
        require(
            (0.0..1.0).contains(&p),
            format!("mixture.gate_dropout = {p} must be at least 0 and below 1"),
        );
        require(
            self.gate_input == GateReads::Mean || self.decoder_gate == DecoderGate::Causal,
            "mixture.gate_input = \"position\" contradicts mixture.decoder_gate = \"whole\"".into(),
        );
        if let Some(gate) = self.system.gate() {
            (gate.check)(attention, require);
        }
    }
}

/// The name of a unit variant as a value of its key.
fn lower(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Input of gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateReads {
    /// A mean of the attention's inputs.
    #[default]
    Mean,
    /// The input of each position by itself; one gate per position, in the encoder too.
    Position,
}

impl GateReads {
    fn is_mean(&self) -> bool {
        *self == Self::Mean
    }

    /// Value of `model.mixture.gate_input`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Position => "position",
        }
    }
}

/// Input of the gate of decoder self-attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecoderGate {
    /// The running mean of its inputs up to each position; one gate per position.
    #[default]
    Causal,
    /// The mean of the whole target, as the paper words it: sees the future in training. Decoding uses the mean of
    /// existing content.
    Whole,
}

/// Input of the gate of cross-attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossGate {
    /// The queries, as decoder self-attention does.
    #[default]
    Query,
    /// The mean of the encoder's output; one gate per sentence.
    Source,
}

/// Unit that shares one draw of an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplingUnit {
    /// Each gate row draws for itself.
    #[default]
    Row,
    /// The rows of a sentence use one random number.
    Sentence,
}
