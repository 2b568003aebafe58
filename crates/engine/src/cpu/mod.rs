//! Shared CPU code: matrix products, parallel row loops with fixed order of sums, vectorised exponentials.

#[cfg(target_arch = "x86_64")]
mod caches;
pub mod gemm;
pub mod int8;
mod lines;
pub(crate) mod math;
mod order;
pub(crate) mod panels;
mod team;
pub mod threads;

use rayon::prelude::*;

pub use team::together;

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

/// Asks the second level of the cache for the line at an address, which may lie anywhere.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but caches.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same for all lines of these values.
#[inline(always)]
pub(crate) fn prefetch_all<T>(values: &[T]) {
    values.chunks(LINE / size_of::<T>()).for_each(|line| prefetch(line.as_ptr().cast()));
}

/// Bytes of a line of the cache.
pub(crate) const LINE: usize = 64;

/// Rows that one task takes at a time. Fixed, so that partial sums over rows do not depend on the threads.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// Rows whose sums make one partial sum.
const SUMMED_ROWS: usize = 4 * ROWS_PER_TASK;

/// Values of a matrix whose rows are not worth a second thread.
const SERIAL: usize = 1 << 14;

/// Rows of a task where nothing is summed over rows: not more than [`ROWS_PER_TASK`], and the same for all threads.
fn rows_per_task(rows: usize) -> usize {
    let tasks = rows.div_ceil(ROWS_PER_TASK).next_multiple_of(rayon::current_num_threads());
    rows.div_ceil(tasks.max(1)).max(1)
}

/// Calls `body(first row, rows as one slice)` for runs of rows of a mutable matrix, in parallel.
pub(crate) fn for_rows(matrix: &mut [f32], cols: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    if cols == 0 {
        return;
    }
    let rows_per_task = rows_per_task(matrix.len() / cols);
    let chunk = rows_per_task * cols;
    let task = |(chunk, rows): (usize, &mut [f32])| {
        vectorised(
            #[inline(always)]
            || body(chunk * rows_per_task, rows),
        )
    };
    if matrix.len() <= SERIAL || rayon::current_num_threads() == 1 {
        matrix.chunks_mut(chunk).enumerate().for_each(task);
    } else {
        matrix.par_chunks_mut(chunk).enumerate().for_each(task);
    }
}

/// [`for_rows`] over two matrices of the same shape in step; the second may be empty.
pub(crate) fn for_rows_of_two(
    (first, second): (&mut [f32], &mut [f32]),
    cols: usize,
    body: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    if cols == 0 {
        return;
    }
    let rows_per_task = rows_per_task(first.len() / cols);
    let chunk = rows_per_task * cols;
    let mut seconds: Vec<&mut [f32]> = second.chunks_mut(chunk).collect();
    seconds.resize_with(first.len().div_ceil(chunk), Default::default);
    let task = |(task, (rows, seconds)): (usize, (&mut [f32], &mut [f32]))| {
        vectorised(
            #[inline(always)]
            || body(task * rows_per_task, rows, seconds),
        )
    };
    if first.len() <= SERIAL || rayon::current_num_threads() == 1 {
        first.chunks_mut(chunk).zip(seconds).enumerate().for_each(task);
    } else {
        first.par_chunks_mut(chunk).zip(seconds).enumerate().for_each(task);
    }
}

/// [`for_rows`] that also sums over rows, in a fixed order: `body(first row, rows, partial)` adds to a zeroed
/// `partial` of `width` values; gives the sum of the partials.
pub(crate) fn for_rows_summing(
    matrix: &mut [f32],
    cols: usize,
    width: usize,
    body: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) -> Vec<f32> {
    let partials: Vec<Vec<f32>> = matrix
        .par_chunks_mut(SUMMED_ROWS * cols)
        .enumerate()
        .map(|(task, rows)| {
            let mut partial = vec![0.0; width];
            vectorised(
                #[inline(always)]
                || body(task * SUMMED_ROWS, rows, &mut partial),
            );
            partial
        })
        .collect();
    let mut total = vec![0.0; width];
    partials.iter().for_each(|partial| add(&mut total, partial));
    total
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
