//! NVIDIA GPUs. Everything but sums over ranks runs on one stream, in the order of the calls; the host waits only where
//! numbers are read back.
//!
//! | room | what is in it |
//! |---|---|
//! | `library` | CUDA's libraries, found at run time |
//! | `compile` | kernels: embedded text, NVRTC, the cache on disk |
//! | `memory` | recycled device memory |
//! | `transfer` | copies from and to page-locked memory, events |
//! | `kernel` | kernels as types: parameters declared once, compared with the CUDA sources by a test |
//! | `launch` | launches, and the structs that many kernels take |
//! | `product` | matrix products by cuBLASLt |
//! | `profile` | the time of each kernel and product |
//! | `graph` | passes captured once and replayed |
//! | `sums` | sums of gradients, collected in a backward pass |
//! | `halves` | values as bfloat16 and back |
//! | `together` | weight gradients of a backward pass, computed at once |
//!
//! Errors stick: the first one is kept, nothing is done after it, and [`crate::Device::check`] returns it. So ops
//! return no results and do not wait for the device.

pub mod compile;
pub(crate) mod graph;
pub(crate) mod halves;
pub(crate) mod kernel;
pub(crate) mod launch;
pub mod library;
pub(crate) mod memory;
pub(crate) mod product;
pub mod profile;
pub(crate) mod sums;
pub(crate) mod together;
pub(crate) mod transfer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use cudarc::driver::{result, sys};

use self::compile::Unit;
use self::launch::Function;
use self::memory::{Block, Dtype, Pool, Ptr};
use self::product::Products;
use self::profile::Profile;
use self::transfer::{Arrivals, Staging};
use crate::{Error, Result};

/// Kernels use bfloat16 tensor cores, which came with this compute capability.
const OLDEST: [i32; 2] = [8, 0];

/// One GPU.
pub(crate) struct Gpu {
    ordinal: usize,
    name: String,
    capability: [i32; 2],
    multiprocessors: usize,
    context: sys::CUcontext,
    stream: sys::CUstream,
    act: Dtype,
    pub(crate) pool: Pool,
    staging: Staging,
    arrivals: Arrivals,
    modules: Mutex<HashMap<Unit, sys::CUmodule>>,
    functions: Mutex<HashMap<(Unit, &'static str), Function>>,
    products: Products,
    profile: Profile,
    live: OnceLock<Block>,
    capturing: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

// SAFETY: the handles may be used from any thread once the context is current there, which `ready` sees to.
unsafe impl Send for Gpu {}
// SAFETY: as above; what changes is behind mutexes and atomics.
unsafe impl Sync for Gpu {}

/// A number in device memory that changes from step to step, so that one captured graph serves all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// The step of the random numbers, u32.
    Step,
    /// The factor of the loss' gradient, f32.
    LossWeight,
    /// The factor of losses of gates, f32.
    OwnLossFactor,
    /// The step size of Adam or NAG, then its decay, f32.
    StepSize,
    StepDecay,
    /// The rate of plain gradient descent, f32.
    SgdRate,
}

const LIVE_VALUES: usize = 16;

/// Properties of a GPU.
#[derive(Clone, Debug)]
pub struct GpuInfo {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Compute capability.
    pub capability: [i32; 2],
    /// Bytes of memory.
    pub memory: usize,
    /// Bytes of it that are free.
    pub free: usize,
    /// The newest CUDA version that the driver knows, `[major, minor]`.
    pub driver: [i32; 2],
}

/// The GPUs of this machine; an error says why there are none.
pub fn gpus() -> Result<Vec<GpuInfo>> {
    library::require(&["libcuda"])?;
    let none = |error: result::DriverError| Error::NoGpu(format!("the CUDA driver does not start: {error}"));
    result::init().map_err(none)?;
    let count = result::device::get_count().map_err(none)?;
    (0..count).map(|ordinal| info(ordinal).map_err(none)).collect()
}

fn info(ordinal: i32) -> std::result::Result<GpuInfo, result::DriverError> {
    let device = result::device::get(ordinal)?;
    let mut driver = 0;
    // SAFETY: `driver` and `device` are valid.
    unsafe { sys::cuDriverGetVersion(&mut driver) }.result()?;
    Ok(GpuInfo {
        ordinal: ordinal as usize,
        name: result::device::get_name(device)?,
        capability: capability(device)?,
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }?,
        free: 0,
        driver: [driver / 1000, driver % 1000 / 10],
    })
}

fn capability(device: sys::CUdevice) -> std::result::Result<[i32; 2], result::DriverError> {
    use sys::CUdevice_attribute_enum as Attribute;
    // SAFETY: `device` is valid.
    let get = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    Ok([
        get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ])
}

fn multiprocessors(device: sys::CUdevice) -> std::result::Result<usize, result::DriverError> {
    use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    // SAFETY: `device` is valid.
    let count = unsafe { result::device::get_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) }?;
    Ok(usize::try_from(count).unwrap_or(1).max(1))
}

impl Gpu {
    /// Opens GPU number `ordinal`; activations are of type `act`.
    pub(crate) fn open(ordinal: usize, act: Dtype) -> Result<Arc<Self>> {
        library::require(&["libcuda", "libnvrtc", "libcublasLt"])?;
        let all = gpus()?;
        let Some(own) = all.get(ordinal) else {
            return Err(Error::NoGpu(format!("there is no GPU number {ordinal}; {} found", all.len())));
        };
        if own.capability < OLDEST {
            return Err(Error::NoGpu(format!(
                "{} has compute capability {}.{}; {}.{} or later is needed",
                own.name, own.capability[0], own.capability[1], OLDEST[0], OLDEST[1]
            )));
        }
        let start = |what: &'static str| {
            move |error: result::DriverError| Error::NoGpu(format!("{what} failed: {error}"))
        };
        let device = result::device::get(ordinal as i32).map_err(start("opening the GPU"))?;
        // SAFETY: the primary context is kept for the life of the process.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(start("opening the GPU"))?;
        // SAFETY: the context was just made.
        unsafe { result::ctx::set_current(context) }.map_err(start("opening the GPU"))?;
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(start("a stream"))?;
        let gpu = Arc::new(Self {
            ordinal,
            name: own.name.clone(),
            capability: own.capability,
            multiprocessors: multiprocessors(device).map_err(start("opening the GPU"))?,
            context,
            stream,
            act,
            pool: Pool::default(),
            staging: Staging::default(),
            arrivals: Arrivals::default(),
            modules: Mutex::default(),
            functions: Mutex::default(),
            products: Products::new()?,
            profile: Profile::default(),
            live: OnceLock::new(),
            capturing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let live = Block::new(&gpu, 4 * LIVE_VALUES);
        live.clear();
        gpu.check()?;
        // The block keeps the GPU alive and the GPU the block: a GPU is opened once and never closed.
        let _ = gpu.live.set(live);
        Ok(gpu)
    }

    /// Description in words.
    pub(crate) fn describe(&self) -> String {
        let numbers = match self.act {
            Dtype::Bf16 => "bfloat16 with f32 sums",
            Dtype::F32 => "f32",
        };
        let (free, total) = if self.ready() { result::mem_get_info().unwrap_or((0, 0)) } else { (0, 0) };
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        format!(
            "GPU {}: {}, compute capability {}.{}, {:.1} of {:.1} GiB free, {numbers}",
            self.ordinal,
            self.name,
            self.capability[0],
            self.capability[1],
            gib(free),
            gib(total)
        )
    }

    /// Number by which this GPU is known on any machine.
    pub(crate) fn identity(&self) -> String {
        let found = result::device::get(self.ordinal as i32).and_then(result::device::get_uuid);
        found.map_or_else(|_| self.ordinal.to_string(), |uuid| format!("{:?}", uuid.bytes))
    }

    /// Number of multiprocessors. An op that cuts sums by it has other rounding on another GPU, and says so.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    /// The type of activations.
    pub(crate) fn act(&self) -> Dtype {
        self.act
    }

    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// True while ops are captured instead of run.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    /// Makes the GPU current on this thread; `false` after a failure, when nothing more is to be asked of it.
    pub(crate) fn ready(&self) -> bool {
        thread_local!(static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) });
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        if CURRENT.get() != self.ordinal {
            // SAFETY: the context lives as long as the process.
            let current = unsafe { result::ctx::set_current(self.context) };
            if let Err(error) = current {
                self.fail(Error::driver("using the GPU")(error));
                return false;
            }
            CURRENT.set(self.ordinal);
        }
        true
    }

    /// Keeps the first error.
    pub(crate) fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().expect("no op panics while it reports");
        failure.get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Keeps a driver's error, if it is one.
    pub(crate) fn note(&self, outcome: std::result::Result<(), result::DriverError>) {
        if let Err(error) = outcome {
            self.fail(Error::driver("the GPU's work")(error));
        }
    }

    /// The first error so far.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failure.lock().expect("no op panics while it reports") {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Waits for everything asked for so far.
    pub(crate) fn wait(&self) {
        if self.ready() {
            // SAFETY: the stream is alive.
            self.note(unsafe { result::stream::synchronize(self.stream) });
        }
    }

    /// Unlocks memory of the host that no copy uses.
    pub(crate) fn trim(&self) {
        if self.ready() {
            self.arrivals.trim();
        }
    }

    /// Address of a live number.
    pub(crate) fn live(&self, which: Live) -> Ptr {
        self.live.get().map_or(Ptr::NULL, |block| block.ptr().plus(4 * which as usize))
    }

    /// Sets a live number, in stream order. During a capture nothing is set: the replay sets it.
    pub(crate) fn set_live(&self, which: Live, bits: u32) {
        if !self.is_capturing() {
            self.set_word(self.live(which), bits);
        }
    }

    /// Sets one 32-bit word, in stream order.
    pub(crate) fn set_word(&self, at: Ptr, bits: u32) {
        if self.ready() {
            // SAFETY: callers give the address of a word in a living block.
            self.note(unsafe { sys::cuMemsetD32Async(at.address(), bits, 1, self.stream) }.result());
        }
    }

    /// Sets `bytes` bytes to 0, in stream order.
    pub(crate) fn clear(&self, at: Ptr, bytes: usize) {
        if self.ready() && bytes > 0 {
            // SAFETY: callers give a range of a living block.
            self.note(unsafe { result::memset_d8_async(at.address(), 0, bytes, self.stream) });
        }
    }

    /// Copies `bytes` bytes on the device, in stream order.
    pub(crate) fn copy(&self, from: Ptr, to: Ptr, bytes: usize) {
        if self.ready() && bytes > 0 {
            // SAFETY: callers give ranges of living blocks.
            self.note(unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, self.stream) });
        }
    }

    /// Bytes of device memory that this program holds and uses.
    pub(crate) fn memory_usage(&self) -> MutexGuard<'_, crate::usage::Usage> {
        self.pool.usage()
    }
}
