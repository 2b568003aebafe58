//! Linear maps without a bias, either way round, and dropout alone.

use std::sync::Arc;

use super::linear::{drop_out, record};
use crate::cuda::Gpu;
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::ops::project::Orientation;
use crate::rng::Dropout;
use crate::{ParamId, Tape, Var};

pub(crate) fn project(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    weight: ParamId,
    way: Orientation,
    dropout: Option<Dropout>,
) -> Var {
    let block = tape.params.block(weight);
    let (rows, stored) = (x.rows(), [block.rows, block.cols]);
    let [cols, inner] = if way == Orientation::Straight { stored } else { [stored[1], stored[0]] };
    // The factor [I, O] of X.
    let turn = move |weight: Ptr| match way {
        Orientation::Straight => Factor::new(weight, inner).t(),
        Orientation::Transposed => Factor::new(weight, cols),
    };
    let y = tape.device().scratch(rows * cols);
    let product = Product {
        size: [rows, cols, inner],
        a: Factor::new(x.ptr(), inner),
        b: turn(tape.params.weights(weight)),
        c: y.ptr(),
        c_cols: cols,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    };
    gpu.product(&product);
    if dropout.is_some() {
        drop_out(gpu, [y.ptr(); 2], [rows, cols], dropout);
    }
    let tracked = x.tracked() || tape.is_free(weight);
    let y = tape.output([rows, cols], y, tracked);
    let x = x.clone();
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        if dropout.is_some() {
            drop_out(gpu, [dy.ptr(); 2], [rows, cols], dropout);
        }
        let (dy, input) = (Factor::new(dy.ptr(), cols), Factor::new(x.ptr(), inner));
        let (c, held) = backward.param_target(weight);
        if c != Ptr::NULL {
            let [m, n] = stored;
            let (a, b) = match way {
                Orientation::Straight => (dy.t(), input),
                Orientation::Transposed => (input.t(), dy),
            };
            let (size, out, add) = ([m, n, rows], Dtype::F32, held != 0);
            gpu.product(&Product { size, a, b, c, c_cols: n, out, add, ..product });
        }
        let (c, held) = backward.target(&x);
        if c != Ptr::NULL {
            let b = turn(backward.params.weights(weight)).t();
            let (size, add) = ([rows, inner, cols], held != 0);
            gpu.product(&Product { size, a: dy, b, c, c_cols: inner, add, ..product });
        }
    });
    y
}

pub(crate) fn dropout(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, dropout: Dropout) -> Var {
    let shape = [x.rows(), x.cols()];
    let y = tape.device().scratch(x.tensor().count());
    drop_out(gpu, [x.ptr(), y.ptr()], shape, Some(dropout));
    let y = tape.output(shape, y, x.tracked());
    let x = x.clone();
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        drop_out(gpu, [dy.ptr(); 2], shape, Some(dropout));
        backward.give(&x, dy);
    });
    y
}
