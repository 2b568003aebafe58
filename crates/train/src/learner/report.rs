//! Reports of steps and updates, and updates whose report is still to come.

use mae_engine::optim::{LossAndNorm, Reading};
use serde::Serialize;

use super::Counters;
use crate::diagnosis::Diagnosis;
use crate::plan::StepKind;
use crate::{Error, Result};

/// Report of a step.
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

/// Report of an update.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UpdateReport {
    /// Its number, from 1.
    pub number: u64,
    /// Updates of the gates so far.
    pub gate_updates: u64,
    /// The G step before an F step, if there was one.
    pub gate: Option<StepReport>,
    /// Norm of the gradient of the gates, of updates with a G step.
    pub gate_norm: Option<f64>,
    /// The F step or joint step; the G step where nothing but gates is trained.
    pub main: StepReport,
    /// The learning rate of the main step.
    pub rate: f64,
    /// Sentences.
    pub sentences: u64,
    /// Source tokens.
    pub source_tokens: u64,
}

/// A step that was asked for; its device may still be at work.
pub(super) struct PendingStep {
    pub(super) kind: StepKind,
    pub(super) reading: Reading,
    pub(super) tokens: u64,
}

/// An update that was asked for.
pub struct PendingUpdate {
    pub(super) gate: Option<PendingStep>,
    pub(super) main: PendingStep,
    pub(super) number: u64,
    pub(super) gate_updates: u64,
    pub(super) epoch: u64,
    pub(super) rate: f64,
    pub(super) sentences: u64,
    pub(super) source_tokens: u64,
    pub(super) batches: u64,
    /// Name and numbers of the samples of its batches, for a failure.
    pub(super) samples: &'static str,
    pub(super) ids: Vec<u32>,
    /// The counters before it.
    pub(super) before: Counters,
}

impl PendingUpdate {
    /// Returns true if the report is here.
    pub fn is_ready(&self) -> bool {
        self.main.reading.is_ready()
    }

    /// The report, waiting for the device if need be. A loss or gradient that was not finite is an error; it has
    /// changed no parameter, and neither has any update after it.
    pub fn wait(self) -> Result<UpdateReport> {
        let gate = self.gate.as_ref().map(|step| self.report(step)).transpose()?;
        let main = self.report(&self.main)?;
        let alone = (self.main.kind == StepKind::G).then_some(main);
        Ok(UpdateReport {
            number: self.number,
            gate_updates: self.gate_updates,
            gate,
            gate_norm: gate.or(alone).map(|step| step.gradient_norm),
            main,
            rate: self.rate,
            sentences: self.sentences,
            source_tokens: self.source_tokens,
        })
    }

    fn report(&self, step: &PendingStep) -> Result<StepReport> {
        let LossAndNorm { loss, nll, norm } = step.reading.wait()?;
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                return Err(Error::NotFinite(Box::new(Diagnosis {
                    update: self.number,
                    epoch: self.epoch,
                    batches: [1, self.batches],
                    step: step.kind.name().into(),
                    what: what.into(),
                    value: value.to_string(),
                    last_loss: None,
                    samples: self.samples.into(),
                    sentences: self.ids.clone(),
                    before: self.before,
                    saved: None,
                })));
            }
        }
        Ok(StepReport { loss, nll, tokens: step.tokens, gradient_norm: norm })
    }
}
