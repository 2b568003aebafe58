//! From gate logits to head weights.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Plain, Ptr};
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

/// `logits` `None`: all experts are equally likely. `stream` is there in training passes.
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
    let drawn = || stream.expect("experts are drawn in training passes");
    let unused = || gpu.stream_argument(crate::Rng::new(0, 0).stream(0));
    let null = Ptr::NULL;
    let (how, stream, given, sentence_of_row) = match pick {
        Pick::Sample => (0, gpu.stream_argument(drawn()), null, null),
        Pick::SamplePerSentence(segments) => {
            (1, gpu.stream_argument(drawn()), null, segments.argument().sentence_of_row)
        }
        Pick::Argmax => (2, unused(), null, null),
        Pick::Fixed(_) => (3, unused(), null, null),
        Pick::Given(ids) => (4, unused(), ids.ptr(), null),
    };
    // The number of a fixed expert travels in a block of its own.
    let fixed = match pick {
        Pick::Fixed(expert) => Some(word(gpu, *expert)),
        _ => None,
    };
    let given = fixed.as_ref().map_or(given, crate::cuda::memory::Block::ptr);
    gpu.launch(
        &unit(),
        "pick_forward",
        shape(rows),
        &[
            &logits.map_or(Ptr::NULL, Var::ptr),
            &experts.ptr(),
            &stream,
            &(how as u32),
            &given,
            &sentence_of_row,
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

/// One number in device memory, set in stream order.
fn word<T: Plain + Into<u32>>(gpu: &Arc<Gpu>, value: T) -> crate::cuda::memory::Block {
    let block = crate::cuda::memory::Block::new(gpu, 4);
    gpu.set_word(block.ptr(), value.into());
    block
}
