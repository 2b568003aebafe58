//! The optimiser of the gates in G steps and joint steps, with its memory.

use mae_engine::optim::{self, Adam, Moments, Nag, StepNumbers, Velocity};
use mae_engine::{Gradients, HostCopy, Params};
use mae_model::groups::GATE;

use crate::config::{GateOptimizerKind, TrainConfig};
use crate::optimizer::{PARTS, VELOCITY, name};
use crate::{Error, Result};

/// An optimiser of gates with what it remembers.
pub enum GateOptimizer {
    /// Plain gradient descent.
    Sgd,
    /// Nesterov's momentum.
    Momentum(Nag, Velocity),
    /// Adam.
    Adam(Adam, Moments),
}

impl GateOptimizer {
    /// Before the first step. There is no decay: it would pull gates towards equal experts.
    pub fn new(config: &TrainConfig, params: &Params) -> Self {
        match config.gate_optimizer {
            GateOptimizerKind::Sgd => Self::Sgd,
            GateOptimizerKind::Momentum => {
                let nag = Nag { momentum: config.gate_momentum, weight_decay: 0.0 };
                Self::Momentum(nag, Velocity::new(params, GATE))
            }
            GateOptimizerKind::Adam => {
                let [beta1, beta2] = config.adam_betas;
                let adam = Adam { beta1, beta2, epsilon: config.adam_eps, weight_decay: 0.0 };
                Self::Adam(adam, Moments::new(params, GATE))
            }
        }
    }

    /// Steps the gates; `number` is that of the step, from 1. Gates are never clipped: `numbers` are those of a pass
    /// without a limit.
    pub fn step(
        &mut self,
        params: &mut Params,
        gradients: &Gradients,
        rate: f32,
        number: u64,
        numbers: &StepNumbers,
    ) {
        match self {
            Self::Sgd => optim::sgd(params, gradients, GATE, rate, numbers),
            Self::Momentum(nag, velocity) => nag.step(params, gradients, velocity, rate, numbers),
            Self::Adam(adam, moments) => adam.step(params, gradients, moments, rate, number, numbers),
        }
    }

    /// Returns its memory by name, without waiting for the device.
    pub fn memory(&self) -> Result<Vec<(String, HostCopy)>> {
        Ok(match self {
            Self::Sgd => Vec::new(),
            Self::Momentum(_, velocity) => vec![(name(GATE, VELOCITY), velocity.copy()?)],
            Self::Adam(_, moments) => {
                PARTS.map(|part| name(GATE, part)).into_iter().zip(moments.copies()?).collect()
            }
        })
    }

    /// Takes back what [`Self::memory`] gave; the arguments are those of
    /// [`Optimizer::remember`](crate::optimizer::Optimizer::remember).
    pub fn remember(
        &mut self,
        read: impl Fn(&str) -> Result<Vec<f32>>,
        fault: impl Fn(String) -> Error,
    ) -> Result<()> {
        let (fits, name) = match self {
            Self::Sgd => return Ok(()),
            Self::Momentum(_, velocity) => {
                let name = name(GATE, VELOCITY);
                (velocity.set(&read(&name)?), name)
            }
            Self::Adam(_, moments) => {
                let [first, second] = PARTS.map(|part| name(GATE, part));
                (moments.set(&read(&first)?, &read(&second)?), first)
            }
        };
        if fits { Ok(()) } else { Err(fault(name)) }
    }
}
