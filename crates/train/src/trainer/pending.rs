//! Updates that were queued and not reported yet.

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
    /// Number, G steps and rate of the last update that was reported.
    newest: Option<(u64, u64, f64)>,
    log_interval: u64,
}

impl Pending {
    pub(super) fn new(config: &TrainConfig) -> Self {
        let log_interval = config.log_interval;
        Self { updates: VecDeque::new(), last: Instant::now(), newest: None, log_interval }
    }

    /// Adds an update, which comes after so many updates and batches of the epoch.
    pub(super) fn add(&mut self, update: PendingUpdate, before: [u64; 2]) {
        self.updates.push_back((update, before));
    }

    /// Leaves out the time until now, which was not spent on updates.
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
            state.gate_norm = report.gate_norm.or(state.gate_norm);
            self.last = now;
            self.newest = Some((report.number, report.gate_updates, report.rate));
            if state.window.updates() >= self.log_interval {
                self.tell_window(state, tell)?;
            }
        }
        Ok(())
    }

    /// Reports all updates and logs those that are in no line yet, because the epoch or the run ends.
    pub(super) fn report_all(
        &mut self,
        state: &mut RunState,
        tell: &mut impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        self.report(0, state, tell)?;
        if state.window.updates() > 0 { self.tell_window(state, tell) } else { Ok(()) }
    }

    fn tell_window(&self, state: &mut RunState, tell: &mut impl FnMut(Event) -> Result<()>) -> Result<()> {
        // Nothing new after a resume: sums that were not logged then wait for the next update.
        let Some((number, gate_updates, rate)) = self.newest else { return Ok(()) };
        tell(Event::Train(state.window.line(state.epoch, number, gate_updates, rate)))
    }
}
