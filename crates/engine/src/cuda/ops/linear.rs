//! Linear layers: one product; bias and ReLU ride on it where nothing is dropped.

use std::sync::Arc;

use super::elementwise::ColumnSum;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::linear::Activation;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{ParamId, Tape, Var};

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
/// The same of a block that sums columns.
pub(super) const SUM_RUNS: usize = 32;
pub(super) const SUM_LANES: usize = 8;
/// Matrices that one launch sums.
pub(super) const MATRICES_PER_LAUNCH: usize = 8;
/// Parts of the rows at most that are summed by themselves. Their number decides the order of sums, and is the same on
/// every GPU.
pub(super) const MOST_PARTS: usize = 100;

kernel_struct! {
    /// A matrix whose columns are to be summed into partial sums.
    pub(super) struct RowSum {
        values: *const Act,
        partials: *mut f32,
        rows: u32,
        cols: u32,
        rows_per_part: u32,
    }
}

kernel_struct! {
    /// Matrices of one launch.
    pub(super) struct RowSums {
        job: [RowSum; MATRICES_PER_LAUNCH],
    }
}

kernels! {
    static FILE = "linear" at "../../../kernels/linear.cu",
        constants [
            IDENTITY, RELU, TANH, FORWARD_RUNS, FORWARD_LANES, FORWARD_ROWS, BACKWARD_RUNS, BACKWARD_LANES, SUM_RUNS,
            SUM_LANES, MATRICES_PER_LAUNCH,
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

    /// Partial sums of the columns of several matrices.
    pub(super) struct SumRows = sum_rows { jobs: RowSums }
}

pub(crate) fn linear(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    [weight, bias]: [ParamId; 2],
    act: Activation,
    dropout: Option<Dropout>,
) -> Var {
    let block = tape.params.block(weight);
    let (rows, inner, cols) = (x.rows(), block.cols, block.rows);
    let y = tape.device().scratch(rows * cols);
    let epilogue = match (act, dropout) {
        (Activation::Identity, None) => Epilogue::Bias,
        (Activation::Relu, None) => Epilogue::BiasRelu,
        _ => Epilogue::Nothing,
    };
    gpu.product(&Product {
        size: [rows, cols, inner],
        a: Factor::new(x.ptr(), inner),
        b: Factor::new(tape.params.weights(weight), inner).t(),
        c: y.ptr(),
        c_cols: cols,
        out: gpu.act(),
        add: false,
        epilogue,
        bias: tape.params.weights(bias),
    });
    if epilogue == Epilogue::Nothing {
        bias_act(gpu, [y.ptr(); 2], [rows, cols], tape.params.master(bias), act, dropout);
    }
    let tracked = x.tracked() || tape.is_free(weight) || tape.is_free(bias);
    let y = tape.output([rows, cols], y, tracked);
    let (input, output) = (x.clone(), y.tensor().clone());
    // The slope of an identity needs no output.
    let output = (act != Activation::Identity || dropout.is_some()).then_some(output);
    self::record(tape, gpu.clone(), &y, move |gpu, backward, dz| {
        let y = output.as_ref().map_or(Ptr::NULL, |output| output.ptr());
        if y != Ptr::NULL {
            slope_and_bias(gpu, backward, &dz, y, [rows, cols], bias, act, dropout);
        }
        let (dw, held) = backward.param_target(weight);
        if dw != Ptr::NULL {
            gpu.product(&Product {
                size: [cols, inner, rows],
                a: Factor::new(dz.ptr(), cols).t(),
                b: Factor::new(input.ptr(), inner),
                c: dw,
                c_cols: inner,
                out: Dtype::F32,
                add: held != 0,
                epilogue: Epilogue::Nothing,
                bias: Ptr::NULL,
            });
        }
        let (dx, held) = backward.target(&input);
        if dx != Ptr::NULL {
            gpu.product(&Product {
                size: [rows, inner, cols],
                a: Factor::new(dz.ptr(), cols),
                b: Factor::new(backward.params.weights(weight), inner),
                c: dx,
                c_cols: inner,
                out: gpu.act(),
                add: held != 0,
                epilogue: Epilogue::Nothing,
                bias: Ptr::NULL,
            });
        }
        if y == Ptr::NULL {
            // dZ is dY: only the sums of its columns are left to make, and nothing waits for them. (cuBLASLt can make
            // them on the way to dW, but takes longer for both than kernels of our own.)
            let (target, held) = backward.param_target(bias);
            backward.sums.push_rows(gpu, dz, [rows, cols], target, held);
        }
    });
    y
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
pub(super) fn drop_out(gpu: &Gpu, [from, to]: [Ptr; 2], [rows, cols]: [usize; 2], dropout: Option<Dropout>) {
    bias_act(gpu, [from, to], [rows, cols], Ptr::NULL, Activation::Identity, dropout);
}

/// Records a node that is handed the GPU.
pub(super) fn record(
    tape: &mut Tape<'_>,
    gpu: Arc<Gpu>,
    output: &Var,
    node: impl FnOnce(&Arc<Gpu>, &mut Backward<'_>, Buffer) + Send + 'static,
) {
    tape.record(output, move |backward, gradient| node(&gpu, backward, gradient));
}

fn kind(act: Activation) -> u32 {
    let kind = match act {
        Activation::Identity => IDENTITY,
        Activation::Relu => RELU,
        Activation::Tanh => TANH,
    };
    kind as u32
}

/// dY becomes dZ in place, and the sums of its columns the gradient of the bias.
#[expect(clippy::too_many_arguments, reason = "one kernel's arguments")]
fn slope_and_bias(
    gpu: &Arc<Gpu>,
    backward: &mut Backward<'_>,
    dz: &Buffer,
    y: Ptr,
    [rows, cols]: [usize; 2],
    bias: ParamId,
    act: Activation,
    dropout: Option<Dropout>,
) {
    let rows_per_part = 64 * rows.div_ceil(64 * MOST_PARTS).max(1);
    let parts = rows.div_ceil(rows_per_part);
    let (target, held) = backward.param_target(bias);
    let wanted = target != Ptr::NULL;
    let partials = wanted.then(|| backward.device().scratch_floats(parts * cols));
    let partials_ptr = partials.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    gpu.call(
        Shape::grid([cols.div_ceil(8 * BACKWARD_RUNS), parts], (BACKWARD_RUNS * BACKWARD_LANES) as u32),
        &BiasActBackward {
            dy_to_dz: dz.ptr(),
            y,
            kind: kind(act),
            dropout: gpu.dropout_argument(dropout),
            partials: partials_ptr,
            rows: rows as u32,
            cols: cols as u32,
            rows_per_part: rows_per_part as u32,
        },
    );
    if let Some(partials) = partials {
        backward.sums.push(gpu, ColumnSum::new(partials.ptr(), target, [parts, cols, cols], held), partials);
    }
}
