//! The GPU's implementation: a copy of the weights in the type of activations, and one kernel back.

use crate::ParamId;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

kernels! {
    static FILE = "parameter" at "parameter.cu", constants [];

    struct FromAct = from_act { src: *const Act, dst: *mut f32, n: u64, add: u32 }
}

pub(super) fn forward(gpu: &Gpu, params: &Params, id: ParamId, y: &Buffer) {
    gpu.copy(params.weights(id), y.ptr(), y.count() * gpu.act().size());
}

pub(super) fn backward(gpu: &Gpu, backward: &mut Backward<'_>, id: ParamId, dy: &Buffer) {
    let (dst, add) = backward.param_target(id);
    if dst != Ptr::NULL {
        let copy = FromAct { src: dy.ptr(), dst, n: dy.count() as u64, add };
        gpu.call(Shape::over_values(dy.count()), &copy);
    }
}
