//! The time of a run over its sittings.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use mae_model::folder::write_aside;
use mae_train::TrainConfig;
use mae_train::checkpoint::{self, RunState};
use mae_train::log::Event;

use crate::columns::duration;

/// In a run's folder: seconds of all sittings up to `checkpoint_last`.
const WALL: &str = "wall.json";

/// Counts the time of a run over its sittings, and says how much is left.
pub struct Clock<'a> {
    folder: &'a Path,
    begun: Instant,
    /// Seconds of earlier sittings, up to the checkpoint that this one goes on from.
    before: f64,
    /// The part of the budget that was used then, 0 to 1.
    part_before: f64,
    limits: [u64; 2],
    failed: Option<anyhow::Error>,
}

impl<'a> Clock<'a> {
    /// Of a sitting of the run in `folder` that begins now.
    pub fn start(folder: &'a Path, train: &TrainConfig) -> Result<Self> {
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

    /// The part of the budget that so many epochs and updates are.
    fn part(&self, epochs: u64, updates: u64) -> f64 {
        let part = |done: u64, limit: u64| if limit > 0 { done as f64 / limit as f64 } else { 0.0 };
        part(epochs, self.limits[0]).max(part(updates, self.limits[1]))
    }

    /// Looks at an event; sometimes there is something to say.
    pub fn see(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Saved { folder, .. } if folder.ends_with(checkpoint::LAST) => {
                let seconds = self.before + self.begun.elapsed().as_secs_f64();
                let written = write_aside(&self.folder.join(WALL), seconds.to_string().as_bytes());
                self.failed = self.failed.take().or(written.err().map(Into::into));
                None
            }
            Event::Valid(valid) => {
                let part = self.part(valid.epoch, valid.num_updates);
                let gained = part - self.part_before;
                let left = self.begun.elapsed().as_secs_f64() * (1.0 - part) / gained;
                (gained > 0.0 && part < 1.0).then(|| format!("about {} left of this run", duration(left)))
            }
            _ => None,
        }
    }

    /// Seconds of all sittings.
    pub fn finish(self) -> Result<f64> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let text = std::fs::read_to_string(self.folder.join(WALL));
        Ok(text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(self.before))
    }
}
