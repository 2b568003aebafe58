//! What gates read: means of sentences, running means.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::pool::Pooling;
use crate::tape::RealRows;
use crate::{Segments, Tape, Tensor, Var};

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

/// Means that gates read, with what batch norm is to take for their mean and variance per column.
pub(super) struct Pooled {
    pub(super) rows: Var,
    pub(super) mean: Buffer,
    pub(super) variance: Buffer,
}

/// `Statistics` of the kernels.
#[repr(C)]
struct Statistics {
    mean: Ptr,
    variance: Ptr,
    running_mean: Ptr,
    running_var: Ptr,
    partials: Ptr,
    arrived: Ptr,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Statistics {}

/// Pools in training, without a gradient; `None` where no kernel does it together with the statistics.
pub(super) fn with_statistics(
    tape: &Tape<'_>,
    gpu: &Arc<Gpu>,
    x: &Var,
    pooling: Pooling<'_>,
    norm: BatchNorm,
) -> Option<Pooled> {
    let cols = x.cols();
    let (kernel, segments, rows, real) = match pooling {
        Pooling::Nothing => return None,
        Pooling::Sentence(s) => ("segment_mean_statistics", s, s.count(), RealRows::Sentences(s.clone())),
        Pooling::Running(s, None) => ("running_mean_statistics", s, s.rows(), RealRows::Rows(s.clone())),
        Pooling::Running(s, Some(_)) => ("window_mean_statistics", s, s.rows(), RealRows::Rows(s.clone())),
    };
    if !cols.is_multiple_of(64) || cols / 64 > Live::MOST_STRIPS {
        return None;
    }
    assert_eq!(x.rows(), segments.rows(), "{kernel}: rows and segments disagree");
    let y = tape.device().scratch(rows * cols);
    let [mean, variance] = std::array::from_fn(|_| tape.device().scratch_floats(cols));
    let partials = tape.device().scratch_floats(segments.count() * 2 * cols);
    // Running statistics move where they are: only this op reads them.
    let [running_mean, running_var] = [norm.running_mean, norm.running_var].map(|id| tape.params.master(id));
    let statistics = Statistics {
        mean: mean.ptr(),
        variance: variance.ptr(),
        running_mean,
        running_var,
        partials: partials.ptr(),
        arrived: gpu.live(Live::Arrived),
    };
    let (from, to, boundaries, width) = (x.ptr(), y.ptr(), segments.argument(), cols as u32);
    let mut arguments: Vec<&dyn Argument> = vec![&from, &boundaries, &to, &width, &statistics];
    let size;
    if let Pooling::Running(_, Some(window)) = pooling {
        size = window as u32;
        arguments.push(&size);
    }
    gpu.launch(&unit(), kernel, running_shape(segments, cols), &arguments);
    let rows = Var::constant(Tensor::new([rows, cols], y)).with_rows(real);
    Some(Pooled { rows, mean, variance })
}

fn running_shape(segments: &Segments, cols: usize) -> Shape {
    Shape::grid([segments.count(), cols.div_ceil(64)], 128)
}
