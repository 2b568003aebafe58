//! Updates that were asked for and not reported yet.

use std::collections::VecDeque;
use std::time::Instant;

use crate::checkpoint::RunState;
use crate::config::TrainConfig;
use crate::learner::PendingUpdate;
use crate::log::Event;
use crate::{Error, Result};

pub(super) struct Pending {
    /// With the updates and batches of the epoch before each.
    updates: VecDeque<(PendingUpdate, [u64; 2])>,
    /// When the last report came.
    last: Instant,
    log_interval: u64,
}

impl Pending {
    pub(super) fn new(config: &TrainConfig) -> Self {
        Self { updates: VecDeque::new(), last: Instant::now(), log_interval: config.log_interval }
    }

    /// An update was asked for, after so many updates and batches of the epoch.
    pub(super) fn add(&mut self, update: PendingUpdate, before: [u64; 2]) {
        self.updates.push_back((update, before));
    }

    /// The time until now was spent on something else than updates.
    pub(super) fn forget_time(&mut self) {
        self.last = Instant::now();
    }

    /// Reports updates that are done, and waits until no more than `most` are not. When one has failed, the state is
    /// set back to before it.
    pub(super) fn report(
        &mut self,
        most: usize,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        while self.updates.len() > most || self.updates.front().is_some_and(|(update, _)| update.is_ready()) {
            let Some((update, [position, batches])) = self.updates.pop_front() else { break };
            let report = update.wait().map_err(|error| match error {
                Error::NotFinite(mut diagnosis) => {
                    // So far counted in the update.
                    diagnosis.batches = diagnosis.batches.map(|n| batches + n);
                    diagnosis.last_loss = state.last_loss;
                    (state.counters, state.position) = (diagnosis.before, position);
                    state.batches = Some(batches);
                    Error::NotFinite(diagnosis)
                }
                other => other,
            })?;
            let now = Instant::now();
            state.window.add(&report, (now - self.last).as_secs_f64());
            state.last_loss = Some(report.main.loss / report.main.tokens as f64 / std::f64::consts::LN_2);
            self.last = now;
            if state.window.updates() >= self.log_interval {
                let line = state.window.line(state.epoch, report.number, report.gate_updates, report.rate);
                tell(Event::Train(line))?;
            }
        }
        Ok(())
    }
}
