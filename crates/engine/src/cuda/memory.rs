//! Device memory: recycled blocks, and reading and writing them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::result;

use super::Gpu;
use crate::usage::Usage;
use crate::{Error, Result};

/// An address in a block of device memory; null where an argument is absent.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr(u64);

impl Ptr {
    pub(crate) const NULL: Self = Self(0);

    /// The number that CUDA knows it by.
    pub(crate) fn address(self) -> u64 {
        self.0
    }

    /// Any address, for tests that use none.
    #[cfg(test)]
    pub(crate) fn at(address: u64) -> Self {
        Self(address)
    }

    /// The address `bytes` further on.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Type of a value in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// Bytes of one value.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Source of an allocation. A captured graph holds addresses, so what is made during a capture must
/// never be handed out to anybody else; graphs run one after the other and can share among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arena {
    /// Ops that run at once.
    Eager,
    /// Ops that are being captured.
    Graphs,
}

/// Free blocks by size, and what has been taken from the device in all.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<[BTreeMap<usize, Vec<u64>>; 2]>,
    usage: Mutex<Usage>,
    /// 256 plus the byte that new blocks are filled with, or 0.
    filling: AtomicU32,
}

#[cfg(feature = "suite")]
const FILLED: u32 = 0x100;

/// Blocks are rounded up to one of eight sizes per doubling.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 16).max(512);
    bytes.next_multiple_of(step)
}

impl Pool {
    fn take(&self, arena: Arena, bytes: usize) -> Result<u64> {
        let class = size_class(bytes);
        let reused = self.lock()[arena as usize].get_mut(&class).and_then(Vec::pop);
        if let Some(address) = reused {
            self.usage().take(class);
            return Ok(address);
        }
        // SAFETY: the address is used only through `Block`, which keeps to its size.
        let fresh = unsafe { result::malloc_sync(class) };
        let fresh = fresh.or_else(|_| {
            self.trim();
            // SAFETY: as above.
            unsafe { result::malloc_sync(class) }
        });
        let address = fresh.map_err(|_| out_of_memory(class))?;
        self.usage().grow(class);
        self.usage().take(class);
        Ok(address)
    }

    fn give(&self, arena: Arena, bytes: usize, address: u64) {
        let class = size_class(bytes);
        self.usage().give(class);
        self.lock()[arena as usize].entry(class).or_default().push(address);
    }

    /// Returns the free blocks of the eager arena to the device.
    fn trim(&self) {
        let eager = std::mem::take(&mut self.lock()[Arena::Eager as usize]);
        for (class, addresses) in eager {
            for address in addresses {
                // SAFETY: a free block is in nobody's hands; the driver waits for work that still uses it.
                if unsafe { result::free_sync(address) }.is_ok() {
                    self.usage().shrink(class);
                }
            }
        }
    }

    /// From now on new blocks are filled with `byte`, so that the kernel suite sees what no kernel has written.
    #[cfg(feature = "suite")]
    pub(crate) fn fill_new_blocks(&self, byte: u8) {
        self.filling.store(FILLED | u32::from(byte), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, [BTreeMap<usize, Vec<u64>>; 2]> {
        self.free.lock().expect("no op panics while it holds the pool")
    }

    pub(crate) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().expect("nobody panics while counting")
    }
}

fn out_of_memory(needed: usize) -> Error {
    let (free, total) = result::mem_get_info().unwrap_or((0, 0));
    Error::OutOfMemory { needed, free, total }
}

/// A block of device memory; it goes back to its pool when dropped.
pub(crate) struct Block {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
    arena: Arena,
}

impl Block {
    /// `bytes` bytes with whatever they held. When there is no memory left, the GPU fails (see [`Gpu::check`]) and
    /// the block is null.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Self {
        let arena = if gpu.is_capturing() { Arena::Graphs } else { Arena::Eager };
        let address = match gpu.ready() {
            true => gpu.pool.take(arena, bytes.max(1)).unwrap_or_else(|error| {
                gpu.fail(error);
                0
            }),
            false => 0,
        };
        let filling = gpu.pool.filling.load(Ordering::Relaxed);
        if filling != 0 && gpu.ready() {
            let class = size_class(bytes.max(1));
            // SAFETY: a block is as long as its size class.
            gpu.note(unsafe { result::memset_d8_async(address, filling as u8, class, gpu.stream()) });
        }
        Self { gpu: gpu.clone(), address, bytes, arena }
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(crate) fn ptr(&self) -> Ptr {
        Ptr(self.address)
    }

    /// Sets all bytes to 0, in stream order.
    pub(crate) fn clear(&self) {
        self.gpu.clear(self.ptr(), self.bytes);
    }

    /// Copies plain values to the device from byte `at` on, in stream order; `values` may be changed at once.
    pub(crate) fn write<T: Plain>(&self, at: usize, values: &[T]) {
        assert!(at + size_of_val(values) <= self.bytes, "a copy stays inside its block");
        if self.gpu.ready() && !values.is_empty() {
            self.gpu.staging.upload(&self.gpu, self.address + at as u64, bytes_of(values));
        }
    }

    /// Copies values back from byte `at` on, waiting for the device.
    pub(crate) fn read<T: Plain>(&self, at: usize, values: &mut [T]) {
        assert!(at + size_of_val(values) <= self.bytes, "a copy stays inside its block");
        if self.gpu.ready() && !values.is_empty() {
            // SAFETY: both sides are this long; the stream is waited for before `values` is looked at.
            let copied =
                unsafe { result::memcpy_dtoh_async(values, self.address + at as u64, self.gpu.stream()) };
            self.gpu.note(copied);
            self.gpu.wait();
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.address != 0 {
            self.gpu.pool.give(self.arena, self.bytes.max(1), self.address);
        }
    }
}

/// Values that are the same bytes on both sides.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u16 {}
impl Plain for u32 {}

fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain numbers have no padding, and any of their bytes is a byte.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
