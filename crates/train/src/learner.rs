//! One update. Algorithm 1 (G step): the full mixture, gradient to the gates. Algorithm 2 (F step): one drawn expert
//! per row, gradient to everything else.

use mae_data::PackedBatch;
use mae_engine::optim::{self, Adam, Moments};
use mae_engine::{Gradients, GroupSet, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::groups;
use mae_model::{DeviceBatch, ExpertMode, Translator};
use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;
use crate::plan::Steps;
use crate::{Error, Result, schedule};

/// A model being trained: parameters, gradients, moments and the counters that everything random depends on.
pub struct Learner {
    /// The model.
    pub model: Translator,
    config: TrainConfig,
    gradients: Gradients,
    moments: Vec<Moments>,
    counters: Counters,
}

/// What an update's randomness and schedule depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Finished updates of everything but the gates.
    pub updates: u64,
    /// Finished updates of the gates.
    pub gate_updates: u64,
    /// Forward passes in training so far: each has random numbers of its own.
    pub passes: u32,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Smoothed loss, summed over target tokens, in nats.
    pub loss: f64,
    /// Negative log likelihood, summed over target tokens, in nats.
    pub nll: f64,
    /// Target tokens.
    pub tokens: u64,
    /// Norm of the gradient of the mean loss, before clipping.
    pub gradient_norm: f64,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UpdateReport {
    /// The G step, if there was one.
    pub gate: Option<StepReport>,
    /// The F step or joint step.
    pub main: StepReport,
    /// The learning rate of everything but the gates.
    pub rate: f64,
    /// Sentences.
    pub sentences: u64,
    /// Source tokens.
    pub source_tokens: u64,
}

impl Learner {
    /// A model before its first update.
    pub fn new(model: Translator, config: &TrainConfig) -> Self {
        let params = model.params();
        let gradients = params.gradients();
        let moments =
            [groups::ATTENTION_OUTPUT, groups::REST].map(|group| Moments::new(params, group)).into();
        Self { model, config: config.clone(), gradients, moments, counters: Counters::default() }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes counters from a checkpoint.
    pub fn set_counters(&mut self, counters: Counters) {
        self.counters = counters;
    }

    /// Adam's moments, by group.
    pub fn moments(&self) -> &[Moments] {
        &self.moments
    }

    /// Adam's moments, to be read back.
    pub fn moments_mut(&mut self) -> &mut [Moments] {
        &mut self.moments
    }

    /// One update on the batches together, their loss divided by all their target tokens. A loss or gradient that
    /// is not finite is an error and changes no parameter of the step.
    pub fn update(&mut self, batches: &[PackedBatch], steps: Steps, epoch: u64) -> Result<UpdateReport> {
        let gate = match steps {
            Steps::GThenF => Some(self.gate_step(batches, epoch)?),
            Steps::F | Steps::Joint => None,
        };
        let (mode, free) = match steps {
            Steps::F | Steps::GThenF => (ExpertMode::Sample, groups::all_but_gates()),
            Steps::Joint => (ExpertMode::Mix, groups::trained()),
        };
        let main = self.pass(batches, &mode, free, epoch)?;
        let rate = schedule::inverse_sqrt(&self.config, self.counters.updates);
        self.clip();
        let [beta1, beta2] = self.config.adam_betas;
        let adam =
            Adam { beta1, beta2, epsilon: self.config.adam_eps, weight_decay: self.config.weight_decay };
        let t = self.counters.updates + 1;
        for moments in &mut self.moments {
            adam.step(self.model.params_mut(), &self.gradients, moments, rate as f32, t);
        }
        if steps == Steps::Joint {
            optim::sgd(self.model.params_mut(), &self.gradients, groups::GATE, self.config.gate_lr);
            self.counters.gate_updates += 1;
        }
        self.counters.updates = t;
        Ok(UpdateReport {
            gate,
            main,
            rate,
            sentences: batches.iter().map(|b| b.sentences() as u64).sum(),
            source_tokens: batches.iter().map(|b| b.src_tokens() as u64).sum(),
        })
    }

    /// A G step alone: the gates take one step of plain SGD on the mean loss of the full mixture.
    pub fn gate_step(&mut self, batches: &[PackedBatch], epoch: u64) -> Result<StepReport> {
        let report = self.pass(batches, &ExpertMode::Mix, groups::gates(), epoch)?;
        optim::sgd(self.model.params_mut(), &self.gradients, groups::GATE, self.config.gate_lr);
        self.counters.gate_updates += 1;
        Ok(report)
    }

    /// Forward and backward over all batches; leaves the gradient of the mean loss of `free` parameters.
    fn pass(
        &mut self,
        batches: &[PackedBatch],
        mode: &ExpertMode,
        free: GroupSet,
        epoch: u64,
    ) -> Result<StepReport> {
        let tokens: usize = batches.iter().map(PackedBatch::tgt_tokens).sum();
        let weight = 1.0 / tokens as f32;
        let mut report = StepReport { loss: 0.0, nll: 0.0, tokens: tokens as u64, gradient_norm: 0.0 };
        self.gradients.clear();
        for batch in batches {
            let device_batch = DeviceBatch::new(self.model.params().device(), batch);
            let rng = Rng::new(self.config.seed, self.counters.passes);
            self.counters.passes = self.counters.passes.wrapping_add(1);
            let mut tape = Tape::training(self.model.params(), &mut self.gradients, free, rng);
            let mut pass = Pass { tape: &mut tape, mode, probe: None };
            let sums = self.model.loss(&mut pass, &device_batch, self.config.label_smoothing, weight);
            let updates = tape.backward();
            report.loss += sums.smoothed();
            report.nll += sums.nll();
            self.require_finite("loss", report.loss, batches, epoch)?;
            self.model.params_mut().apply(updates);
        }
        self.gradients.check_complete(free)?;
        report.gradient_norm = optim::norm(self.model.params(), &self.gradients, free);
        self.require_finite("gradient norm", report.gradient_norm, batches, epoch)?;
        Ok(report)
    }

    /// Scales the gradients of everything but the gates down to the configured norm.
    fn clip(&mut self) {
        let limit = self.config.clip_norm;
        if limit > 0.0 {
            let norm = optim::norm(self.model.params(), &self.gradients, groups::all_but_gates());
            let factor = (limit / (norm + 1e-6)).min(1.0) as f32;
            optim::scale(self.model.params(), &mut self.gradients, groups::all_but_gates(), factor);
        }
    }

    fn require_finite(
        &self,
        what: &'static str,
        value: f64,
        batches: &[PackedBatch],
        epoch: u64,
    ) -> Result<()> {
        if value.is_finite() {
            return Ok(());
        }
        let sentences = batches.iter().flat_map(|b| b.ids.iter().copied()).take(20).collect();
        Err(Error::NotFinite { update: self.counters.updates + 1, epoch, what, value, sentences })
    }
}
