//! The steps that a batch gets.

use mae_engine::GroupSet;
use mae_model::system::{System, Training};
use mae_model::{ExpertMode, groups};

use crate::config::{Free, TrainConfig};

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Everything but the gates, one drawn expert per row.
    F,
    /// The gates, with the full mixture.
    G,
    /// Gates and the rest together, with the full mixture.
    Joint,
}

impl StepKind {
    /// The groups that it trains, unless they are frozen.
    pub fn groups(self) -> GroupSet {
        match self {
            Self::F => groups::all_but_gates(),
            Self::G => groups::gates(),
            Self::Joint => groups::trained(),
        }
    }

    /// Combination of experts in this step.
    pub fn mode(self) -> ExpertMode {
        match self {
            Self::F => ExpertMode::Sample,
            Self::G | Self::Joint => ExpertMode::Mix,
        }
    }

    /// Its name in tables.
    pub fn short(self) -> &'static str {
        match self {
            Self::F => "F",
            Self::G => "G",
            Self::Joint => "joint",
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::F => "F step",
            Self::G => "G step",
            Self::Joint => "joint step",
        }
    }
}

/// Every kind of step that a run of `system` takes.
pub fn step_kinds(system: System, config: &TrainConfig) -> &'static [StepKind] {
    match system.training() {
        Training::Rest => &[StepKind::F],
        Training::Joint(_) => &[StepKind::Joint],
        Training::Alternating if config.free == Free::Gates => &[StepKind::G],
        Training::Alternating => &[StepKind::F, StepKind::G],
    }
}

/// The steps of one update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// F step: everything but the gates, one drawn expert per row (plain attention for BASE).
    F,
    /// G step on the gates with the full mixture, then an F step on the same batch.
    GThenF,
    /// G step alone: nothing else is trained.
    G,
    /// Gates and the rest together, with the full mixture.
    Joint,
}

/// Steps of an update. Systems that alternate follow Algorithm 3 of the paper: an update of epoch `epoch` (from 1) gets a
/// G step first if the epoch is a multiple of `gate_every_epochs`. With `gate_every_updates`, the number of the update
/// (from 1) decides instead. Where nothing but gates is trained, every update is a G step.
pub fn steps(system: System, config: &TrainConfig, epoch: u64, update: u64) -> Steps {
    let multiple = |of: u64, n: u64| n > 0 && of.is_multiple_of(n);
    let gate_turn = match config.gate_every_updates {
        0 => multiple(epoch, config.gate_every_epochs),
        n => multiple(update, n),
    };
    match system.training() {
        Training::Rest => Steps::F,
        Training::Joint(_) => Steps::Joint,
        Training::Alternating if config.free == Free::Gates => Steps::G,
        Training::Alternating if gate_turn => Steps::GThenF,
        Training::Alternating => Steps::F,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_learn_in_every_fifth_epoch() {
        let config = TrainConfig::default();
        let g_epochs: Vec<u64> =
            (1..=12).filter(|&e| steps(System::MAE, &config, e, 1) == Steps::GThenF).collect();
        assert_eq!(g_epochs, [5, 10]);
        assert_eq!(steps(System::NOBCD, &config, 1, 1), Steps::Joint);
        assert_eq!(steps(System::UNIFORM, &config, 5, 1), Steps::F);
        let gates_alone = TrainConfig { free: Free::Gates, ..config.clone() };
        assert_eq!(steps(System::MAE, &gates_alone, 1, 1), Steps::G);
        let by_update = TrainConfig { gate_every_updates: 3, ..config };
        let g_updates: Vec<u64> =
            (1..=9).filter(|&u| steps(System::MAE, &by_update, 5, u) == Steps::GThenF).collect();
        assert_eq!(g_updates, [3, 6, 9]);
    }
}
