//! Number types in which a CPU keeps keys and values between the steps of a search: f32, and bfloat16 for models whose
//! matrices are held in fewer bits than 32. Queries, chances and sums are f32 with either.

use crate::cpu::gemm::streamed::kernel::Lanes;
use crate::cuda::memory::Dtype;
use crate::device::{Buffer, from_bf16};
use crate::{ComputeType, Device};

/// A number that is kept.
pub(super) trait Kept: Copy + Send + Sync + 'static {
    /// The numbers of a buffer of this type.
    fn all(buffer: &Buffer) -> &[Self];

    /// The number in f32.
    fn get(self) -> f32;

    /// 16 numbers from `at` on, in f32.
    ///
    /// # Safety
    ///
    /// `at` points to 16 numbers, and the processor has the instructions of `L`.
    unsafe fn load<L: Lanes>(at: *const Self) -> L;
}

impl Kept for f32 {
    fn all(buffer: &Buffer) -> &[Self] {
        buffer
    }

    #[inline(always)]
    fn get(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for both.
        unsafe { L::load(at) }
    }
}

/// The bits of a bfloat16.
impl Kept for u16 {
    fn all(buffer: &Buffer) -> &[Self] {
        buffer.halves()
    }

    #[inline(always)]
    fn get(self) -> f32 {
        from_bf16(self)
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for both.
        unsafe { L::widen(at) }
    }
}

/// The type in which models on this device keep keys and values.
pub(super) fn dtype(device: &Device) -> Dtype {
    match (device.gpu(), device.compute_type()) {
        (Some(gpu), _) => gpu.act(),
        (None, ComputeType::Auto | ComputeType::F32) => Dtype::F32,
        (None, ComputeType::Bf16 | ComputeType::Int8) => Dtype::Bf16,
    }
}
