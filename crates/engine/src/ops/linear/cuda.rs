//! The GPU's implementation: one product; bias and ReLU are part of it where nothing is dropped.

use std::sync::Arc;

use super::{Activation, Op};
use crate::Tensor;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::cuda::sums::{ColumnSum, KnownSums, MOST_PARTS};
use crate::device::Buffer;
use crate::params::Params;
use crate::rng::Dropout;
use crate::tape::Backward;

/// Activations as kernels number them.
const IDENTITY: usize = 0;
const RELU: usize = 1;
const TANH: usize = 2;
/// Runs of eight columns of a forward block, threads that share a run, and rows.
const FORWARD_RUNS: usize = 64;
const FORWARD_LANES: usize = 4;
const FORWARD_ROWS: usize = 16;
/// Runs of eight columns of a backward block, and threads that share a run.
const BACKWARD_RUNS: usize = 16;
const BACKWARD_LANES: usize = 16;

kernels! {
    static FILE = "linear" at "linear.cu",
        constants [
            IDENTITY, RELU, TANH, FORWARD_RUNS, FORWARD_LANES, FORWARD_ROWS, BACKWARD_RUNS, BACKWARD_LANES,
        ];

    struct BiasActForward = bias_act_forward {
        z: *const Act,
        bias: *const f32,
        kind: u32,
        dropout: launch::Dropout,
        y: *mut Act,
        rows: u32,
        cols: u32,
    }

    struct BiasActBackward = bias_act_backward {
        dy_to_dz: *mut Act,
        y: *const Act,
        kind: u32,
        dropout: launch::Dropout,
        partials: *mut f32,
        rows: u32,
        cols: u32,
        rows_per_part: u32,
    }
}

pub(super) fn forward(gpu: &Gpu, params: &Params, op: &Op, y: &Buffer) {
    let (cols, [rows, inner]) = (params.block(op.weight).rows, op.x.shape());
    let epilogue = match (op.act, op.dropout) {
        (Activation::Identity, None) => Epilogue::Bias,
        (Activation::Relu, None) => Epilogue::BiasRelu,
        _ => Epilogue::Nothing,
    };
    gpu.product(&Product {
        size: [rows, cols, inner],
        a: Factor::new(op.x.ptr(), inner),
        b: Factor::new(params.weights(op.weight), inner).t(),
        c: y.ptr(),
        c_cols: cols,
        out: gpu.act(),
        add: false,
        epilogue,
        bias: params.weights(op.bias),
    });
    if epilogue == Epilogue::Nothing {
        bias_act(gpu, [y.ptr(); 2], [rows, cols], params.master(op.bias), op.act, op.dropout);
    }
}

/// `y` is the output, where the slope of the activation is read off it.
pub(super) fn backward(gpu: &Arc<Gpu>, backward: &mut Backward<'_>, op: &Op, y: Option<Tensor>, dz: Buffer) {
    let (cols, [rows, inner]) = (backward.params.block(op.weight).rows, op.x.shape());
    let known_sums = backward.take_sums();
    if let Some(y) = &y {
        slope_and_bias(gpu, backward, op, y, &dz);
    }
    let dz = Arc::new(dz);
    let (dw, held) = backward.param_target(op.weight);
    if dw != Ptr::NULL {
        let product = Product {
            size: [cols, inner, rows],
            a: Factor::new(dz.ptr(), cols).t(),
            b: Factor::new(op.x.ptr(), inner),
            c: dw,
            c_cols: inner,
            out: Dtype::F32,
            add: held != 0,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        };
        backward.together.push(gpu, product, &dz, &op.x);
    }
    let (dx, held) = backward.target(&op.x);
    if dx != Ptr::NULL {
        gpu.product(&Product {
            size: [rows, inner, cols],
            a: Factor::new(dz.ptr(), cols),
            b: Factor::new(backward.params.weights(op.weight), inner),
            c: dx,
            c_cols: inner,
            out: gpu.act(),
            add: held != 0,
            epilogue: Epilogue::Nothing,
            bias: Ptr::NULL,
        });
    }
    if y.is_none() {
        // dZ is dY: only the sums of its columns are left to make, if its writer has not, and nothing waits for them.
        // (cuBLASLt can make them on the way to dW, but takes longer for both than kernels of our own.)
        let (target, held) = backward.param_target(op.bias);
        match known_sums {
            Some(KnownSums { partials, at, size }) => {
                backward.sums.push(gpu, ColumnSum::new(at, target, size, held), partials);
            }
            None => backward.sums.push_rows(gpu, dz, [rows, cols], target, held),
        }
    }
}

/// dY becomes dZ in place, and the sums of its columns the gradient of the bias.
fn slope_and_bias(gpu: &Arc<Gpu>, backward: &mut Backward<'_>, op: &Op, y: &Tensor, dz: &Buffer) {
    let [rows, cols] = [y.rows(), y.cols()];
    let rows_per_part = 64 * rows.div_ceil(64 * MOST_PARTS).max(1);
    let parts = rows.div_ceil(rows_per_part);
    let (target, held) = backward.param_target(op.bias);
    let wanted = target != Ptr::NULL;
    let partials = wanted.then(|| backward.device().scratch_floats(parts * cols));
    gpu.call(
        Shape::grid([cols.div_ceil(8 * BACKWARD_RUNS), parts], (BACKWARD_RUNS * BACKWARD_LANES) as u32),
        &BiasActBackward {
            dy_to_dz: dz.ptr(),
            y: y.ptr(),
            kind: kind(op.act),
            dropout: gpu.dropout_argument(op.dropout),
            partials: partials.as_ref().map_or(Ptr::NULL, Buffer::ptr),
            rows: rows as u32,
            cols: cols as u32,
            rows_per_part: rows_per_part as u32,
        },
    );
    if let Some(partials) = partials {
        backward.sums.push(gpu, ColumnSum::new(partials.ptr(), target, [parts, cols, cols], held), partials);
    }
}

/// `y = dropout(act(z + bias))`; z and y may be the same memory, the bias null.
fn bias_act(
    gpu: &Gpu,
    [z, y]: [Ptr; 2],
    [rows, cols]: [usize; 2],
    bias: Ptr,
    act: Activation,
    dropout: Option<Dropout>,
) {
    let blocks = [cols.div_ceil(8 * FORWARD_RUNS), rows.div_ceil(FORWARD_ROWS)];
    gpu.call(
        Shape::grid(blocks, (FORWARD_RUNS * FORWARD_LANES) as u32),
        &BiasActForward {
            z,
            bias,
            kind: kind(act),
            dropout: gpu.dropout_argument(dropout),
            y,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

/// `to = dropout(from)`, which may be the same memory: also the way back.
pub(crate) fn drop_out(gpu: &Gpu, [from, to]: [Ptr; 2], [rows, cols]: [usize; 2], dropout: Option<Dropout>) {
    bias_act(gpu, [from, to], [rows, cols], Ptr::NULL, Activation::Identity, dropout);
}

fn kind(act: Activation) -> u32 {
    let kind = match act {
        Activation::Identity => IDENTITY,
        Activation::Relu => RELU,
        Activation::Tanh => TANH,
    };
    kind as u32
}
