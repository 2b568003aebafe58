//! Throughput of an engine, from which waiting times are estimated.

use std::time::Duration;

/// Busy time that a measurement covers.
const WINDOW: Duration = Duration::from_millis(250);

/// Share of a new measurement in the estimate.
const SHARE: f64 = 0.3;

/// Jobs at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Jobs waited for room: the engine did all it can.
    Full,
    /// The engine had room: it can do at least this much.
    Spare,
}

/// Jobs per second that an engine finishes when it is full.
#[derive(Debug, Default)]
pub struct Pace {
    finished: usize,
    busy: Duration,
    /// True if the engine had room in a step of the measurement that runs.
    had_room: bool,
    per_second: Option<f64>,
}

impl Pace {
    /// Takes note of a step.
    pub fn step(&mut self, took: Duration, finished: usize, pressure: Pressure) {
        self.busy += took;
        self.finished += finished;
        self.had_room |= pressure == Pressure::Spare;
        if self.busy < WINDOW || self.finished == 0 {
            return;
        }
        let measured = self.finished as f64 / self.busy.as_secs_f64();
        self.per_second = Some(match self.per_second {
            None => measured,
            Some(before) if self.had_room => before.max(measured),
            Some(before) => before + SHARE * (measured - before),
        });
        *self = Self { per_second: self.per_second, ..Self::default() };
    }

    /// Time until so many jobs are done; none before anything was measured.
    pub fn time_for(&self, jobs: usize) -> Duration {
        let seconds = self.per_second.map_or(0.0, |per_second| jobs as f64 / per_second);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_engine_tells_its_pace() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_for(1000), Duration::ZERO);
        for _ in 0..10 {
            pace.step(Duration::from_millis(25), 2, Pressure::Full);
        }
        assert_eq!(pace.time_for(800), Duration::from_secs(10));
        // With room to spare less is finished; that says nothing about what could be.
        pace.step(Duration::from_secs(1), 2, Pressure::Spare);
        assert_eq!(pace.time_for(800), Duration::from_secs(10));
        pace.step(Duration::from_secs(1), 200, Pressure::Spare);
        assert_eq!(pace.time_for(1000), Duration::from_secs(5));
        // It became slower; a step in which nothing ends belongs to the next.
        for _ in 0..40 {
            pace.step(Duration::from_secs(1), 0, Pressure::Full);
            pace.step(Duration::from_secs(1), 2, Pressure::Full);
        }
        assert!(pace.time_for(10).abs_diff(Duration::from_secs(10)) < Duration::from_millis(10));
    }
}
