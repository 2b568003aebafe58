//! From gate logits to head weights.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{self, Argument, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::ops::mixture::{GateNetwork, HeadMix, Pick};
use crate::rng::{Dropout, Stream};
use crate::{Tape, Tensor, Var};

fn unit() -> Unit {
    Unit::plain("mixture")
}

/// One warp per row.
fn shape(rows: usize) -> Shape {
    Shape::of(rows.div_ceil(4), 128)
}

pub(crate) fn mix_experts(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, logits: &Var, experts: &Tensor) -> HeadMix {
    let (rows, count, heads) = (logits.rows(), experts.rows(), experts.cols());
    let sizes = [rows, count, heads].map(|n| n as u32);
    let gates = tape.device().scratch_floats(rows * count);
    let weights = tape.device().scratch_floats(rows * heads);
    gpu.launch(
        &unit(),
        "mix_forward",
        shape(rows),
        &[&logits.ptr(), &experts.ptr(), &gates.ptr(), &weights.ptr(), &sizes[0], &sizes[1], &sizes[2]],
    );
    let gates = Tensor::new([rows, count], gates);
    let weights = tape.output([rows, heads], weights, logits.tracked());
    let (logits, experts, own) = (logits.clone(), experts.clone(), gates.clone());
    record(tape, gpu.clone(), &weights, move |gpu, backward, dw| {
        let (dl, held) = backward.target(&logits);
        if dl != Ptr::NULL {
            gpu.launch(
                &unit(),
                "mix_backward",
                shape(rows),
                &[&dw.ptr(), &own.ptr(), &experts.ptr(), &dl, &held, &sizes[0], &sizes[1], &sizes[2]],
            );
        }
    });
    HeadMix { weights, gates }
}

/// `Picking` of the kernels.
#[repr(C)]
struct Picking {
    stream: launch::Stream,
    how: u32,
    given: Ptr,
    sentence_of_row: Ptr,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Picking {}

/// The kernels' view of `pick`, and a block to hold on to until the launch. `stream` is there in training passes.
fn picking(gpu: &Arc<Gpu>, pick: &Pick, stream: Option<Stream>) -> (Picking, Option<Block>) {
    let drawn = || gpu.stream_argument(stream.expect("experts are drawn in training passes"));
    let unused = || gpu.stream_argument(crate::Rng::new(0, 0).stream(0));
    let null = Ptr::NULL;
    let of = |stream, how, given, sentence_of_row| Picking { stream, how, given, sentence_of_row };
    match pick {
        Pick::Sample => (of(drawn(), 0, null, null), None),
        Pick::SamplePerSentence(segments) => {
            (of(drawn(), 1, null, segments.argument().sentence_of_row), None)
        }
        Pick::Argmax => (of(unused(), 2, null, null), None),
        Pick::Fixed(expert) => {
            let block = Block::new(gpu, 4);
            gpu.set_word(block.ptr(), *expert);
            (of(unused(), 3, block.ptr(), null), Some(block))
        }
        Pick::Given(ids) => (of(unused(), 4, ids.ptr(), null), None),
    }
}

/// `logits` `None`: all experts are equally likely.
pub(crate) fn pick_experts(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    rows: usize,
    logits: Option<&Var>,
    experts: &Tensor,
    pick: &Pick,
    stream: Option<Stream>,
) -> HeadMix {
    let (count, heads) = (experts.rows(), experts.cols());
    let sizes = [rows, count, heads].map(|n| n as u32);
    let gates = tape.device().scratch_floats(rows * count);
    let weights = tape.device().scratch_floats(rows * heads);
    let (picking, _held) = picking(gpu, pick, stream);
    gpu.launch(
        &unit(),
        "pick_forward",
        shape(rows),
        &[
            &logits.map_or(Ptr::NULL, Var::ptr),
            &experts.ptr(),
            &picking,
            &gates.ptr(),
            &weights.ptr(),
            &sizes[0],
            &sizes[1],
            &sizes[2],
        ],
    );
    let weights = Var::constant(Tensor::new([rows, heads], weights));
    HeadMix { weights, gates: Tensor::new([rows, count], gates) }
}

/// Hidden units and experts that the kernel for a whole gate can take.
const MOST_HIDDEN: usize = 1024;
const MOST_EXPERTS: usize = 32;

/// Whether [`pick_by_gate`] can do it.
pub(crate) fn fits(tape: &Tape<'_>, network: &GateNetwork) -> bool {
    let [hidden, experts] = [network.fc1[0], network.fc2[0]].map(|id| tape.params.block(id).rows);
    hidden <= MOST_HIDDEN && experts <= MOST_EXPERTS
}

/// A gate's network and the pick: one product and one kernel. `streams`: of the dropout and of the pick.
pub(crate) fn pick_by_gate(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    network: &GateNetwork,
    experts: &Tensor,
    pick: &Pick,
    (dropout, stream): (Option<Dropout>, Option<Stream>),
) -> HeadMix {
    let (rows, count, heads) = (x.rows(), experts.rows(), experts.cols());
    let block = tape.params.block(network.fc1[0]);
    let (hidden, inner) = (block.rows, block.cols);
    let z = tape.device().scratch(rows * hidden);
    gpu.product(&Product {
        size: [rows, hidden, inner],
        a: Factor::new(x.ptr(), inner),
        b: Factor::new(tape.params.weights(network.fc1[0]), inner).t(),
        c: z.ptr(),
        c_cols: hidden,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    let gates = tape.device().scratch_floats(rows * count);
    let weights = tape.device().scratch_floats(rows * heads);
    let (picking, _held) = picking(gpu, pick, stream);
    let [b1, w2, b2] = [network.fc1[1], network.fc2[0], network.fc2[1]].map(|id| tape.params.master(id));
    let runs = hidden.div_ceil(256) as u32;
    gpu.launch(
        &Unit { file: "mixture", macros: vec![("GATE_RUNS", runs)] },
        "gate_pick",
        Shape::of(rows.div_ceil(8), 256),
        &[
            &z.ptr(),
            &b1,
            &gpu.dropout_argument(dropout),
            &w2,
            &b2,
            &(hidden as u32),
            &experts.ptr(),
            &picking,
            &gates.ptr(),
            &weights.ptr(),
            &(rows as u32),
            &(count as u32),
            &(heads as u32),
        ],
    );
    let weights = Var::constant(Tensor::new([rows, heads], weights));
    HeadMix { weights, gates: Tensor::new([rows, count], gates) }
}
