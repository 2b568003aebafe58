//! What CPU code shares: matrix products, parallel row loops with fixed order of sums, vectorised exponentials.

pub mod gemm;
pub(crate) mod math;

use rayon::prelude::*;

/// Runs `body` compiled for the widest vectors this machine has.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    struct Body<F>(F);
    impl<R, F: FnOnce() -> R> pulp::WithSimd for Body<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, simd: S) -> R {
            simd.vectorize(
                #[inline(always)]
                || (self.0)(),
            )
        }
    }
    pulp::Arch::new().dispatch(Body(body))
}

/// Rows that one task takes at a time. Fixed, so that partial sums over rows do not depend on the threads.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// Calls `body(first row, rows as one slice)` for runs of rows of a mutable matrix, in parallel.
pub(crate) fn for_rows(matrix: &mut [f32], cols: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    if cols == 0 {
        return;
    }
    let task = |(chunk, rows): (usize, &mut [f32])| {
        vectorised(
            #[inline(always)]
            || body(chunk * ROWS_PER_TASK, rows),
        )
    };
    if matrix.len() <= ROWS_PER_TASK * cols {
        matrix.chunks_mut(ROWS_PER_TASK * cols).enumerate().for_each(task);
    } else {
        matrix.par_chunks_mut(ROWS_PER_TASK * cols).enumerate().for_each(task);
    }
}

/// Sums over rows in a fixed order: `body(rows, partial)` adds the rows of its range to a zeroed `partial` of
/// `width` values; the partials are added to (or replace) `total` in order.
pub(crate) fn sum_rows(
    rows: usize,
    width: usize,
    total: &mut [f32],
    held: bool,
    body: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let chunk = (4 * ROWS_PER_TASK).max(1);
    let partials: Vec<Vec<f32>> = (0..rows.div_ceil(chunk))
        .into_par_iter()
        .map(|task| {
            let mut partial = vec![0.0; width];
            vectorised(
                #[inline(always)]
                || body(task * chunk..rows.min((task + 1) * chunk), &mut partial),
            );
            partial
        })
        .collect();
    if !held {
        total.fill(0.0);
    }
    for partial in partials {
        add(total, &partial);
    }
}

/// `total += values`.
pub(crate) fn add(total: &mut [f32], values: &[f32]) {
    assert_eq!(total.len(), values.len());
    for_rows(
        total,
        256,
        #[inline(always)]
        |first, rows| {
            let begin = first * 256;
            for (t, v) in rows.iter_mut().zip(&values[begin..]) {
                *t += v;
            }
        },
    );
}

/// Cuts a matrix at segment boundaries: one mutable slice of whole rows per segment.
pub(crate) fn split_segments<'a>(
    mut matrix: &'a mut [f32],
    cols: usize,
    segments: &crate::Segments,
) -> Vec<&'a mut [f32]> {
    segments
        .ranges()
        .map(|range| {
            let (head, tail) = std::mem::take(&mut matrix).split_at_mut(range.len() * cols);
            matrix = tail;
            head
        })
        .collect()
}
