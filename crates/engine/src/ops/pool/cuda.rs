//! The GPU's implementation: one kernel each way.

use super::Running;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{Segments as Sentences, Shape};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::tape::Backward;
use crate::{Segments, Var};

/// Columns and threads of a block; the same of a block for windows.
const COLUMNS: u32 = 64;
const THREADS: u32 = 128;
const WINDOW_COLUMNS: u32 = 32;
const WINDOW_THREADS: u32 = 256;

kernels! {
    static FILE = "pool" at "pool.cu",
        constants [COLUMNS, THREADS, WINDOW_COLUMNS, WINDOW_THREADS];

    struct SegmentMeanForward = segment_mean_forward {
        x: *const Act,
        segments: Sentences,
        y: *mut Act,
        cols: u32,
    }
    struct SegmentMeanBackward = segment_mean_backward {
        dy: *const Act,
        segments: Sentences,
        dx: *mut Act,
        add: u32,
        cols: u32,
    }
    struct RunningMeanForward = running_mean_forward {
        x: *const Act,
        segments: Sentences,
        y: *mut Act,
        cols: u32,
    }
    struct RunningMeanBackward = running_mean_backward {
        dy: *const Act,
        segments: Sentences,
        dx: *mut Act,
        add: u32,
        cols: u32,
    }
    struct WindowForward = running_mean_window_forward {
        x: *const Act,
        segments: Sentences,
        window: u32,
        y: *mut Act,
        cols: u32,
    }
    struct WindowBackward = running_mean_window_backward {
        dy: *const Act,
        segments: Sentences,
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

pub(super) fn segment_mean(gpu: &Gpu, x: &Var, segments: &Segments, y: &Buffer) {
    let cols = x.cols();
    let mean =
        SegmentMeanForward { x: x.ptr(), segments: segments.argument(), y: y.ptr(), cols: cols as u32 };
    gpu.call(shape(segments, cols), &mean);
}

pub(super) fn segment_mean_backward(
    gpu: &Gpu,
    backward: &mut Backward<'_>,
    x: &Var,
    segments: &Segments,
    dy: &Buffer,
) {
    let (dx, add) = backward.target(x);
    if dx == Ptr::NULL {
        return;
    }
    let runs = segments.rows() * x.cols().div_ceil(8);
    let cols = x.cols() as u32;
    let mean = SegmentMeanBackward { dy: dy.ptr(), segments: segments.argument(), dx, add, cols };
    gpu.call(Shape::of(runs.div_ceil(THREADS as usize), THREADS), &mean);
}

pub(super) fn running_mean(gpu: &Gpu, op: &Running, y: &Buffer) {
    let (x, y, cols) = (op.x.ptr(), y.ptr(), op.x.cols() as u32);
    let segments = op.segments.argument();
    match op.window {
        None => {
            gpu.call(shape(&op.segments, op.x.cols()), &RunningMeanForward { x, segments, y, cols });
        }
        Some(window) => {
            let window = window as u32;
            gpu.call(
                window_shape(&op.segments, op.x.cols()),
                &WindowForward { x, segments, window, y, cols },
            );
        }
    }
}

pub(super) fn running_mean_backward(gpu: &Gpu, backward: &mut Backward<'_>, op: &Running, dy: &Buffer) {
    let (dx, add) = backward.target(&op.x);
    if dx == Ptr::NULL {
        return;
    }
    let (dy, cols, segments) = (dy.ptr(), op.x.cols() as u32, op.segments.argument());
    match op.window {
        None => {
            let mean = RunningMeanBackward { dy, segments, dx, add, cols };
            gpu.call(shape(&op.segments, op.x.cols()), &mean);
        }
        Some(window) => {
            let mean = WindowBackward { dy, segments, window: window as u32, dx, add, cols };
            gpu.call(window_shape(&op.segments, op.x.cols()), &mean);
        }
    }
}
