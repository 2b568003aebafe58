//! Time and arithmetic spent in products, for benchmarks. Two clock readings per product.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static FLOPS: AtomicU64 = AtomicU64::new(0);

/// Cost of products since [`meter_reset`].
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Wall-clock seconds, added up over calls.
    pub seconds: f64,
    /// Multiplications and additions.
    pub flops: f64,
}

/// Reads the meter.
pub fn meter() -> Meter {
    let seconds = NANOSECONDS.load(Ordering::Relaxed) as f64 * 1e-9;
    Meter { seconds, flops: FLOPS.load(Ordering::Relaxed) as f64 }
}

/// Sets the meter to zero.
pub fn meter_reset() {
    NANOSECONDS.store(0, Ordering::Relaxed);
    FLOPS.store(0, Ordering::Relaxed);
}

/// Counts a product until dropped.
pub(in crate::cpu) struct Running {
    begun: Instant,
    flops: usize,
}

pub(in crate::cpu) fn start(flops: usize) -> Running {
    Running { begun: Instant::now(), flops }
}

impl Drop for Running {
    fn drop(&mut self) {
        NANOSECONDS.fetch_add(self.begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        FLOPS.fetch_add(self.flops as u64, Ordering::Relaxed);
    }
}
