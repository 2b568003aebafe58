//! Which steps a batch gets.

use mae_model::config::System;

use crate::config::{Free, TrainConfig};

/// The steps of one update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// F step: everything but the gates, one drawn expert per row (plain attention for BASE).
    F,
    /// G step on the gates with the full mixture, then an F step on the same batch.
    GThenF,
    /// G step alone: nothing else is trained.
    G,
    /// Gates and the rest together, with the full mixture (NoBCD).
    Joint,
}

/// Algorithm 3 of the paper: an update of epoch `epoch` (from 1) gets a G step first if the epoch is a multiple of
/// `gate_every_epochs`. With `gate_every_updates`, the number of the update (from 1) decides instead. Where nothing but
/// gates is trained, every update is a G step.
pub fn steps(system: System, config: &TrainConfig, epoch: u64, update: u64) -> Steps {
    let multiple = |of: u64, n: u64| n > 0 && of.is_multiple_of(n);
    let gate_turn = match config.gate_every_updates {
        0 => multiple(epoch, config.gate_every_epochs),
        n => multiple(update, n),
    };
    match system {
        System::Base | System::Uniform => Steps::F,
        System::Nobcd => Steps::Joint,
        System::Mae if config.free == Free::Gates => Steps::G,
        System::Mae if gate_turn => Steps::GThenF,
        System::Mae => Steps::F,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_learn_in_every_fifth_epoch() {
        let config = TrainConfig::default();
        let g_epochs: Vec<u64> =
            (1..=12).filter(|&e| steps(System::Mae, &config, e, 1) == Steps::GThenF).collect();
        assert_eq!(g_epochs, [5, 10]);
        assert_eq!(steps(System::Nobcd, &config, 1, 1), Steps::Joint);
        assert_eq!(steps(System::Uniform, &config, 5, 1), Steps::F);
        let gates_alone = TrainConfig { free: Free::Gates, ..config.clone() };
        assert_eq!(steps(System::Mae, &gates_alone, 1, 1), Steps::G);
        let by_update = TrainConfig { gate_every_updates: 3, ..config };
        let g_updates: Vec<u64> =
            (1..=9).filter(|&u| steps(System::Mae, &by_update, 5, u) == Steps::GThenF).collect();
        assert_eq!(g_updates, [3, 6, 9]);
    }
}
