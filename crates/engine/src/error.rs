//! Errors of the engine.

use crate::{ComputeType, Numbers};

/// Shorthand for a result with the engine's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An engine error; the text names the op or parameter, what was expected and what came.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter that the step wants to update took no part in the loss.
    #[error("parameter `{0}` is free in this step but received no gradient")]
    MissingGradient(String),
    /// A name is not among the parameters.
    #[error("no parameter is called `{0}`")]
    UnknownParameter(String),
    /// Values of the wrong size were given for a parameter.
    #[error("parameter `{name}` holds {expected} values, {got} were given")]
    WrongSize {
        /// The parameter's name.
        name: String,
        /// Number of values it holds.
        expected: usize,
        /// Number of values offered.
        got: usize,
    },
    /// A parameter is packed for inference.
    #[error("parameter `{name}` is held in {held}, for inference: it can be neither saved nor trained")]
    Packed {
        /// The parameter's name.
        name: String,
        /// Number type of the device's matrices.
        held: ComputeType,
    },
    /// The device does not compute in this type.
    #[error("a GPU does not compute in {0} as a CPU does; it has the number types bf16 and f32 of its own")]
    ComputeType(ComputeType),
    /// The processor cannot train in bf16; it has the instructions that the text names.
    #[error(
        "this processor cannot train in bf16, which takes AMX or AVX-512 BF16 (it has {0}); f32 runs on every processor"
    )]
    NoBf16(&'static str),
    /// No GPU can be used; the text says why.
    #[error("no GPU can be used: {0}")]
    NoGpu(String),
    /// The GPU could not do what was asked.
    #[error("GPU: {0}")]
    Gpu(String),
    /// The GPU has too little free memory.
    #[error(
        "out of GPU memory: {} GiB more were needed, {} of {} GiB are free",
        gib(*needed),
        gib(*free),
        gib(*total)
    )]
    OutOfMemory {
        /// Bytes that were asked for.
        needed: usize,
        /// Bytes that are free.
        free: usize,
        /// Bytes of memory of the GPU.
        total: usize,
    },
    /// A batch has more rows than a launch of a kernel can cover.
    #[error(
        "the batch is too large for a GPU: kernel `{kernel}` would need {blocks} blocks side by side, and there can be \
         {MOST_BLOCKS}; make batches smaller"
    )]
    TooManyRows {
        /// Name of the kernel.
        kernel: &'static str,
        /// Blocks that it would need.
        blocks: u32,
    },
    /// Several processes cannot work together; the text says why and what to do.
    #[error("{0}")]
    Launch(String),
    /// Another rank is at fault.
    #[error("rank {rank}{}: {why}", of_process(name))]
    Peer {
        /// Its number.
        rank: usize,
        /// Its host and process, if they are known.
        name: String,
        /// What happened to it.
        why: String,
    },
    /// A kernel needs more shared memory than the GPU has. With [`Numbers::Bf16`] it needs half as much as with
    /// [`Numbers::F32`].
    #[error(
        "GPU: kernel `{kernel}` needs {bytes} bytes of shared memory for a block, more than this GPU has"
    )]
    SharedMemory {
        /// Name of the kernel.
        kernel: &'static str,
        /// Bytes that it needs.
        bytes: u32,
        /// Number types that the device was opened with.
        numbers: Numbers,
    },
}

/// Most blocks in the second and third dimension of a grid.
pub(crate) const MOST_BLOCKS: u32 = 65_535;

/// GiB with two digits after the point.
fn gib(bytes: usize) -> String {
    format!("{:.2}", bytes as f64 / (1u64 << 30) as f64)
}

/// Host and process in brackets.
fn of_process(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

impl Error {
    /// Wraps an error of CUDA's driver in `what` was tried.
    pub(crate) fn driver(what: &'static str) -> impl Fn(cudarc::driver::result::DriverError) -> Self {
        move |error| {
            let text =
                error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("unknown error");
            Self::Gpu(format!("{what}: {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_in_gib() {
        let error = Error::OutOfMemory { needed: 3 << 29, free: 1 << 28, total: 80 << 30 };
        let text = "out of GPU memory: 1.50 GiB more were needed, 0.25 of 80.00 GiB are free";
        assert_eq!(error.to_string(), text);
    }
}
