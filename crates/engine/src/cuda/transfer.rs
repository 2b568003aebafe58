//! Asynchronous copies between the host and the device, and marks in the stream.

use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::{result, sys};

use super::Gpu;
use super::memory::{Plain, Ptr};
use crate::{Error, Result};

/// Page-locked host memory, from and to which the device copies by itself.
struct Pinned {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory that the owner alone reads and writes.
unsafe impl Send for Pinned {}
// SAFETY: as above; what is shared is only read, after the copy to it has ended.
unsafe impl Sync for Pinned {}

impl Pinned {
    fn new(bytes: usize) -> Result<Self> {
        // SAFETY: freed once, when dropped.
        let address = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| Error::Gpu(format!("{bytes} bytes of page-locked host memory: {e}")))?;
        Ok(Self { address: address.cast(), bytes })
    }

    fn address(&self) -> *mut u8 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `malloc_host`; owners wait for the device before they drop it.
        unsafe { result::free_host(self.address.cast()) }.ok();
    }
}

/// A ring of page-locked buffers through which all uploads go, so that the host never waits for a copy unless it is
/// a whole ring ahead of the device.
#[derive(Default)]
pub(crate) struct Staging {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    slots: Vec<Slot>,
    next: usize,
}

/// Page-locked memory, and when the last copy from or to it ended.
struct Slot {
    memory: Pinned,
    copied: Event,
}

impl Slot {
    fn new(bytes: usize) -> Result<Self> {
        Ok(Self { memory: Pinned::new(bytes)?, copied: Event::new()? })
    }
}

/// A batch of a language model takes some twenty.
const SLOTS: usize = 64;
const SMALLEST_SLOT: usize = 1 << 16;

impl Staging {
    pub(super) fn upload(&self, gpu: &Gpu, to: u64, bytes: &[u8]) {
        let mut ring = self.ring.lock().expect("no upload panics");
        let at = ring.next % SLOTS;
        ring.next += 1;
        let copied = ring.slot(at, bytes.len()).and_then(|slot| {
            slot.copied.wait()?;
            // SAFETY: the slot is long enough, and the copy that used it before has ended.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.memory.address(), bytes.len()) };
            // SAFETY: the slot's memory stays alive and unchanged until the event says that the copy has ended.
            let from = unsafe { std::slice::from_raw_parts(slot.memory.address(), bytes.len()) };
            // SAFETY: the caller has checked that the destination is this long.
            unsafe { result::memcpy_htod_async(to, from, gpu.stream()) }.map_err(Error::driver("upload"))?;
            slot.copied.record(gpu.stream())
        });
        if let Err(error) = copied {
            gpu.fail(error);
        }
    }
}

impl Ring {
    /// Slot `at`, made or made larger if need be.
    fn slot(&mut self, at: usize, bytes: usize) -> Result<&mut Slot> {
        let fits = self.slots.get(at).is_some_and(|slot| slot.memory.bytes() >= bytes);
        if !fits {
            let slot = Slot::new(bytes.next_power_of_two().max(SMALLEST_SLOT))?;
            if at < self.slots.len() {
                self.slots[at].copied.wait()?;
                self.slots[at] = slot;
            } else {
                self.slots.push(slot);
            }
        }
        Ok(&mut self.slots[at])
    }
}

/// Page-locked memory of copies that were read, for the next ones: locking pages takes longer than copying them.
#[derive(Default)]
pub(crate) struct Arrivals {
    free: Mutex<Vec<Slot>>,
}

impl Arrivals {
    fn take(&self, bytes: usize) -> Result<Slot> {
        let mut free = self.lock();
        // The same things are copied again and again.
        match free.iter().position(|slot| slot.memory.bytes() == bytes) {
            Some(at) => Ok(free.swap_remove(at)),
            None => Slot::new(bytes),
        }
    }

    /// Unlocks unused memory.
    pub(crate) fn trim(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.free.lock().expect("nobody panics who takes or gives memory")
    }
}

/// Values on their way to the host.
pub(crate) struct Arrival {
    gpu: Arc<Gpu>,
    slot: Option<Slot>,
}

impl Arrival {
    /// Asks for a copy of `bytes` bytes from `from` on: what is there when all work asked for before is done. The host
    /// continues.
    pub(crate) fn of(gpu: &Arc<Gpu>, from: Ptr, bytes: usize) -> Result<Self> {
        // Before memory is locked: on any thread the GPU must be current.
        let ready = gpu.ready();
        let slot = gpu.arrivals.take(bytes)?;
        if ready {
            // SAFETY: the slot is this long; it lives, and nobody looks at it, until the event has passed.
            let target = unsafe { std::slice::from_raw_parts_mut(slot.memory.address(), bytes) };
            // SAFETY: callers give a range of a living block.
            let begun = unsafe { result::memcpy_dtoh_async(target, from.address(), gpu.stream()) };
            begun.map_err(Error::driver("a copy to the host"))?;
            slot.copied.record(gpu.stream())?;
        }
        Ok(Self { gpu: gpu.clone(), slot: Some(slot) })
    }

    pub(crate) fn has_come(&self) -> bool {
        self.gpu.ready() && self.slot.as_ref().is_some_and(|slot| slot.copied.passed())
    }

    /// The values, once they have come; on any thread.
    pub(crate) fn values<T: Plain>(&self) -> Result<&[T]> {
        self.gpu.ready();
        self.gpu.check()?;
        let slot = self.slot.as_ref().expect("it is given back when dropped");
        slot.copied.wait()?;
        let count = slot.memory.bytes() / size_of::<T>();
        // SAFETY: the copy has ended; page-locked memory is aligned to pages, and any bytes are plain numbers.
        Ok(unsafe { std::slice::from_raw_parts(slot.memory.address().cast(), count) })
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        // The device must not write to memory that somebody else has.
        if self.gpu.ready() && slot.copied.wait().is_ok() {
            self.gpu.arrivals.lock().push(slot);
        }
    }
}

/// A mark in the stream.
pub(crate) struct Event(sys::CUevent);

// SAFETY: CUDA's events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new() -> Result<Self> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Self).map_err(Error::driver("event"))
    }

    pub(crate) fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { result::event::record(self.0, stream) }.map_err(Error::driver("event"))
    }

    /// The same in the stream of a GPU. In a captured pass, every replay records it, and other streams can wait for it.
    pub(crate) fn mark(&self, gpu: &Gpu) -> Result<()> {
        if !gpu.is_capturing() {
            return self.record(gpu.stream());
        }
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are alive; the owner of the captured pass keeps the event.
        unsafe { sys::cuEventRecordWithFlags(self.0, gpu.stream(), external) }
            .result()
            .map_err(Error::driver("event"))
    }

    /// Lets work that `stream` is given from now on wait until the device has passed the mark.
    pub(crate) fn hold(&self, stream: sys::CUstream) -> Result<()> {
        let flags = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { result::stream::wait_event(stream, self.0, flags) }.map_err(Error::driver("event"))
    }

    /// Waits until the device has passed it; at once if it was never recorded.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: it is alive.
        unsafe { result::event::synchronize(self.0) }.map_err(Error::driver("the GPU's work"))
    }

    /// True if the device has passed it.
    pub(crate) fn passed(&self) -> bool {
        // SAFETY: it is alive.
        unsafe { result::event::query(self.0) }.is_ok()
    }

    /// Milliseconds from this mark to `later`, both passed.
    pub(crate) fn milliseconds_to(&self, later: &Self) -> f32 {
        // SAFETY: both are alive and were recorded.
        unsafe { result::event::elapsed(self.0, later.0) }.unwrap_or(f32::NAN)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: not used after this.
        unsafe { result::event::destroy(self.0) }.ok();
    }
}
