//! The GPU's implementation: one kernel each; a gate's network, its head weights included, is one product and one kernel.

use std::sync::Arc;

use super::{GateNetwork, Pick, Results};
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::params::Params;
use crate::rng::{Dropout, Stream};
use crate::tape::Backward;
use crate::{Tensor, Var};

/// Rows of a block, one warp each; the same of a block that computes a whole gate.
const ROWS: u32 = 4;
pub(crate) const GATE_ROWS: u32 = 8;
/// Hidden units and experts that the kernel for a whole gate can take.
const MOST_HIDDEN: usize = 1024;
const MOST_EXPERTS: usize = 32;
/// Hidden units for each run of a lane: eight for each of 32 lanes.
const HIDDEN_PER_RUN: usize = 256;
/// Runs of a lane at most; a gate is compiled for as many as it needs.
pub(crate) const GATE_RUNS: usize = MOST_HIDDEN / HIDDEN_PER_RUN;

/// The second half of a gate.
pub(crate) const GATE: (&str, &str) = ("gate.cuh", include_str!("gate.cuh"));

/// Ways to pick an expert, as kernels number them.
const SAMPLE: u32 = 0;
const SAMPLE_PER_SENTENCE: u32 = 1;
const ARGMAX: u32 = 2;
const FIXED: u32 = 3;
const GIVEN: u32 = 4;
/// No pick: the mixture of all.
const MIX: u32 = 5;

kernel_struct! {
    /// Rule by which a row gets its expert.
    pub(super) struct Picking {
        stream: launch::Stream,
        how: u32,
        given: *const u32,
        sentence_of_row: *const u32,
    }
}

kernels! {
    static FILE = "mixture" at "mixture.cu",
        constants [ROWS, GATE_ROWS, GATE_RUNS, SAMPLE, SAMPLE_PER_SENTENCE, ARGMAX, FIXED, GIVEN, MIX],
        headers &[GATE];

    struct MixForward = mix_forward {
        logits: *const Act,
        experts: *const f32,
        gates: *mut f32,
        weights: *mut f32,
        n: u32,
        count: u32,
        heads: u32,
    }

    struct MixBackward = mix_backward {
        d_weights: *const f32,
        gates: *const f32,
        experts: *const f32,
        d_logits: *mut Act,
        add: u32,
        n: u32,
        count: u32,
        heads: u32,
    }

    struct PickForward = pick_forward {
        logits: *const Act,
        experts: *const f32,
        picking: Picking,
        gates: *mut f32,
        weights: *mut f32,
        n: u32,
        count: u32,
        heads: u32,
    }

    /// The second half of a gate, with its head weights.
    struct GateWeights = gate_weights {
        z: *const Act,
        b1: *const f32,
        dropout: launch::Dropout,
        w2: *const f32,
        b2: *const f32,
        inner: u32,
        experts: *const f32,
        picking: Picking,
        gates: *mut f32,
        weights: *mut f32,
        n: u32,
        count: u32,
        heads: u32,
    }
}

/// One warp per row.
fn shape(rows: usize) -> Shape {
    Shape::of(rows.div_ceil(ROWS as usize), 32 * ROWS)
}

pub(super) fn mix(gpu: &Gpu, logits: &Var, experts: &Tensor, results: &Results) {
    let rows = logits.rows();
    let mix = MixForward {
        logits: logits.ptr(),
        experts: experts.ptr(),
        gates: results.gates.ptr(),
        weights: results.weights.ptr(),
        n: rows as u32,
        count: experts.rows() as u32,
        heads: experts.cols() as u32,
    };
    gpu.call(shape(rows), &mix);
}

pub(super) fn mix_backward(
    gpu: &Gpu,
    backward: &mut Backward<'_>,
    logits: &Var,
    experts: &Tensor,
    gates: &Tensor,
    dw: &Buffer,
) {
    let (d_logits, add) = backward.target(logits);
    if d_logits == Ptr::NULL {
        return;
    }
    let rows = logits.rows();
    let mix = MixBackward {
        d_weights: dw.ptr(),
        gates: gates.ptr(),
        experts: experts.ptr(),
        d_logits,
        add,
        n: rows as u32,
        count: experts.rows() as u32,
        heads: experts.cols() as u32,
    };
    gpu.call(shape(rows), &mix);
}

/// The kernels' view of `pick`, `None` for the mixture, and a block to hold on to until the launch. `stream` is there in
/// training passes.
pub(super) fn picking(
    gpu: &Arc<Gpu>,
    pick: Option<&Pick>,
    stream: Option<Stream>,
) -> (Picking, Option<Block>) {
    let drawn = || gpu.stream_argument(stream.expect("experts are drawn in training passes"));
    let unused = || gpu.stream_argument(crate::Rng::new(0, 0).stream(0));
    let null = Ptr::NULL;
    let of = |stream, how, given, sentence_of_row| Picking { stream, how, given, sentence_of_row };
    let Some(pick) = pick else { return (of(unused(), MIX, null, null), None) };
    match pick {
        Pick::Sample => (of(drawn(), SAMPLE, null, null), None),
        Pick::SamplePerSentence(segments) => {
            (of(drawn(), SAMPLE_PER_SENTENCE, null, segments.argument().sentence_of_row), None)
        }
        Pick::Argmax => (of(unused(), ARGMAX, null, null), None),
        Pick::Fixed(expert) => {
            let block = Block::new(gpu, 4);
            gpu.set_word(block.ptr(), *expert);
            (of(unused(), FIXED, block.ptr(), null), Some(block))
        }
        Pick::Given(ids) => (of(unused(), GIVEN, ids.ptr(), null), None),
    }
}

/// `logits` `None`: all experts are equally likely.
pub(super) fn pick(
    gpu: &Gpu,
    logits: Option<&Var>,
    experts: &Tensor,
    (picking, _held): (Picking, Option<Block>),
    results: &Results,
) {
    let rows = results.shapes[0][0];
    let pick = PickForward {
        logits: logits.map_or(Ptr::NULL, Var::ptr),
        experts: experts.ptr(),
        picking,
        gates: results.gates.ptr(),
        weights: results.weights.ptr(),
        n: rows as u32,
        count: experts.rows() as u32,
        heads: experts.cols() as u32,
    };
    gpu.call(shape(rows), &pick);
}

/// Returns true if [`weigh_by_gate`] has room for the network.
pub(crate) fn fits(params: &Params, network: &GateNetwork) -> bool {
    let [hidden, experts] = [network.fc1[0], network.fc2[0]].map(|id| params.block(id).rows);
    hidden <= MOST_HIDDEN && experts <= MOST_EXPERTS
}

/// The macro of kernels for a gate of so many hidden units.
pub(crate) fn gate_runs(hidden: usize) -> (&'static str, u32) {
    ("GATE_RUNS", hidden.div_ceil(HIDDEN_PER_RUN) as u32)
}

/// A gate's network with its input.
pub(super) struct Gate<'a> {
    pub(super) x: &'a Var,
    pub(super) network: &'a GateNetwork,
    pub(super) dropout: Option<Dropout>,
}

pub(super) fn weigh_by_gate(
    gpu: &Gpu,
    params: &Params,
    gate: &Gate<'_>,
    experts: &Tensor,
    (picking, _held): (Picking, Option<Block>),
    results: &Results,
) {
    let Gate { x, network, dropout } = gate;
    let block = params.block(network.fc1[0]);
    let (rows, hidden, inner) = (x.rows(), block.rows, block.cols);
    let z = params.device().scratch(rows * hidden);
    gpu.product(&Product {
        size: [rows, hidden, inner],
        a: Factor::new(x.ptr(), inner),
        b: Factor::new(params.weights(network.fc1[0]), inner).t(),
        c: z.ptr(),
        c_cols: hidden,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    let [b1, w2, b2] = [network.fc1[1], network.fc2[0], network.fc2[1]].map(|id| params.master(id));
    gpu.call_in(
        &Unit::with(&FILE, vec![gate_runs(hidden)]),
        Shape::of(rows.div_ceil(GATE_ROWS as usize), 32 * GATE_ROWS),
        &GateWeights {
            z: z.ptr(),
            b1,
            dropout: gpu.dropout_argument(*dropout),
            w2,
            b2,
            inner: hidden as u32,
            experts: experts.ptr(),
            picking,
            gates: results.gates.ptr(),
            weights: results.weights.ptr(),
            n: rows as u32,
            count: experts.rows() as u32,
            heads: experts.cols() as u32,
        },
    );
}
