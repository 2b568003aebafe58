//! Time of a run over its sessions.

use std::path::Path;
use std::time::Instant;

use mae_data::files;
use mae_train::checkpoint::{self, RunState};
use mae_train::log::Event;
use mae_train::{TrainConfig, artifacts};

use crate::error::Result;

/// File in a run's folder: seconds of all sessions up to `checkpoint_last`.
const WALL: &str = "wall.json";

/// Counts the time of a run over its sessions, and estimates how much is left.
pub(crate) struct Clock<'a> {
    folder: &'a Path,
    begun: Instant,
    /// Seconds of earlier sessions, up to the checkpoint that this one resumes from.
    before: f64,
    /// Part of the budget that was used then, 0 to 1.
    part_before: f64,
    limits: [u64; 2],
    failed: Option<mae_data::Error>,
}

impl<'a> Clock<'a> {
    /// Starts the clock of the run in `folder`.
    pub(crate) fn start(folder: &'a Path, train: &TrainConfig) -> Result<Self> {
        let state = checkpoint::state(folder)?;
        let before = match (&state, std::fs::read_to_string(folder.join(WALL))) {
            (Some(_), Ok(text)) => serde_json::from_str(&text).unwrap_or(0.0),
            _ => 0.0,
        };
        let mut clock = Self {
            folder,
            begun: Instant::now(),
            before,
            part_before: 0.0,
            limits: [train.max_epoch, train.max_update],
            failed: None,
        };
        let RunState { epoch, counters, .. } = state.unwrap_or_default();
        clock.part_before = clock.part(epoch.saturating_sub(1), counters.updates);
        Ok(clock)
    }

    /// Part of the budget that so many epochs and updates are.
    fn part(&self, epochs: u64, updates: u64) -> f64 {
        let part = |done: u64, limit: u64| if limit > 0 { done as f64 / limit as f64 } else { 0.0 };
        part(epochs, self.limits[0]).max(part(updates, self.limits[1]))
    }

    /// Takes note of an event; returns the seconds that are left of the run, if the event allows an estimate.
    pub(crate) fn observe(&mut self, event: &Event) -> Option<f64> {
        match event {
            Event::Saved { folder, .. } if folder.ends_with(artifacts::LAST) => {
                let seconds = self.before + self.begun.elapsed().as_secs_f64();
                let written = files::write(self.folder.join(WALL), seconds.to_string().as_bytes());
                self.failed = self.failed.take().or(written.err());
                None
            }
            Event::Valid(valid) => {
                let part = self.part(valid.epoch, valid.num_updates);
                let gained = part - self.part_before;
                let left = self.begun.elapsed().as_secs_f64() * (1.0 - part) / gained;
                (gained > 0.0 && part < 1.0).then_some(left)
            }
            _ => None,
        }
    }

    /// Seconds of all sessions.
    pub(crate) fn finish(self) -> Result<f64> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let text = std::fs::read_to_string(self.folder.join(WALL));
        Ok(text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(self.before))
    }
}
