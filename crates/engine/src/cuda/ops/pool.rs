//! What gates read: means of sentences, running means.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::tape::RealRows;
use crate::{Segments, Tape, Var};

fn unit() -> Unit {
    Unit::plain("pool")
}

pub(crate) fn segment_mean(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, segments: &Segments) -> Var {
    let (cols, count) = (x.cols(), segments.count());
    let y = tape.device().scratch(count * cols);
    let shape = Shape::grid([count, cols.div_ceil(64)], 128);
    gpu.launch(
        &unit(),
        "segment_mean_forward",
        shape,
        &[&x.ptr(), &segments.argument(), &y.ptr(), &(cols as u32)],
    );
    let y = tape.output([count, cols], y, x.tracked()).with_rows(RealRows::Sentences(segments.clone()));
    let (x, segments) = (x.clone(), segments.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, held) = backward.target(&x);
        if dx != Ptr::NULL {
            let shape = Shape::of((segments.rows() * cols.div_ceil(8)).div_ceil(128), 128);
            let arguments = segments.argument();
            gpu.launch(
                &unit(),
                "segment_mean_backward",
                shape,
                &[&dy.ptr(), &arguments, &dx, &held, &(cols as u32)],
            );
        }
    });
    y
}

pub(crate) fn running_mean(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    segments: &Segments,
    window: Option<usize>,
) -> Var {
    let cols = x.cols();
    let window = window.unwrap_or(0) as u32;
    let y = tape.device().scratch(x.tensor().count());
    let arguments = segments.argument();
    gpu.launch(
        &unit(),
        "running_mean_forward",
        running_shape(segments, cols),
        &[&x.ptr(), &arguments, &window, &y.ptr(), &(cols as u32)],
    );
    let y = tape.output([x.rows(), cols], y, x.tracked()).with_rows(RealRows::Rows(segments.clone()));
    let (x, segments) = (x.clone(), segments.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, held) = backward.target(&x);
        if dx != Ptr::NULL {
            gpu.launch(
                &unit(),
                "running_mean_backward",
                running_shape(&segments, cols),
                &[&dy.ptr(), &segments.argument(), &window, &dx, &held, &(cols as u32)],
            );
        }
    });
    y
}

fn running_shape(segments: &Segments, cols: usize) -> Shape {
    Shape::grid([segments.count(), cols.div_ceil(64)], 128)
}
