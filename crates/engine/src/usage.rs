//! Counts of the memory that a device's buffers take.

/// Bytes of a pool of buffers.
#[derive(Default)]
pub(crate) struct Usage {
    /// Taken from the system, in use or free.
    pub(crate) held: usize,
    /// In somebody's hands.
    in_use: usize,
    /// The most in use at once since the last [`Usage::reset_peak`].
    pub(crate) peak: usize,
}

impl Usage {
    /// The pool took `bytes` from the system.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.held += bytes;
    }

    /// The pool returned `bytes` to the system.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// The pool handed out `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.in_use += bytes;
        self.peak = self.peak.max(self.in_use);
    }

    /// The pool got `bytes` back.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.in_use -= bytes;
    }

    /// The peak restarts, with what is in use now.
    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.in_use;
    }
}
