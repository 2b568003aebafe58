//! Sums in the memory of GPUs by NCCL, which is opened at run time. The unique id of a run travels over the host's
//! back end.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUstream;

use super::Collective;
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, library};
use crate::{Error, Result};

const SUM: c_int = 0;

/// Numbers of a sum, by their `ncclDataType_t`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Float = 7,
    Double = 8,
    Bf16 = 9,
}

/// An address, a number of values and their kind.
pub(crate) type Part = (Ptr, usize, Kind);

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// Functions of NCCL by their prototypes in `nccl.h`.
struct Functions {
    // SAFETY: types of pointers, not calls. Each pointer was looked up under the name of its prototype; every call has a
    // note of its own.
    get_version: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, CUstream) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(*mut c_void) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Communicator of a rank.
pub(super) struct Nccl {
    gpu: Arc<Gpu>,
    functions: &'static Functions,
    communicator: *mut c_void,
}

// SAFETY: a communicator may be used from any thread, one at a time; the stream orders its work.
unsafe impl Send for Nccl {}
// SAFETY: as above: a run makes its calls from one thread.
unsafe impl Sync for Nccl {}

/// The library, opened once; the error says what to install.
fn functions() -> std::result::Result<&'static Functions, String> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(open).as_ref().ok_or_else(|| {
        "libnccl.so.2 was not found; install NCCL (`pip install nvidia-nccl-cu13`), or name its folder in MAE_CUDA_LIBS"
            .to_owned()
    })
}

fn open() -> Option<Functions> {
    let names = ["libnccl.so.2", "libnccl.so"];
    let bare = names.iter().map(PathBuf::from);
    let folders = library::folders().into_iter().flat_map(|folder| names.map(|name| folder.join(name)));
    // SAFETY: this is NVIDIA's library; loading it runs its initialisers, which is what they are for.
    let library = bare.chain(folders).find_map(|path| unsafe { libloading::Library::new(path) }.ok())?;
    // SAFETY: the types are those of the prototypes.
    let functions = unsafe {
        Some(Functions {
            get_version: *library.get(b"ncclGetVersion").ok()?,
            get_unique_id: *library.get(b"ncclGetUniqueId").ok()?,
            init_rank: *library.get(b"ncclCommInitRank").ok()?,
            all_reduce: *library.get(b"ncclAllReduce").ok()?,
            group_start: *library.get(b"ncclGroupStart").ok()?,
            group_end: *library.get(b"ncclGroupEnd").ok()?,
            abort: *library.get(b"ncclCommAbort").ok()?,
            error_string: *library.get(b"ncclGetErrorString").ok()?,
        })
    };
    std::mem::forget(library);
    functions
}

/// Returns why NCCL cannot be used, if it cannot.
pub(super) fn missing() -> Option<String> {
    functions().err()
}

impl Nccl {
    /// Connects the GPUs of all ranks. Every rank calls it.
    pub(super) fn connect(gpu: &Arc<Gpu>, ranks: &dyn Collective) -> Result<Self> {
        let (functions, place) = (functions().map_err(Error::Launch)?, ranks.place());
        let mut id = UniqueId([0; 128]);
        if place.is_first() {
            // SAFETY: `id` is alive.
            done(functions, "ncclGetUniqueId", unsafe { (functions.get_unique_id)(&mut id) })?;
        }
        let all = ranks.gather(&id.0)?;
        id.0.copy_from_slice(&all[0]);
        gpu.ready();
        let mut communicator = std::ptr::null_mut();
        // SAFETY: the GPU is current, and `communicator` is alive.
        let code =
            unsafe { (functions.init_rank)(&mut communicator, place.size as c_int, id, place.rank as c_int) };
        done(functions, "ncclCommInitRank", code)?;
        Ok(Self { gpu: gpu.clone(), functions, communicator })
    }

    /// Version, as in `2.28.9`.
    pub(super) fn version(&self) -> String {
        let mut code = 0;
        // SAFETY: `code` is alive.
        unsafe { (self.functions.get_version)(&mut code) };
        format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
    }

    /// The GPU.
    pub(super) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Sums so many numbers at these addresses over all ranks in place, in the order of `stream`. NCCL demands that a call
    /// is captured by all ranks or by none, and ranks capture passes at different times: it is never captured.
    pub(super) fn sum(&self, stream: CUstream, parts: &[Part]) {
        if !self.gpu.ready() {
            return;
        }
        // SAFETY: groups only note calls.
        let mut code = unsafe { (self.functions.group_start)() };
        for &(at, count, kind) in parts {
            let address = at.address() as *mut c_void;
            // SAFETY: callers give living ranges of device memory of this many values.
            let called = unsafe {
                (self.functions.all_reduce)(
                    address,
                    address,
                    count,
                    kind as c_int,
                    SUM,
                    self.communicator,
                    stream,
                )
            };
            code = if code == 0 { called } else { code };
        }
        // SAFETY: begun above.
        let ended = unsafe { (self.functions.group_end)() };
        let outcome = done(self.functions, "ncclAllReduce", if code == 0 { ended } else { code });
        if let Err(error) = outcome {
            self.gpu.fail(error);
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.gpu.ready();
        // SAFETY: not used after this.
        unsafe { (self.functions.abort)(self.communicator) };
    }
}

fn done(functions: &Functions, what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: NCCL gives a text for every code, which lives as long as the library.
    let text = unsafe { CStr::from_ptr((functions.error_string)(code)) }.to_string_lossy();
    Err(Error::Gpu(format!("{what}: {text}; NCCL_DEBUG=WARN prints more")))
}
