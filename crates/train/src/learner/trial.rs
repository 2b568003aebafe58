//! A pass that shows whether the memory suffices, and leaves no trace.

use mae_data::PackedBatch;
use mae_engine::Rng;
use mae_model::{Config, Model, groups};

use super::{First, Learner};
use crate::Result;
use crate::plan::step_kinds;

impl<M: Model> Learner<M> {
    /// Forward and backward over `batch` with every kind of step that this run takes, to see whether the memory
    /// suffices. Parameters, statistics, counters and random numbers stay as they are.
    pub fn try_out(&mut self, batch: &PackedBatch) -> Result<()> {
        let kinds = step_kinds(self.model.config().mixture().system, &self.config);
        let params = self.model.params();
        let device = params.device().clone();
        let kept = params.named().filter(|p| p.group == groups::STATISTICS).map(|p| p.name.to_owned());
        let kept: Vec<(String, Vec<f32>)> =
            kept.map(|name| Ok((name.clone(), params.get(&name)?))).collect::<Result<_>>()?;
        let rng = Rng::new(self.config.seed, u32::MAX);
        let weight = 1.0 / batch.tgt_tokens().max(1) as f32;
        // On a GPU the second pass of a kind is captured, which takes memory of its own.
        let passes = if device.is_gpu() { 2 } else { 1 };
        for &kind in kinds {
            for _ in 0..passes {
                self.one_pass(batch, (kind, First::Yes), (rng, weight), &[])?;
                device.wait()?;
            }
        }
        for (name, values) in kept {
            self.model.params_mut().set(&name, &values)?;
        }
        Ok(())
    }
}
