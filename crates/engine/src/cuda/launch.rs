//! Launches, and the structs that many kernels take.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::compile::{Unit, machine_code};
use super::kernel::{Kernel, kernel_struct};
use super::memory::{Block, Dtype, Ptr};
use super::{Gpu, Live};
use crate::error::MOST_BLOCKS;
use crate::rng;
use crate::tape::RealRows;
use crate::{Error, Numbers, Result};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    handle: sys::CUfunction,
    /// Dynamic shared memory that it may use.
    shared: u32,
}

kernel_struct! {
    /// Random numbers of an op.
    pub(crate) struct Stream {
        key0: u32,
        key1: u32,
        stream: u32,
        step: *const u32,
    }
}

kernel_struct! {
    /// Dropout; a threshold of 0 drops nothing.
    pub(crate) struct Dropout {
        stream: Stream,
        threshold: u32,
        scale: f32,
    }
}

kernel_struct! {
    /// Sentences of a packed matrix.
    pub(crate) struct Segments {
        starts: *const u32,
        sentence_of_row: *const u32,
        count: *const u32,
        sentences: u32,
        rows: u32,
    }
}

/// Blocks, threads per block, and bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 2],
    pub(crate) shared: u32,
}

/// Threads of a block that works on an array.
const VALUES_THREADS: usize = 256;

/// Rows of a block that works on a matrix, and runs of eight columns.
pub(crate) const BLOCK_ROWS: u32 = 4;
pub(crate) const BLOCK_RUNS: u32 = 64;

impl Shape {
    /// `blocks` blocks of `threads` threads.
    pub(crate) fn of(blocks: usize, threads: u32) -> Self {
        Self::grid([blocks, 1], threads)
    }

    /// `x`·`y` blocks of `threads` threads.
    pub(crate) fn grid([x, y]: [usize; 2], threads: u32) -> Self {
        Self { grid: [x as u32, y as u32, 1], block: [threads, 1], shared: 0 }
    }

    /// One thread for each run of eight of `count` values.
    pub(crate) fn over_values(count: usize) -> Self {
        Self::of(count.div_ceil(8 * VALUES_THREADS), VALUES_THREADS as u32)
    }

    /// One thread for each run of eight columns of `rows` rows: `place_of_thread` of the prelude.
    pub(crate) fn over_rows(rows: usize, cols: usize) -> Self {
        let blocks = [cols.div_ceil(8 * BLOCK_RUNS as usize), rows.div_ceil(BLOCK_ROWS as usize)];
        Self::grid(blocks, BLOCK_ROWS * BLOCK_RUNS)
    }

    /// The same with twice as many threads, of which each half counts its own.
    pub(crate) fn halves(self) -> Self {
        Self { block: [self.block[0], 2], ..self }
    }

    /// The same with `bytes` of dynamic shared memory.
    pub(crate) fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }
}

/// The number of rows that are really there, in device memory.
pub(crate) struct ValidRows {
    pub(crate) at: Ptr,
    /// Memory of its own, where no segments have the number.
    _own: Option<Block>,
}

impl ValidRows {
    /// Of a value of `rows` rows.
    pub(crate) fn of(gpu: &Arc<Gpu>, real: &RealRows, rows: usize) -> Self {
        match real {
            RealRows::Sentences(segments) => Self { at: segments.valid_sentences(), _own: None },
            RealRows::Rows(segments) => Self { at: segments.valid_rows(), _own: None },
            RealRows::All => {
                let own = Block::new(gpu, 4);
                gpu.set_word(own.ptr(), rows as u32);
                Self { at: own.ptr(), _own: Some(own) }
            }
        }
    }
}

/// Dynamic shared memory that a kernel may use without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

impl Gpu {
    /// Launches a kernel of a file that has one version, in stream order.
    pub(crate) fn call<K: Kernel>(&self, shape: Shape, kernel: &K) {
        self.call_in(&Unit::of(K::FILE), shape, kernel);
    }

    /// Launches a kernel of `unit`, a version of its file, in stream order.
    pub(crate) fn call_in<K: Kernel>(&self, unit: &Unit, shape: Shape, kernel: &K) {
        debug_assert_eq!(unit.file(), K::FILE.name);
        if !self.ready() || shape.grid.contains(&0) {
            return;
        }
        let name = K::SIGNATURE.name;
        let [x, y, z] = shape.grid;
        if let Some(&blocks) = [y, z].iter().find(|blocks| **blocks > MOST_BLOCKS) {
            return self.fail(Error::TooManyRows { kernel: name, blocks });
        }
        let function = match self.function(unit, name, shape.shared) {
            Ok(function) => function,
            Err(error) => return self.fail(error),
        };
        let launch = |arguments: &mut [*mut c_void]| {
            // SAFETY: a `Kernel` passes the arguments that the kernel of this name declares. They are plain values;
            // addresses among them come from blocks of device memory, which Rust never reads through references.
            // Launchers see to it that blocks have the sizes the kernel is given; the kernel suite checks them.
            unsafe {
                result::launch_kernel(
                    function.handle,
                    (x, y, z),
                    (shape.block[0], shape.block[1], 1),
                    shape.shared,
                    self.stream(),
                    arguments,
                )
            }
        };
        let launched = self.timed(|| name.to_owned(), || kernel.with_pointers(launch));
        if let Err(error) = launched {
            self.fail(Error::Gpu(format!("kernel `{name}`: {error}")));
        }
    }

    fn function(&self, unit: &Unit, kernel: &'static str, shared: u32) -> Result<Function> {
        let mut functions = self.functions.lock().expect("no launch panics");
        let key = (unit.clone(), kernel);
        let fault = |error: result::DriverError| Error::Gpu(format!("kernel `{kernel}`: {error}"));
        let set = |function, attribute, value| {
            // SAFETY: the function is valid.
            unsafe { result::function::set_function_attribute(function, attribute, value) }
        };
        let mut function = match functions.get(&key) {
            Some(function) if function.shared >= shared => return Ok(*function),
            Some(function) => *function,
            None => {
                let module = self.module(unit)?;
                let name = CString::new(kernel).expect("kernel names hold no NUL");
                // SAFETY: the module is never unloaded.
                let handle = unsafe { result::module::get_function(module, name) }.map_err(fault)?;
                if shared > 0 {
                    // All of it in per cent, or the driver may leave too little for the blocks that would fit.
                    set(handle, Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
                        .map_err(fault)?;
                }
                Function { handle, shared: SHARED_WITHOUT_ASKING }
            }
        };
        if shared > function.shared {
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let numbers = if self.act() == Dtype::F32 { Numbers::F32 } else { Numbers::Bf16 };
            set(function.handle, most, shared as i32).map_err(|_| Error::SharedMemory {
                kernel,
                bytes: shared,
                numbers,
            })?;
            function.shared = shared;
        }
        functions.insert(key, function);
        Ok(function)
    }

    /// Returns true if the kernels of this unit are those that Hopper alone can run.
    pub(crate) fn is_for_hopper(&self, unit: &Unit) -> bool {
        unit.is_for_hopper(self.act() == Dtype::Bf16, self.capability)
    }

    fn module(&self, unit: &Unit) -> Result<sys::CUmodule> {
        let mut modules = self.modules.lock().expect("no launch panics");
        if let Some(module) = modules.get(unit) {
            return Ok(*module);
        }
        let code = machine_code(unit, self.act() == Dtype::Bf16, self.capability)?;
        // SAFETY: the code is a whole cubin from NVRTC; the driver copies it.
        let module = unsafe { result::module::load_data(code.as_ptr().cast()) }
            .map_err(|e| Error::Gpu(format!("{}.cu: {e}", unit.file())))?;
        modules.insert(unit.clone(), module);
        Ok(module)
    }

    /// Compiles every kernel file, using all cores, unless the cache has them; gives the number of versions.
    pub(crate) fn compile_all(&self) -> Result<usize> {
        let bf16 = self.act() == Dtype::Bf16;
        let units = Unit::every_file(bf16);
        let compile = |unit: &Unit| machine_code(unit, bf16, self.capability).map(drop);
        units.par_iter().with_max_len(1).try_for_each(compile)?;
        Ok(units.len())
    }

    /// The random numbers of an op, as kernels see them.
    pub(crate) fn stream_argument(&self, stream: rng::Stream) -> Stream {
        let ([key0, key1], stream) = stream.address();
        Stream { key0, key1, stream, step: self.live(Live::Step) }
    }

    /// Dropout as kernels see it; `None` drops nothing.
    pub(crate) fn dropout_argument(&self, dropout: Option<rng::Dropout>) -> Dropout {
        let nothing = Stream { key0: 0, key1: 0, stream: 0, step: Ptr::NULL };
        dropout.map_or(Dropout { stream: nothing, threshold: 0, scale: 1.0 }, |dropout| Dropout {
            stream: self.stream_argument(dropout.stream()),
            threshold: dropout.threshold(),
            scale: dropout.scale,
        })
    }
}
