//! Matrix products over row-major `f32` slices: the only door to them in the CPU engine.
//!
//! `C = A·B` or `C += A·B`, where `A` and `B` may be read transposed, so that the three products of a
//! linear layer (`X·Wᵀ`, `dY·W`, `dYᵀ·X`) need no copies by the caller.
//!
//! Kernels: `amx` on Linux and processors with AMX-BF16; `portable`, the `gemm-f32` crate, elsewhere and for products too
//! small for AMX; `halves` for training in bf16 with AVX-512; and `streamed` for a few rows in evaluation, such as a step
//! of a search. On AMX, products of training passes take little more than half the time at a lower [`Precision`]: the
//! noise that sampling and dropout leave in a gradient is orders of magnitude larger. Evaluation stays at full
//! precision, so validation losses, logits and scores have the accuracy of `f32`.
//!
//! The environment variable `MAE_CPU_GEMM` changes this, for tests and benchmarks: `portable` is plain `f32`
//! everywhere, `full` is AMX at full precision everywhere.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(in crate::cpu) mod amx;
mod halves;
pub(super) mod meter;
mod portable;
pub(crate) mod streamed;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use meter::{Meter, meter, meter_reset};

/// A row-major matrix, possibly read transposed.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    data: &'a [f32],
    /// Distance between consecutive stored rows.
    stride: usize,
    transposed: bool,
}

impl<'a> Mat<'a> {
    /// `data` holds rows of `cols` values, end to end.
    pub fn new(data: &'a [f32], cols: usize) -> Self {
        Self { data, stride: cols, transposed: false }
    }

    /// The same storage read as its transpose.
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// (distance between rows, distance between columns) as read.
    fn strides(&self) -> (usize, usize) {
        if self.transposed { (1, self.stride) } else { (self.stride, 1) }
    }
}

/// Treatment of the old content of `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// `C = A·B`; the old content is not read.
    Overwrite,
    /// `C = C + A·B`.
    Add,
}

impl Into {
    /// Adds to what a target holds, or overwrites what it does not.
    pub(crate) fn held(held: bool) -> Self {
        if held { Self::Add } else { Self::Overwrite }
    }
}

/// Precision of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As accurate as `f32`.
    Full,
    /// For training passes: on AMX, three of the six products of parts. What is left out of each product of two
    /// values is about 2⁻¹⁷ of it, and never more than 2⁻¹⁵, with either sign, so that it averages out over
    /// the sum. The portable kernel is as accurate as `f32` here too.
    Training,
    /// For training passes in bf16: the factors are rounded to 8 bits, the sums have the 24 bits of `f32`. Products that
    /// are too small to gain from it, and those of processors [without](has_bf16) such instructions, are plain `f32`.
    Bf16,
}

/// `C[m,n] (+)= A[m,k] · B[k,n]`, `c` row-major with rows of `n` values.
///
/// The result does not depend on the number of threads.
pub fn gemm([m, n, k]: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &mut [f32], into: Into, precision: Precision) {
    assert_eq!(c.len(), m * n, "gemm: C is {m}x{n}");
    assert_eq!(a.data.len(), m * k, "gemm: A is {m}x{k}");
    assert_eq!(b.data.len(), k * n, "gemm: B is {k}x{n}");
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if into == Into::Overwrite {
            c.fill(0.0);
        }
        return;
    }
    let _metered = meter::start(2 * m * n * k);
    let plain = into == Into::Overwrite && !a.transposed && b.transposed;
    if precision == Precision::Full && plain && m <= streamed_rows() {
        return streamed::product([m, n, k], a.data, b.data, c);
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if kernel() != Kernel::Portable && amx::pays([m, n, k], b) {
        return match (kernel(), precision) {
            (_, Precision::Bf16) => amx::gemm::<1>([m, n, k], a, b, c, into),
            (Kernel::Amx, Precision::Training) => amx::gemm::<2>([m, n, k], a, b, c, into),
            _ => amx::gemm::<3>([m, n, k], a, b, c, into),
        };
    }
    if precision == Precision::Bf16 && halves::pays([m, n, k]) && !plain_forced() {
        return halves::gemm([m, n, k], a, b, c, into);
    }
    portable::gemm([m, n, k], a, b, c, into);
}

/// True if this processor has instructions for products of bf16 (AMX or AVX-512 BF16), and may use them.
pub fn has_bf16() -> bool {
    kernel() != Kernel::Portable || (halves::available() && !plain_forced())
}

/// True if `MAE_CPU_GEMM` asks for plain `f32` everywhere.
fn plain_forced() -> bool {
    static FORCED: OnceLock<bool> = OnceLock::new();
    *FORCED.get_or_init(|| forced("portable"))
}

fn forced(name: &str) -> bool {
    std::env::var_os("MAE_CPU_GEMM").is_some_and(|value| value == name)
}

/// Most rows for which a product `X·Wᵀ` of evaluation is faster if W is read as it lies than if it is packed first.
/// Measured with AVX-512; for the others, what the number of multiplications per instruction suggests.
fn streamed_rows() -> usize {
    match kernel() {
        Kernel::Amx | Kernel::AmxFull => 48,
        #[cfg(target_arch = "x86_64")]
        Kernel::Portable if std::is_x86_feature_detected!("avx512f") => 512,
        #[cfg(target_arch = "x86_64")]
        Kernel::Portable if std::is_x86_feature_detected!("fma") => 128,
        Kernel::Portable => 16,
    }
}

/// The kernel that large products run on: `"amx"`, `"amx-full"` (training too) or `"portable"`.
pub fn kernel_name() -> &'static str {
    match kernel() {
        Kernel::Amx => "amx",
        Kernel::AmxFull => "amx-full",
        Kernel::Portable => "portable",
    }
}

/// The instructions that large products use, in words.
pub fn instructions() -> &'static str {
    match kernel() {
        Kernel::Amx | Kernel::AmxFull => "AMX",
        #[cfg(target_arch = "x86_64")]
        Kernel::Portable if std::is_x86_feature_detected!("avx512f") => "AVX-512",
        #[cfg(target_arch = "x86_64")]
        Kernel::Portable if std::is_x86_feature_detected!("fma") => "AVX2 and FMA",
        #[cfg(target_arch = "aarch64")]
        Kernel::Portable => "Neon",
        #[cfg(not(target_arch = "aarch64"))]
        Kernel::Portable => "no vector instructions",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Amx,
    /// AMX at full precision, whatever is asked for.
    AmxFull,
    Portable,
}

/// Chosen once per process.
fn kernel() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        if plain_forced() || !amx_available() {
            Kernel::Portable
        } else if forced("full") {
            Kernel::AmxFull
        } else {
            Kernel::Amx
        }
    })
}

fn amx_available() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return amx::available();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}
