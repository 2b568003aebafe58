//! The CPU's implementation: one task per sentence.

use rayon::prelude::*;

use super::Running;
use crate::cpu::{for_rows, split_segments, vectorised};
use crate::device::Buffer;
use crate::tape::Backward;
use crate::{Segments, Var};

pub(super) fn segment_mean(x: &Var, segments: &Segments, y: &mut [f32]) {
    y.par_chunks_exact_mut(x.cols()).enumerate().for_each(|(sentence, mean)| {
        let range = segments.range(sentence);
        let inverse = 1.0 / range.len().max(1) as f32;
        vectorised(
            #[inline(always)]
            || {
                mean.fill(0.0);
                for row in range {
                    mean.iter_mut().zip(x.tensor().row(row)).for_each(|(m, v)| *m += v);
                }
                mean.iter_mut().for_each(|m| *m *= inverse);
            },
        );
    });
}

pub(super) fn segment_mean_backward(backward: &mut Backward<'_>, x: &Var, segments: &Segments, dy: &[f32]) {
    let cols = x.cols();
    backward.input(x, |dx, held| {
        let parts = split_segments(dx, cols, segments);
        parts.into_par_iter().zip(dy.par_chunks_exact(cols)).for_each(|(rows, dy)| {
            let inverse = cols as f32 / rows.len().max(1) as f32;
            for dx in rows.chunks_exact_mut(cols) {
                dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = if held { *dx } else { 0.0 } + dy * inverse);
            }
        });
    });
}

pub(super) fn running_mean(op: &Running, y: &mut [f32]) {
    let Running { x, segments, window } = op;
    let (cols, window) = (x.cols(), window.unwrap_or(usize::MAX));
    split_segments(y, cols, segments).into_par_iter().enumerate().for_each(|(sentence, out)| {
        let first = segments.range(sentence).start;
        vectorised(
            #[inline(always)]
            || {
                // Doubles: values that leave the window are subtracted, and their rounding must not stay behind.
                let mut sum = vec![0.0f64; cols];
                for (t, y) in out.chunks_exact_mut(cols).enumerate() {
                    sum.iter_mut().zip(x.tensor().row(first + t)).for_each(|(s, v)| *s += f64::from(*v));
                    if t >= window {
                        let left = x.tensor().row(first + t - window);
                        sum.iter_mut().zip(left).for_each(|(s, v)| *s -= f64::from(*v));
                    }
                    let inverse = 1.0 / (t + 1).min(window) as f64;
                    y.iter_mut().zip(&sum).for_each(|(y, s)| *y = (s * inverse) as f32);
                }
            },
        );
    });
}

pub(super) fn running_mean_backward(backward: &mut Backward<'_>, op: &Running, mut dy: Buffer) {
    let Running { x, segments, window } = op;
    let (cols, window) = (x.cols(), window.unwrap_or(usize::MAX));
    // dx_s = Σ dy_t/c_t over s ≤ t < s + window: divide first, then a running sum from the end.
    let counts: Vec<f32> =
        segments.ranges().flat_map(|r| (0..r.len()).map(|t| (t + 1).min(window) as f32)).collect();
    for_rows(
        &mut dy,
        cols,
        #[inline(always)]
        |first, rows| {
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                let inverse = 1.0 / counts[first + i];
                row.iter_mut().for_each(|v| *v *= inverse);
            }
        },
    );
    backward.input(x, |dx, held| {
        split_segments(dx, cols, segments).into_par_iter().enumerate().for_each(|(sentence, out)| {
            let range = segments.range(sentence);
            vectorised(
                #[inline(always)]
                || {
                    let mut sum = vec![0.0f64; cols];
                    for (t, dx) in out.chunks_exact_mut(cols).enumerate().rev() {
                        let row = |t: usize| &dy[(range.start + t) * cols..][..cols];
                        sum.iter_mut().zip(row(t)).for_each(|(s, v)| *s += f64::from(*v));
                        if let Some(right) = t.checked_add(window).filter(|&right| right < range.len()) {
                            sum.iter_mut().zip(row(right)).for_each(|(s, v)| *s -= f64::from(*v));
                        }
                        for (dx, s) in dx.iter_mut().zip(&sum) {
                            *dx = if held { *dx } else { 0.0 } + *s as f32;
                        }
                    }
                },
            );
        });
    });
}
