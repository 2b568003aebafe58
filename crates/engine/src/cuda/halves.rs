//! Values as bfloat16 and back, whatever the type of activations.

use std::sync::Arc;

use super::Gpu;
use super::kernel::kernels;
use super::launch::Shape;
use super::memory::Ptr;

kernels! {
    static FILE = "halves" at "halves.cu", constants [];

    struct ToHalves = to_halves { src: *const f32, dst: *mut u16, n: u64 }
    struct FromHalves = from_halves { src: *const u16, dst: *mut f32, n: u64 }
}

/// Rounds `count` floats to bfloat16. Both addresses are multiples of 32 bytes.
pub(crate) fn to_halves(gpu: &Arc<Gpu>, src: Ptr, dst: Ptr, count: usize) {
    gpu.call(Shape::over_values(count), &ToHalves { src, dst, n: count as u64 });
}

/// The floats that bfloat16 values are.
pub(crate) fn from_halves(gpu: &Arc<Gpu>, src: Ptr, dst: Ptr, count: usize) {
    gpu.call(Shape::over_values(count), &FromHalves { src, dst, n: count as u64 });
}
