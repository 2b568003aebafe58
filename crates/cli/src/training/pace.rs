//! The time that an epoch takes, told after its first updates, and signs of life between lines of the log.

use std::time::{Duration, Instant};

use crate::columns::duration;

/// Updates after which the time of an epoch is estimated; the first one, which warms up, does not count.
const FIRST: u64 = 10;
/// Time after which fewer updates must do.
const SOON: Duration = Duration::from_secs(10);
/// Longest silence where there is no progress bar.
const SILENCE: Duration = Duration::from_secs(30);

/// The pace of a run.
#[derive(Default)]
pub struct Pace {
    epoch: u64,
    /// Updates of the epoch.
    updates: u64,
    /// Updates after the first one of this session, and the time then.
    since: Option<(u64, Instant)>,
    /// Time of the last line.
    told: Option<Instant>,
    /// Whether the time of an epoch was told.
    estimated: bool,
}

impl Pace {
    /// An epoch begins, or continues after `done` updates.
    pub fn begin(&mut self, epoch: u64, updates: u64, done: u64) {
        (self.epoch, self.updates) = (epoch, updates);
        self.since = self.estimated.then(|| (done, Instant::now()));
        self.told = Some(Instant::now());
    }

    /// A line was printed.
    pub fn told(&mut self) {
        self.told = Some(Instant::now());
    }

    /// Counts an update, and returns a line if there is something to tell.
    pub fn update(&mut self, done: u64, without_bar: bool) -> Option<String> {
        let (first, begin) = *self.since.get_or_insert((done, Instant::now()));
        let (made, took) = (done.saturating_sub(first), begin.elapsed());
        let each = took.as_secs_f64() / made.max(1) as f64;
        let (epoch, updates) = (self.epoch, self.updates);
        if !self.estimated && made > 0 && (made >= FIRST || took >= SOON) {
            (self.estimated, self.told) = (true, Some(Instant::now()));
            return Some(format!(
                "epoch {epoch} update {done} of {updates}: {each:.2} s per update, about {} per epoch",
                duration(each * updates as f64)
            ));
        }
        if without_bar && made > 0 && self.told.is_some_and(|told| told.elapsed() >= SILENCE) {
            self.told = Some(Instant::now());
            let left = duration(each * updates.saturating_sub(done) as f64);
            return Some(format!(
                "epoch {epoch} update {done} of {updates}: about {left} left of this epoch"
            ));
        }
        None
    }
}
