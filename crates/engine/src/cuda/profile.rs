//! Times of kernels and products: two marks in the stream around each, while a profile is taken.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Gpu;
use super::transfer::Event;

/// Times of one kernel or product.
#[derive(Clone, Debug)]
pub struct OpTime {
    /// The kernel, or the product with its sizes.
    pub name: String,
    /// Number of runs.
    pub count: usize,
    /// Milliseconds in all.
    pub milliseconds: f64,
}

/// Measurements so far.
#[derive(Default)]
pub(crate) struct Profile {
    on: AtomicBool,
    spans: Mutex<Vec<(String, Event, Event)>>,
}

impl Gpu {
    /// True while a profile is taken; then nothing is captured or replayed.
    pub(crate) fn is_profiling(&self) -> bool {
        self.profile.on.load(Ordering::Relaxed)
    }

    /// Runs `work`, timed under `name` if somebody measures.
    pub(crate) fn timed<R>(&self, name: impl FnOnce() -> String, work: impl FnOnce() -> R) -> R {
        if !self.is_profiling() {
            return work();
        }
        let marks = Event::new().and_then(|begin| Ok((begin, Event::new()?)));
        let Ok((begin, end)) = marks else { return work() };
        begin.record(self.stream()).ok();
        let done = work();
        end.record(self.stream()).ok();
        self.profile.spans.lock().expect("no op panics while it is timed").push((name(), begin, end));
        done
    }

    /// Runs `work` op by op and gives the time of each, the longest first.
    pub(crate) fn profile<R>(&self, work: impl FnOnce() -> R) -> (R, Vec<OpTime>) {
        self.profile.on.store(true, Ordering::Relaxed);
        let done = work();
        self.profile.on.store(false, Ordering::Relaxed);
        self.wait();
        let spans = std::mem::take(&mut *self.profile.spans.lock().expect("no op panics while it is timed"));
        let mut times: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for (name, begin, end) in spans {
            let slot = times.entry(name).or_default();
            slot.0 += 1;
            slot.1 += f64::from(begin.milliseconds_to(&end));
        }
        let mut times: Vec<OpTime> = times
            .into_iter()
            .map(|(name, (count, milliseconds))| OpTime { name, count, milliseconds })
            .collect();
        times.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        (done, times)
    }
}
