//! From gate logits to head weights.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{self, Argument, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::ops::mixture::{HeadMix, Pick};
use crate::rng::Stream;
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
pub(super) struct Picking {
    stream: launch::Stream,
    how: u32,
    given: Ptr,
    sentence_of_row: Ptr,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Picking {}

/// The kernels' view of `pick`, and a block to hold on to until the launch. `stream` is there in training passes.
pub(super) fn picking(gpu: &Arc<Gpu>, pick: &Pick, stream: Option<Stream>) -> (Picking, Option<Block>) {
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
