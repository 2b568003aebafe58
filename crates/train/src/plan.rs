//! The steps that a batch gets.

use mae_engine::GroupSet;
use mae_model::system::{GateOptimizer, System, Training};
use mae_model::{ExpertMode, groups};

use crate::config::{Free, GateTraining, TrainConfig};

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Everything but the gates, one drawn expert per row.
    F,
    /// The gates, with the full mixture.
    G,
    /// Gates and the rest together, with the full mixture.
    Joint,
    /// Everything but the gates, with the full mixture.
    Held,
}

impl StepKind {
    /// The groups that it trains, unless they are frozen.
    pub fn groups(self) -> GroupSet {
        match self {
            Self::F | Self::Held => groups::all_but_gates(),
            Self::G => groups::gates(),
            Self::Joint => groups::trained(),
        }
    }

    /// Combination of experts in this step.
    pub fn mode(self) -> ExpertMode {
        match self {
            Self::F => ExpertMode::Sample,
            Self::G | Self::Joint | Self::Held => ExpertMode::Mix,
        }
    }

    /// Its name in tables.
    pub fn short(self) -> &'static str {
        match self {
            Self::F => "F",
            Self::G => "G",
            Self::Joint => "joint",
            Self::Held => "held",
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::F => "F step",
            Self::G => "G step",
            Self::Joint => "joint step",
            Self::Held => "joint step without gates",
        }
    }
}

/// Every kind of step that a run of `system` takes.
pub fn step_kinds(system: System, config: &TrainConfig) -> &'static [StepKind] {
    let frozen = config.gate_training == GateTraining::Frozen;
    match system.training() {
        Training::Rest => &[StepKind::F],
        Training::Joint(GateOptimizer::Shared) => &[StepKind::Joint],
        Training::Joint(GateOptimizer::Own) if frozen => &[StepKind::Held],
        Training::Joint(GateOptimizer::Own) if config.joint_gate_every_updates > 1 => {
            &[StepKind::Joint, StepKind::Held]
        }
        Training::Joint(GateOptimizer::Own) => &[StepKind::Joint],
        Training::Alternating if config.free == Free::Gates => &[StepKind::G],
        Training::Alternating if frozen => &[StepKind::F],
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
    /// Everything but the gates, with the full mixture.
    Held,
}

/// Steps of an update. Systems that alternate follow Algorithm 3 of the paper: an update of epoch `epoch` (from 1) gets a
/// G step first if the epoch is a multiple of `gate_every_epochs`. With `gate_every_updates`, the number of the update
/// (from 1) decides instead. Where nothing but gates is trained, every update is a G step. Systems that train gates and
/// the rest jointly hold the gates in updates that are no multiple of `joint_gate_every_updates`. Frozen gates are never
/// trained.
pub fn steps(system: System, config: &TrainConfig, epoch: u64, update: u64) -> Steps {
    let multiple = |of: u64, n: u64| n > 0 && of.is_multiple_of(n);
    let gate_turn = match config.gate_every_updates {
        0 => multiple(epoch, config.gate_every_epochs),
        n => multiple(update, n),
    };
    let frozen = config.gate_training == GateTraining::Frozen;
    let joint_turn = !frozen && multiple(update, config.joint_gate_every_updates);
    match system.training() {
        Training::Rest => Steps::F,
        Training::Joint(GateOptimizer::Own) if !joint_turn => Steps::Held,
        Training::Joint(_) => Steps::Joint,
        Training::Alternating if config.free == Free::Gates => Steps::G,
        Training::Alternating if gate_turn && !frozen => Steps::GThenF,
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
        let held = TrainConfig { joint_gate_every_updates: 3, ..config.clone() };
        let joint: Vec<u64> =
            (1..=7).filter(|&u| steps(System::NOBCD, &held, 5, u) == Steps::Joint).collect();
        assert_eq!((joint, steps(System::NOBCD, &held, 5, 1)), (vec![3, 6], Steps::Held));
        let frozen = TrainConfig { gate_training: GateTraining::Frozen, ..config.clone() };
        assert_eq!(steps(System::MAE, &frozen, 5, 1), Steps::F);
        assert_eq!(steps(System::NOBCD, &frozen, 5, 1), Steps::Held);
        let by_update = TrainConfig { gate_every_updates: 3, ..config };
        let g_updates: Vec<u64> =
            (1..=9).filter(|&u| steps(System::MAE, &by_update, 5, u) == Steps::GThenF).collect();
        assert_eq!(g_updates, [3, 6, 9]);
    }
}
