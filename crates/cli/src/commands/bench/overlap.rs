//! The sum of gradients over processes beside the step: one after the other, and at the same time.

use std::time::Duration;

use anyhow::Result;
use mae_data::PackedBatch;
use mae_engine::collective::{Overlap as When, Team};
use mae_model::Model;
use mae_train::Learner;
use mae_train::plan::StepKind;
use serde::Serialize;

use super::steps::{median, time};
use crate::training::ranks::DdpDtype;

/// Times of an update, in ms.
#[derive(Serialize)]
pub struct Overlap {
    step: &'static str,
    ranks: usize,
    /// Values of the gradients.
    values: usize,
    /// The step of one process, without a sum.
    step_ms: f64,
    sum_ms: f64,
    /// The sum after the backward pass, and while it goes on.
    after_ms: f64,
    during_ms: f64,
    /// Share of the sum that the update does not take longer for.
    hidden: Option<f64>,
    /// MiB of f32 of each slice, and the time from when it was complete to the end of the pass.
    slices: Vec<(f64, f64)>,
}

/// Measures a step. The learner keeps the team.
pub fn measure<M: Model>(
    learner: Learner<M>,
    team: &Team,
    data: &[PackedBatch],
    kind: StepKind,
    rounds: usize,
) -> Result<(Learner<M>, Overlap)> {
    let device = learner.model.params().device().clone();
    let values = learner.model.params().count(kind.groups());
    let timed = |mut learner: Learner<M>, team: Team| -> Result<(Learner<M>, f64)> {
        learner = learner.among(team);
        // A GPU runs every shape twice: once op by op, and once to capture it.
        for _ in 0..2 {
            time(&mut learner, if device.is_gpu() { data } else { &data[..1] }, kind.short())?;
        }
        let seconds = |_| Ok(time(&mut learner, data, kind.short())?.seconds / data.len() as f64);
        let times = (0..rounds.max(3)).map(seconds).collect::<Result<Vec<f64>>>()?;
        Ok((learner, 1e3 * median(times)))
    };
    team.host().barrier()?;
    let (learner, step_ms) = timed(learner, Team::alone())?;
    let sums = team.time_sums(&device, values, 6)?;
    let sum_ms = 1e3 * median(sums.iter().skip(1).map(Duration::as_secs_f64).collect());
    let (learner, after_ms) = timed(learner, team.clone().overlapping(When::Never))?;
    let (learner, during_ms) = timed(learner, team.clone().overlapping(When::Always))?;
    let slices = learner.slice_times().into_iter();
    let slices = slices.map(|(values, ms)| (4.0 * values as f64 / f64::from(1 << 20), ms)).collect();
    let hidden = (sum_ms > 0.01 * step_ms).then(|| (1.0 - (during_ms - step_ms) / sum_ms).clamp(0.0, 1.0));
    let (step, ranks) = (kind.short(), team.place().size);
    Ok((learner, Overlap { step, ranks, values, step_ms, sum_ms, after_ms, during_ms, hidden, slices }))
}

impl Overlap {
    /// Prints it.
    pub fn report(&self, variant: &str, dtype: DdpDtype, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("measurements can be written as JSON"));
            return;
        }
        let mib = (dtype.bytes() * self.values) as f64 / f64::from(1 << 20);
        println!(
            "{variant} {} step, {} rank{}, gradients of {mib:.1} MiB as {}: step alone {:.2} ms, sum alone {:.2} ms, one after \
             the other {:.2} ms, at the same time {:.2} ms{}",
            self.step,
            self.ranks,
            if self.ranks == 1 { "" } else { "s" },
            dtype.name(),
            self.step_ms,
            self.sum_ms,
            self.after_ms,
            self.during_ms,
            self.hidden
                .map_or_else(String::new, |hidden| format!(": {:.0} % of the sum hidden", 100.0 * hidden)),
        );
        let slices: Vec<_> = self.slices.iter().map(|(mib, ms)| format!("{mib:.1} MiB {ms:.2} ms")).collect();
        match slices.is_empty() {
            true => println!("  one process on a CPU has nothing to sum"),
            false => println!("  slices, complete before the end of the pass: {}", slices.join(", ")),
        }
    }
}
