//! Linear layers: one product; bias and ReLU ride on it where nothing is dropped.

use std::sync::Arc;

use super::elementwise::ColumnSum;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::linear::Activation;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{ParamId, Tape, Var};

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
        let arguments = gpu.dropout_argument(dropout);
        gpu.launch(
            &Unit::plain("linear"),
            "bias_act_forward",
            Shape::grid([cols.div_ceil(512), rows.div_ceil(16)], 256),
            &[
                &y.ptr(),
                &tape.params.master(bias),
                &kind(act),
                &arguments,
                &y.ptr(),
                &(rows as u32),
                &(cols as u32),
            ],
        );
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

/// `to = dropout(from)`, which may be the same memory: also the way back.
pub(super) fn drop_out(gpu: &Gpu, [from, to]: [Ptr; 2], [rows, cols]: [usize; 2], dropout: Option<Dropout>) {
    let arguments = gpu.dropout_argument(dropout);
    gpu.launch(
        &Unit::plain("linear"),
        "bias_act_forward",
        Shape::grid([cols.div_ceil(512), rows.div_ceil(16)], 256),
        &[&from, &Ptr::NULL, &kind(Activation::Identity), &arguments, &to, &(rows as u32), &(cols as u32)],
    );
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
    match act {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Tanh => 2,
    }
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
    // Up to 100 parts.
    let rows_per_part = 64 * rows.div_ceil(6400).max(1);
    let parts = rows.div_ceil(rows_per_part);
    let (target, held) = backward.param_target(bias);
    let wanted = target != Ptr::NULL;
    let partials = wanted.then(|| backward.device().scratch_floats(parts * cols));
    let partials_ptr = partials.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    gpu.launch(
        &Unit::plain("linear"),
        "bias_act_backward",
        Shape::grid([cols.div_ceil(128), parts], 256),
        &[
            &dz.ptr(),
            &y,
            &kind(act),
            &gpu.dropout_argument(dropout),
            &partials_ptr,
            &(rows as u32),
            &(cols as u32),
            &(rows_per_part as u32),
        ],
    );
    if let Some(partials) = partials {
        backward.sums.push(gpu, ColumnSum::new(partials.ptr(), target, [parts, cols, cols], held), partials);
    }
}
