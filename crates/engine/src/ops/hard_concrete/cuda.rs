//! The GPU's implementation: a thread for each gate; a block sums the gradients of a head.

use super::{CLOSED, Draws, HardConcrete, LOW, MARGIN, Op, STEPS, TEMPERATURE, WIDTH};
use crate::cuda::kernel::kernels;
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::params::Params;
use crate::tape::Backward;

const THREADS: u32 = 256;

/// Origin of draws, as the kernel numbers it.
const NOTHING: u32 = 0;
const DRAWN: u32 = 1;
const GIVEN: u32 = 2;

kernels! {
    static FILE = "hard_concrete" at "hard_concrete.cu",
        constants [THREADS, NOTHING, DRAWN, CLOSED, LOW, MARGIN, STEPS, TEMPERATURE, WIDTH];

    struct Forward = hard_concrete_forward {
        log_a: *const f32,
        start: f32,
        stream: launch::Stream,
        how: u32,
        given: *const u32,
        weights: *mut f32,
        n: u32,
        heads: u32,
    }

    struct BackwardCall = hard_concrete_backward {
        dw: *const f32,
        weights: *const f32,
        log_a: *const f32,
        start: f32,
        temperature: f32,
        batch_rows: *const u32,
        loss_weight: *const f32,
        factor: *const f32,
        penalty: f32,
        gradient: *mut f32,
        add: u32,
        n: u32,
        heads: u32,
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    params: &Params,
    gate: HardConcrete,
    draws: &Draws,
    [rows, heads]: [usize; 2],
    weights: &Buffer,
) {
    let unused = crate::Rng::new(0, 0).stream(0);
    let (stream, how, given) = match draws {
        Draws::Nothing => (unused, NOTHING, Ptr::NULL),
        Draws::Stream(stream) => (*stream, DRAWN, Ptr::NULL),
        Draws::Given(ids) => (unused, GIVEN, ids.ptr()),
    };
    let call = Forward {
        log_a: params.master(gate.log_a),
        start: gate.start,
        stream: gpu.stream_argument(stream),
        how,
        given,
        weights: weights.ptr(),
        n: rows as u32,
        heads: heads as u32,
    };
    gpu.call(Shape::of((rows * heads).div_ceil(THREADS as usize), THREADS), &call);
}

pub(super) fn backward(gpu: &Gpu, backward: &mut Backward<'_>, op: &Op, dw: &Buffer) {
    let [rows, heads] = [op.weights.rows(), op.weights.cols()];
    let (gradient, add) = backward.param_target(op.gate.log_a);
    if gradient == Ptr::NULL {
        return;
    }
    let call = BackwardCall {
        dw: dw.ptr(),
        weights: op.weights.ptr(),
        log_a: backward.params.master(op.gate.log_a),
        start: op.gate.start,
        temperature: op.temperature,
        batch_rows: op.batch.as_ref().map_or(Ptr::NULL, |batch| batch.rows.valid_rows()),
        loss_weight: gpu.live(Live::LossWeight),
        factor: gpu.live(Live::OwnLossFactor),
        penalty: op.gate.penalty,
        gradient,
        add,
        n: rows as u32,
        heads: heads as u32,
    };
    gpu.call(Shape::of(heads, THREADS), &call);
}
