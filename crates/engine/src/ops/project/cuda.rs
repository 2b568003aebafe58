//! The GPU's implementation: products, and the dropout of linear layers.

use super::{Op, Orientation};
use crate::Var;
use crate::cuda::Gpu;
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::linear::cuda::drop_out;
use crate::params::Params;
use crate::rng::Dropout;
use crate::tape::Backward;

/// The factor `[I, O]` of X.
fn factor(params: &Params, op: &Op) -> Factor {
    let weight = Factor::new(params.weights(op.weight), params.block(op.weight).cols);
    match op.way {
        Orientation::Straight => weight.t(),
        Orientation::Transposed => weight,
    }
}

pub(super) fn forward(gpu: &Gpu, params: &Params, op: &Op, y: &Buffer) {
    let (rows, [inner, cols]) = (op.x.rows(), op.widths(params));
    gpu.product(&Product {
        size: [rows, cols, inner],
        a: Factor::new(op.x.ptr(), inner),
        b: factor(params, op),
        c: y.ptr(),
        c_cols: cols,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    if op.dropout.is_some() {
        drop_out(gpu, [y.ptr(); 2], [rows, cols], op.dropout);
    }
}

pub(super) fn backward(gpu: &Gpu, backward: &mut Backward<'_>, op: &Op, dy: &Buffer) {
    let (rows, [inner, cols]) = (op.x.rows(), op.widths(backward.params));
    if op.dropout.is_some() {
        drop_out(gpu, [dy.ptr(); 2], [rows, cols], op.dropout);
    }
    let (dy, x) = (Factor::new(dy.ptr(), cols), Factor::new(op.x.ptr(), inner));
    let (dw, held) = backward.param_target(op.weight);
    if dw != Ptr::NULL {
        let (size, a, b) = match op.way {
            Orientation::Straight => ([cols, inner, rows], dy.t(), x),
            Orientation::Transposed => ([inner, cols, rows], x.t(), dy),
        };
        gpu.product(&Product {
            size,
            a,
            b,
            c: dw,
            c_cols: size[1],
            out: Dtype::F32,
            add: held != 0,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        });
    }
    let (dx, held) = backward.target(&op.x);
    if dx != Ptr::NULL {
        gpu.product(&Product {
            size: [rows, inner, cols],
            a: dy,
            b: factor(backward.params, op).t(),
            c: dx,
            c_cols: inner,
            out: gpu.act(),
            add: held != 0,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        });
    }
}

pub(super) fn dropout(gpu: &Gpu, x: &Var, dropout: Dropout, y: &Buffer) {
    drop_out(gpu, [x.ptr(), y.ptr()], x.shape(), Some(dropout));
}

pub(super) fn dropout_in_place(gpu: &Gpu, dy: &Buffer, shape: [usize; 2], dropout: Dropout) {
    drop_out(gpu, [dy.ptr(); 2], shape, Some(dropout));
}
