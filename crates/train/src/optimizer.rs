//! The optimiser of everything but gates that have one of their own, with its memory.

use mae_engine::collective::Team;
use mae_engine::optim::{Adam, Moments, Nag, StepNumbers, Velocity};
use mae_engine::{Gradients, GroupId, HostCopy, Params};
use mae_model::groups;
use mae_model::system::GateOptimizer;

use crate::config::{OptimizerKind, TrainConfig};
use crate::{Error, Result};

/// An optimiser with what it remembers of each group that is trained: all, or the slice of this rank.
pub struct Optimizer {
    kind: Kind,
    /// Ranks that share the memory.
    shards: Option<Team>,
}

enum Kind {
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
        let kind = match config.optimizer {
            OptimizerKind::Adam => {
                let [beta1, beta2] = config.adam_betas;
                let adam = Adam { beta1, beta2, epsilon: config.adam_eps, weight_decay };
                Kind::Adam(adam, trained.map(|group| Moments::new(params, group)).collect())
            }
            OptimizerKind::Nag => {
                let nag = Nag { momentum: config.momentum, weight_decay };
                Kind::Nag(nag, trained.map(|group| Velocity::new(params, group)).collect())
            }
        };
        Self { kind, shards: None }
    }

    /// Leaves each rank the memory of its slice of the parameters, which it alone steps from now on: a third of the memory of
    /// training with Adam is divided by the number of ranks. For CPUs.
    pub fn shard(&mut self, params: &Params, team: &Team) {
        if team.place().is_alone() {
            return;
        }
        let slice = |group: GroupId| team.slice(params.group_len(group));
        match &mut self.kind {
            Kind::Adam(_, moments) => moments.iter_mut().for_each(|m| m.keep(slice(m.group()))),
            Kind::Nag(_, velocities) => velocities.iter_mut().for_each(|v| v.keep(slice(v.group()))),
        }
        self.shards = Some(team.clone());
    }

    /// Returns true if ranks share the memory: then [`Self::memory`] is a call of all.
    pub fn is_sharded(&self) -> bool {
        self.shards.is_some()
    }

    fn groups(&self) -> Vec<GroupId> {
        match &self.kind {
            Kind::Adam(_, moments) => moments.iter().map(Moments::group).collect(),
            Kind::Nag(_, velocities) => velocities.iter().map(Velocity::group).collect(),
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
    ) -> Result<()> {
        match &mut self.kind {
            Kind::Adam(adam, moments) => {
                moments.iter_mut().for_each(|m| adam.step(params, gradients, m, rate, number, numbers));
            }
            Kind::Nag(nag, velocities) => {
                velocities.iter_mut().for_each(|v| nag.step(params, gradients, v, rate, numbers));
            }
        }
        if let Some(team) = &self.shards {
            self.groups().into_iter().try_for_each(|group| team.collect_group(params, group))?;
        }
        Ok(())
    }

    /// Returns its memory by name, without waiting for the device. Ranks that share it all call this.
    pub fn memory(&self, params: &Params) -> Result<Vec<(String, HostCopy)>> {
        let mut memory = Vec::new();
        let whole = |group: GroupId, copy: HostCopy| -> Result<HostCopy> {
            let Some(team) = &self.shards else { return Ok(copy) };
            Ok(HostCopy::here(team.join(copy.values()?, params.group_len(group))?))
        };
        match &self.kind {
            Kind::Adam(_, moments) => {
                for m in moments {
                    for (part, copy) in PARTS.into_iter().zip(m.copies()?) {
                        memory.push((name(m.group(), part), whole(m.group(), copy)?));
                    }
                }
            }
            Kind::Nag(_, velocities) => {
                for v in velocities {
                    memory.push((name(v.group(), VELOCITY), whole(v.group(), v.copy()?)?));
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
        match &mut self.kind {
            Kind::Adam(_, moments) => moments.iter_mut().try_for_each(|m| {
                let [first, second] = PARTS.map(|part| name(m.group(), part));
                fits(m.set(&read(&first)?, &read(&second)?), first)
            }),
            Kind::Nag(_, velocities) => velocities.iter_mut().try_for_each(|v| {
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
