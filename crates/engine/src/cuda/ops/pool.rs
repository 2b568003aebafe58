//! What gates read: means of sentences, running means.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
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
    let window = window.map(|window| window as u32);
    let y = tape.device().scratch(x.tensor().count());
    let kernels = ["running_mean_forward", "running_mean_window_forward"];
    running(gpu, kernels, x.ptr(), segments, window, &[&y.ptr(), &(cols as u32)], cols);
    let y = tape.output([x.rows(), cols], y, x.tracked()).with_rows(RealRows::Rows(segments.clone()));
    let (x, segments) = (x.clone(), segments.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, held) = backward.target(&x);
        if dx != Ptr::NULL {
            let kernels = ["running_mean_backward", "running_mean_window_backward"];
            running(gpu, kernels, dy.ptr(), &segments, window, &[&dx, &held, &(cols as u32)], cols);
        }
    });
    y
}

/// Launches the first of two kernels, or for a window the second, which takes its length before what comes `then`.
fn running(
    gpu: &Gpu,
    [plain, windowed]: [&'static str; 2],
    from: Ptr,
    segments: &Segments,
    window: Option<u32>,
    then: &[&dyn Argument],
    cols: usize,
) {
    let (kernel, columns, threads) = if window.is_some() { (windowed, 32, 256) } else { (plain, 64, 128) };
    let rows = segments.argument();
    let mut arguments: Vec<&dyn Argument> = vec![&from, &rows];
    arguments.extend(window.as_ref().map(|window| window as &dyn Argument));
    arguments.extend(then);
    let shape = Shape::grid([segments.count(), cols.div_ceil(columns)], threads);
    gpu.launch(&unit(), kernel, shape, &arguments);
}
