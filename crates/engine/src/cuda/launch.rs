//! Kernel arguments and launches.

use std::ffi::{CString, c_void};

use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::compile::{Unit, machine_code};
use super::memory::{Dtype, Ptr};
use super::{Gpu, Live};
use crate::rng;
use crate::{Error, Result};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    handle: sys::CUfunction,
    /// Dynamic shared memory that it may use.
    shared: u32,
}

/// Something that can be passed to a kernel: the same bytes as the kernel's parameter.
///
/// # Safety
///
/// The type must be plain and laid out as the kernel declares it.
// SAFETY: unsafe to implement, for a launch hands the bytes of the value to the kernel as they are.
pub(crate) unsafe trait Argument {}

// SAFETY: `const T*` and `T*`.
unsafe impl Argument for Ptr {}
// SAFETY: `u32`.
unsafe impl Argument for u32 {}
// SAFETY: `u64`.
unsafe impl Argument for u64 {}
// SAFETY: `float`.
unsafe impl Argument for f32 {}

/// `Stream` of the prelude.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    key: [u32; 2],
    stream: u32,
    step: Ptr,
}

/// `Dropout` of the prelude.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dropout {
    stream: Stream,
    threshold: u32,
    scale: f32,
}

/// `Segments` of the prelude.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    pub(crate) starts: Ptr,
    pub(crate) sentence_of_row: Ptr,
    pub(crate) count: Ptr,
    pub(crate) sentences: u32,
    pub(crate) rows: u32,
}

// SAFETY: `repr(C)` with the fields of the prelude.
unsafe impl Argument for Stream {}
// SAFETY: as above.
unsafe impl Argument for Dropout {}
// SAFETY: as above.
unsafe impl Argument for Segments {}

/// Blocks, threads per block, and bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
}

impl Shape {
    /// `blocks` blocks of `threads` threads.
    pub(crate) fn of(blocks: usize, threads: u32) -> Self {
        Self::grid([blocks, 1], threads)
    }

    pub(crate) fn grid([x, y]: [usize; 2], threads: u32) -> Self {
        Self { grid: [x as u32, y as u32, 1], block: threads, shared: 0 }
    }

    pub(crate) fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }
}

/// Dynamic shared memory that a kernel may use without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

impl Gpu {
    /// Launches `kernel` of `unit` with `arguments`, in stream order.
    pub(crate) fn launch(
        &self,
        unit: &Unit,
        kernel: &'static str,
        shape: Shape,
        arguments: &[&dyn Argument],
    ) {
        if !self.ready() || shape.grid.contains(&0) {
            return;
        }
        let function = match self.function(unit, kernel, shape.shared) {
            Ok(function) => function,
            Err(error) => return self.fail(error),
        };
        let mut parameters: Vec<*mut c_void> = arguments
            .iter()
            .map(|&argument| std::ptr::from_ref(argument).cast::<c_void>().cast_mut())
            .collect();
        let [x, y, z] = shape.grid;
        let launched = self.timed(
            || kernel.to_owned(),
            // SAFETY: launchers pass what the kernel declares, and buffers of the sizes it is told; the kernel suite
            // checks every launcher against the CPU.
            || unsafe {
                result::launch_kernel(
                    function.handle,
                    (x, y, z),
                    (shape.block, 1, 1),
                    shape.shared,
                    self.stream(),
                    &mut parameters,
                )
            },
        );
        if let Err(error) = launched {
            self.fail(Error::Gpu(format!("kernel `{kernel}`: {error}")));
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
            set(function.handle, most, shared as i32).map_err(|error| {
                let less = if self.act() == Dtype::F32 { "; --precision bf16 asks for half of it" } else { "" };
                Error::Gpu(format!(
                    "kernel `{kernel}`: {error}: it asks for {shared} bytes of shared memory, more than this GPU has{less}"
                ))
            })?;
            function.shared = shared;
        }
        functions.insert(key, function);
        Ok(function)
    }

    /// Whether the kernels of this unit are those that Hopper alone can run.
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
            .map_err(|e| Error::Gpu(format!("{}.cu: {e}", unit.file)))?;
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
        let (key, stream) = stream.address();
        Stream { key, stream, step: self.live(Live::Step) }
    }

    /// Dropout as kernels see it; `None` drops nothing.
    pub(crate) fn dropout_argument(&self, dropout: Option<rng::Dropout>) -> Dropout {
        let nothing = Stream { key: [0; 2], stream: 0, step: Ptr::NULL };
        dropout.map_or(Dropout { stream: nothing, threshold: 0, scale: 1.0 }, |dropout| Dropout {
            stream: self.stream_argument(dropout.stream()),
            threshold: dropout.threshold(),
            scale: dropout.scale,
        })
    }
}
