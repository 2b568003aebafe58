//! Where numbers live. Today a device is the CPU with its recycled buffers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A place that holds tensors and runs ops. Cheap to clone; clones share their buffers.
#[derive(Clone, Default)]
pub struct Device {
    pool: Arc<Pool>,
}

impl Device {
    /// The CPU; ops use the threads of the current rayon pool.
    pub fn cpu() -> Self {
        Self::default()
    }

    /// What the device is, in words.
    pub fn describe(&self) -> String {
        format!("CPU, {} threads, {} products", rayon::current_num_threads(), crate::cpu::gemm::kernel_name())
    }

    /// A buffer of `len` values whose content is left over from earlier use: the caller writes all of it.
    pub(crate) fn scratch(&self, len: usize) -> Buffer {
        let mut data = self.pool.take(size_class(len));
        data.resize(len, 0.0);
        Buffer { data, pool: self.pool.clone() }
    }

    /// A buffer of `len` zeros.
    pub(crate) fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.scratch(len);
        buffer.fill(0.0);
        buffer
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

/// Capacities are rounded up to one of eight per doubling, so that batches of slightly different sizes share buffers.
fn size_class(len: usize) -> usize {
    let step = (len.next_power_of_two() / 16).max(64);
    len.next_multiple_of(step)
}

/// Freed buffers by capacity. A training step asks for the same sizes again and again; taking fresh pages from
/// the system each time costs more than many of the ops.
#[derive(Default)]
struct Pool {
    free: Mutex<BTreeMap<usize, Vec<Vec<f32>>>>,
}

impl Pool {
    /// A vector of this capacity, with whatever it held.
    fn take(&self, capacity: usize) -> Vec<f32> {
        let mut free = self.free.lock().expect("no op panics while it holds the pool");
        let reused = free.get_mut(&capacity).and_then(Vec::pop);
        reused.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    fn give(&self, data: Vec<f32>) {
        if data.capacity() > 0 {
            let mut free = self.free.lock().expect("no op panics while it holds the pool");
            free.entry(data.capacity()).or_default().push(data);
        }
    }
}

/// Exclusively owned values; they go back to the device's pool when dropped.
pub(crate) struct Buffer {
    data: Vec<f32>,
    pool: Arc<Pool>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.data));
    }
}

impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.data
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_when_they_fit() {
        let device = Device::cpu();
        let first = device.scratch(1000);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(device.scratch(980).as_ptr(), address);
        assert_ne!(device.scratch(10).as_ptr(), address);
        assert!(device.zeros(1000).iter().all(|&v| v == 0.0));
    }
}
