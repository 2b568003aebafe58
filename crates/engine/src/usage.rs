//! Counts of the memory that a device's buffers take.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a pool of buffers: taken from the system, in somebody's hands, and the most that ever were.
#[derive(Default)]
pub(crate) struct Usage {
    held: AtomicUsize,
    in_use: AtomicUsize,
    peak: AtomicUsize,
}

impl Usage {
    /// The pool took `bytes` from the system.
    pub(crate) fn grow(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The pool returned `bytes` to the system.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The pool handed out `bytes`.
    pub(crate) fn take(&self, bytes: usize) {
        let now = bytes + self.in_use.fetch_add(bytes, Ordering::Relaxed);
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// The pool got `bytes` back.
    pub(crate) fn give(&self, bytes: usize) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes taken from the system, in use or free.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The most bytes in use at once since the last [`Usage::reset_peak`].
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The peak restarts, with what is in use now.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.in_use.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
