//! What gates read: means of sentences, running means.

use std::sync::Arc;

use super::record;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::Ptr;
use crate::tape::RealRows;
use crate::{Segments, Tape, Var};

/// Columns and threads of a block; the same of a block for windows.
const COLUMNS: u32 = 64;
const THREADS: u32 = 128;
const WINDOW_COLUMNS: u32 = 32;
const WINDOW_THREADS: u32 = 256;

kernels! {
    static FILE = "pool" at "../../../kernels/pool.cu",
        constants [COLUMNS, THREADS, WINDOW_COLUMNS, WINDOW_THREADS];

    struct SegmentMeanForward = segment_mean_forward {
        x: *const Act,
        segments: launch::Segments,
        y: *mut Act,
        cols: u32,
    }
    struct SegmentMeanBackward = segment_mean_backward {
        dy: *const Act,
        segments: launch::Segments,
        dx: *mut Act,
        add: u32,
        cols: u32,
    }
    struct RunningMeanForward = running_mean_forward {
        x: *const Act,
        segments: launch::Segments,
        y: *mut Act,
        cols: u32,
    }
    struct RunningMeanBackward = running_mean_backward {
        dy: *const Act,
        segments: launch::Segments,
        dx: *mut Act,
        add: u32,
        cols: u32,
    }
    struct WindowForward = running_mean_window_forward {
        x: *const Act,
        segments: launch::Segments,
        window: u32,
        y: *mut Act,
        cols: u32,
    }
    struct WindowBackward = running_mean_window_backward {
        dy: *const Act,
        segments: launch::Segments,
        window: u32,
        dx: *mut Act,
        add: u32,
        cols: u32,
    }
}

/// Blocks of one sentence and some columns each.
fn shape(segments: &Segments, cols: usize) -> Shape {
    Shape::grid([segments.count(), cols.div_ceil(COLUMNS as usize)], THREADS)
}

fn window_shape(segments: &Segments, cols: usize) -> Shape {
    Shape::grid([segments.count(), cols.div_ceil(WINDOW_COLUMNS as usize)], WINDOW_THREADS)
}

pub(crate) fn segment_mean(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, segments: &Segments) -> Var {
    let (cols, count) = (x.cols(), segments.count());
    let y = tape.device().scratch(count * cols);
    let mean =
        SegmentMeanForward { x: x.ptr(), segments: segments.argument(), y: y.ptr(), cols: cols as u32 };
    gpu.call(shape(segments, cols), &mean);
    let y = tape.output([count, cols], y, x.tracked()).with_rows(RealRows::Sentences(segments.clone()));
    let (x, segments) = (x.clone(), segments.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, held) = backward.target(&x);
        if dx != Ptr::NULL {
            let runs = segments.rows() * cols.div_ceil(8);
            let mean = SegmentMeanBackward {
                dy: dy.ptr(),
                segments: segments.argument(),
                dx,
                add: held,
                cols: cols as u32,
            };
            gpu.call(Shape::of(runs.div_ceil(THREADS as usize), THREADS), &mean);
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
    forward(gpu, x.ptr(), segments, window, y.ptr(), cols);
    let y = tape.output([x.rows(), cols], y, x.tracked()).with_rows(RealRows::Rows(segments.clone()));
    let (x, segments) = (x.clone(), segments.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, add) = backward.target(&x);
        if dx == Ptr::NULL {
            return;
        }
        let (dy, cols_u32, argument) = (dy.ptr(), cols as u32, segments.argument());
        match window {
            None => {
                let mean = RunningMeanBackward { dy, segments: argument, dx, add, cols: cols_u32 };
                gpu.call(shape(&segments, cols), &mean);
            }
            Some(window) => {
                let mean = WindowBackward { dy, segments: argument, window, dx, add, cols: cols_u32 };
                gpu.call(window_shape(&segments, cols), &mean);
            }
        }
    });
    y
}

fn forward(gpu: &Gpu, x: Ptr, segments: &Segments, window: Option<u32>, y: Ptr, cols: usize) {
    let (argument, cols_u32) = (segments.argument(), cols as u32);
    match window {
        None => {
            let mean = RunningMeanForward { x, segments: argument, y, cols: cols_u32 };
            gpu.call(shape(segments, cols), &mean);
        }
        Some(window) => {
            let mean = WindowForward { x, segments: argument, window, y, cols: cols_u32 };
            gpu.call(window_shape(segments, cols), &mean);
        }
    }
}
