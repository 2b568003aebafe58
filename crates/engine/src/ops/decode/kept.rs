//! Number types in which a CPU keeps keys and values between the steps of a search, and the second layers of gates: f32,
//! and bfloat16 for models whose matrices are held in fewer bits than 32. Queries, chances and sums are f32 with either.

use bytemuck::TransparentWrapper;

use crate::cpu::gemm::streamed::Weight;
use crate::cpu::panels::Half;
use crate::cuda::memory::Dtype;
use crate::device::Buffer;
use crate::{ComputeType, Device};

/// A number that is kept.
pub(crate) trait Kept: Weight {
    /// The numbers of a buffer of this type.
    fn all(buffer: &Buffer) -> &[Self];
}

impl Kept for f32 {
    fn all(buffer: &Buffer) -> &[Self] {
        buffer
    }
}

impl Kept for Half {
    fn all(buffer: &Buffer) -> &[Self] {
        Self::wrap_slice(buffer.halves())
    }
}

/// The type in which models on this device keep keys, values and second layers.
pub(crate) fn dtype(device: &Device) -> Dtype {
    match (device.gpu(), device.compute_type()) {
        (Some(gpu), _) => gpu.act(),
        (None, ComputeType::Auto | ComputeType::F32) => Dtype::F32,
        (None, ComputeType::Bf16 | ComputeType::Int8) => Dtype::Bf16,
    }
}
