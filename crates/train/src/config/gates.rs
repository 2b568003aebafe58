//! Values of the keys that decide how gates are trained.

use serde::{Deserialize, Serialize};

/// Training of the gates: the paper's, or a control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateTraining {
    /// By their gradient.
    #[default]
    Learned,
    /// Not at all: gates keep their initial values, so experts are chosen at random, but always alike for the same input.
    Frozen,
    /// By their gradient with a random sign for each component: steps of the same sizes in random directions.
    RandomSigns,
}

/// Optimiser of the gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateOptimizerKind {
    /// Plain gradient descent, as in the paper.
    #[default]
    Sgd,
    /// Nesterov's momentum, with `gate_momentum`.
    Momentum,
    /// Adam, with `adam_betas` and `adam_eps`.
    Adam,
}

/// Rate of the gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRate {
    /// `gate_lr` in every update.
    #[default]
    Constant,
    /// `gate_lr` times the rate of the rest.
    Schedule,
}

/// Initial values of gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateInit {
    /// Those of the system. Gates over experts start with random values, so with favourites.
    #[default]
    Default,
    /// Zeros in the last layer: all experts weigh the same.
    Zero,
}
