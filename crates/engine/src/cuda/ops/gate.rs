//! A gate's network and the expert picked by it, without a gradient.

use std::sync::Arc;

use super::batch_norm::{self, Batch};
use super::mixture::picking;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::mixture::{GateNetwork, HeadMix, Pick};
use crate::rng::{Dropout, Stream};
use crate::{Tape, Tensor, Var};

/// Hidden units and experts that the kernels can take.
const MOST_HIDDEN: usize = 1024;
const MOST_EXPERTS: usize = 32;

/// Whether [`pick_by_gate`] can do it.
pub(crate) fn fits(tape: &Tape<'_>, network: &GateNetwork) -> bool {
    let [hidden, experts] = [network.fc1[0], network.fc2[0]].map(|id| tape.params.block(id).rows);
    hidden <= MOST_HIDDEN && experts <= MOST_EXPERTS
}

/// A gate's norm, network and pick; `streams`: of the dropout and of the pick.
pub(crate) fn pick_by_gate(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    (norm, network): (BatchNorm, &GateNetwork),
    experts: &Tensor,
    pick: &Pick,
    streams: (Option<Dropout>, Option<Stream>),
) -> HeadMix {
    let (rows, count, heads) = (x.rows(), experts.rows(), experts.cols());
    let hidden = tape.params.block(network.fc1[0]).rows;
    let gates = tape.device().scratch_floats(rows * count);
    let weights = tape.device().scratch_floats(rows * heads);
    let (picking, _held) = picking(gpu, pick, streams.1);
    let dropout = gpu.dropout_argument(streams.0);
    let sizes = [hidden, rows, count, heads].map(|n| n as u32);
    let [b1, b2] = [network.fc1[1], network.fc2[1]].map(|id| tape.params.master(id));
    // Both kernels take the same after their inputs.
    let launch = |unit: Unit, kernel, shape, inputs: &[&dyn Argument], w2: Ptr| {
        let outputs = [gates.ptr(), weights.ptr()];
        let rest: [&dyn Argument; 12] = [
            &b1,
            &dropout,
            &w2,
            &b2,
            &sizes[0],
            &experts.ptr(),
            &picking,
            &outputs[0],
            &outputs[1],
            &sizes[1],
            &sizes[2],
            &sizes[3],
        ];
        gpu.launch(&unit, kernel, shape, &[inputs, &rest].concat());
    };
    if on_tensor_cores(gpu, x.cols(), hidden) {
        let (width, batch) = (x.cols(), Batch::of(tape, gpu, x));
        let [w1, w2] = [network.fc1[0], network.fc2[0]].map(|id| tape.params.weights(id));
        let unit = Unit { file: "gate", macros: vec![("GATE_WIDTH", width as u32)] };
        let shape = Shape::of(rows.div_ceil(if width <= 512 { 32 } else { 16 }), 256);
        launch(unit, "gate_network", shape, &[&x.ptr(), &Norm::of(tape, norm, &batch), &w1], w2);
    } else {
        let x = batch_norm::batch_norm(tape, gpu, x, norm);
        let z = first_layer(tape, gpu, &x, network);
        let unit = Unit { file: "gate", macros: vec![("GATE_RUNS", hidden.div_ceil(256) as u32)] };
        let w2 = tape.params.master(network.fc2[0]);
        launch(unit, "gate_pick", Shape::of(rows.div_ceil(8), 256), &[&z.ptr()], w2);
    }
    let weights = Var::constant(Tensor::new([rows, heads], weights));
    HeadMix { weights, gates: Tensor::new([rows, count], gates) }
}

/// Whether the kernel that does everything can take these sizes.
fn on_tensor_cores(gpu: &Gpu, width: usize, hidden: usize) -> bool {
    gpu.act() == Dtype::Bf16
        && width.is_power_of_two()
        && (64..=1024).contains(&width)
        && hidden.is_multiple_of(32)
}

/// `Norm` of the kernels.
#[repr(C)]
struct Norm {
    valid: Ptr,
    partials: Ptr,
    gamma: Ptr,
    beta: Ptr,
    running_mean: Ptr,
    running_var: Ptr,
    parts: u32,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Norm {}

impl Norm {
    fn of(tape: &Tape<'_>, norm: BatchNorm, batch: &Batch) -> Self {
        let BatchNorm { weight, bias, running_mean, running_var } = norm;
        let [gamma, beta, running_mean, running_var] =
            [weight, bias, running_mean, running_var].map(|id| tape.params.master(id));
        let (valid, partials, parts) = (batch.valid, batch.partials(), batch.parts as u32);
        Self { valid, partials, gamma, beta, running_mean, running_var, parts }
    }
}

/// z = W₁·x.
fn first_layer(tape: &Tape<'_>, gpu: &Arc<Gpu>, x: &Var, network: &GateNetwork) -> Buffer {
    let block = tape.params.block(network.fc1[0]);
    let (hidden, width) = (block.rows, block.cols);
    let z = tape.device().scratch(x.rows() * hidden);
    gpu.product(&Product {
        size: [x.rows(), hidden, width],
        a: Factor::new(x.ptr(), width),
        b: Factor::new(tape.params.weights(network.fc1[0]), width).t(),
        c: z.ptr(),
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    z
}
