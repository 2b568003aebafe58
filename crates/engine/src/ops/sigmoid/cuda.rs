//! The GPU's implementation: a thread for each run of eight values.

use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::tape::Backward;
use crate::{Tensor, Var};

kernels! {
    static FILE = "sigmoid" at "sigmoid.cu", constants [];

    struct Forward = sigmoid_forward { x: *const Act, y: *mut f32, scale: f32, n: u64 }

    struct BackwardCall = sigmoid_backward {
        dy: *const f32,
        y: *const f32,
        dx: *mut Act,
        add: u32,
        scale: f32,
        n: u64,
    }
}

pub(super) fn forward(gpu: &Gpu, x: &Var, scale: f32, y: &Buffer) {
    let n = x.rows() * x.cols();
    gpu.call(Shape::over_values(n), &Forward { x: x.ptr(), y: y.ptr(), scale, n: n as u64 });
}

pub(super) fn backward(gpu: &Gpu, backward: &mut Backward<'_>, x: &Var, y: &Tensor, scale: f32, dy: &Buffer) {
    let n = x.rows() * x.cols();
    let (dx, add) = backward.target(x);
    if dx != Ptr::NULL {
        let call = BackwardCall { dy: dy.ptr(), y: y.ptr(), dx, add, scale, n: n as u64 };
        gpu.call(Shape::over_values(n), &call);
    }
}
