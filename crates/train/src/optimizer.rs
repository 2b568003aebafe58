//! The optimiser of everything but gates that have one of their own, with its memory.

use mae_engine::optim::{Adam, Moments, Nag, StepNumbers, Velocity};
use mae_engine::{Gradients, GroupId, HostCopy, Params};
use mae_model::groups;
use mae_model::system::GateOptimizer;

use crate::config::{OptimizerKind, TrainConfig};
use crate::{Error, Result};

/// An optimiser with what it remembers of each group that is trained.
pub enum Optimizer {
    /// Adam.
    Adam(Adam, Vec<Moments>),
    /// Nesterov's accelerated gradient.
    Nag(Nag, Vec<Velocity>),
}

impl Optimizer {
    /// Before the first step.
    pub fn new(config: &TrainConfig, params: &Params, gates: GateOptimizer) -> Self {
        let stepped = match gates {
            GateOptimizer::Own => &[groups::ATTENTION_OUTPUT, groups::REST][..],
            GateOptimizer::Shared => &[groups::GATE, groups::ATTENTION_OUTPUT, groups::REST],
        };
        let trained = stepped.iter().copied().filter(|&group| config.free.groups().contains(group));
        let weight_decay = config.weight_decay;
        match config.optimizer {
            OptimizerKind::Adam => {
                let [beta1, beta2] = config.adam_betas;
                let adam = Adam { beta1, beta2, epsilon: config.adam_eps, weight_decay };
                Self::Adam(adam, trained.map(|group| Moments::new(params, group)).collect())
            }
            OptimizerKind::Nag => {
                let nag = Nag { momentum: config.momentum, weight_decay };
                Self::Nag(nag, trained.map(|group| Velocity::new(params, group)).collect())
            }
        }
    }

    /// Steps all groups; `number` is that of the update, from 1.
    pub fn step(
        &mut self,
        params: &mut Params,
        gradients: &Gradients,
        rate: f32,
        number: u64,
        numbers: &StepNumbers,
    ) {
        match self {
            Self::Adam(adam, moments) => {
                moments.iter_mut().for_each(|m| adam.step(params, gradients, m, rate, number, numbers));
            }
            Self::Nag(nag, velocities) => {
                velocities.iter_mut().for_each(|v| nag.step(params, gradients, v, rate, numbers));
            }
        }
    }

    /// Returns its memory by name, without waiting for the device.
    pub fn memory(&self) -> Result<Vec<(String, HostCopy)>> {
        let mut memory = Vec::new();
        match self {
            Self::Adam(_, moments) => {
                for m in moments {
                    memory.extend(PARTS.map(|part| name(m.group(), part)).into_iter().zip(m.copies()?));
                }
            }
            Self::Nag(_, velocities) => {
                for v in velocities {
                    memory.push((name(v.group(), VELOCITY), v.copy()?));
                }
            }
        }
        Ok(memory)
    }

    /// Takes back what [`Self::memory`] gave. `read` finds it by name; `fault` makes an error of the name of a part
    /// that has the wrong size.
    pub fn remember(
        &mut self,
        read: impl Fn(&str) -> Result<Vec<f32>>,
        fault: impl Fn(String) -> Error,
    ) -> Result<()> {
        let fits = |fits: bool, name: String| {
            if fits { Ok(()) } else { Err(fault(name)) }
        };
        match self {
            Self::Adam(_, moments) => moments.iter_mut().try_for_each(|m| {
                let [first, second] = PARTS.map(|part| name(m.group(), part));
                fits(m.set(&read(&first)?, &read(&second)?), first)
            }),
            Self::Nag(_, velocities) => velocities.iter_mut().try_for_each(|v| {
                let name = name(v.group(), VELOCITY);
                fits(v.set(&read(&name)?), name)
            }),
        }
    }
}

/// Adam's moments.
pub(crate) const PARTS: [&str; 2] = ["first", "second"];
/// NAG's memory.
pub(crate) const VELOCITY: &str = "velocity";

/// Name of a part of the memory of a group, in files.
pub(crate) fn name(group: GroupId, part: &str) -> String {
    let group = groups::ALL.iter().find(|(id, _)| *id == group).map_or("unknown", |(_, name)| name);
    format!("{group}.{part}")
}
