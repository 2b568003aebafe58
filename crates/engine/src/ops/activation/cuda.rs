//! The GPU's implementation: a thread for each run of eight columns of a row.

use super::Curve;
use crate::Var;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{self, Shape};
use crate::device::Buffer;
use crate::rng::Dropout;

/// Curves as kernels number them.
const SWISH: usize = 0;
const GELU: usize = 1;

kernels! {
    static FILE = "activation" at "activation.cu", constants [SWISH, GELU];

    struct Forward = activation_forward {
        x: *const Act,
        kind: u32,
        dropout: launch::Dropout,
        y: *mut Act,
        rows: u32,
        cols: u32,
    }

    /// The gradient of Y becomes that of X in place.
    struct BackwardCall = activation_backward {
        x: *const Act,
        kind: u32,
        dropout: launch::Dropout,
        dy_to_dx: *mut Act,
        rows: u32,
        cols: u32,
    }
}

fn kind(curve: Curve) -> u32 {
    let kind = match curve {
        Curve::Swish => SWISH,
        Curve::Gelu => GELU,
    };
    kind as u32
}

pub(super) fn forward(gpu: &Gpu, x: &Var, curve: Curve, dropout: Option<Dropout>, y: &Buffer) {
    let [rows, cols] = x.shape();
    let (kind, dropout) = (kind(curve), gpu.dropout_argument(dropout));
    let call = Forward { x: x.ptr(), kind, dropout, y: y.ptr(), rows: rows as u32, cols: cols as u32 };
    gpu.call(Shape::over_rows(rows, cols), &call);
}

pub(super) fn backward(gpu: &Gpu, x: &Var, curve: Curve, dropout: Option<Dropout>, dy: &Buffer) {
    let [rows, cols] = x.shape();
    let (kind, dropout, dy_to_dx) = (kind(curve), gpu.dropout_argument(dropout), dy.ptr());
    let call = BackwardCall { x: x.ptr(), kind, dropout, dy_to_dx, rows: rows as u32, cols: cols as u32 };
    gpu.call(Shape::over_rows(rows, cols), &call);
}
