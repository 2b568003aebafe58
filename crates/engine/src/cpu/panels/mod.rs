//! Matrices of f32 or bf16 in strips of 16 rows, and products `Y = X·Wᵀ` with them: packed once, when a model is loaded,
//! they run at the speed of large products for any number of rows. A strip is read from its begin to its end, by all
//! kernels. Four strips are a panel, the least that a task computes.
//!
//! Every value of Y is summed in the order of the columns, by one fused addition after the other. So a row of Y depends
//! on its row of X and on W only: neither on the number of rows, nor on the threads, nor on the instructions of the
//! processor. All kernels give the same bits, and a product with bf16 those of a product with the same numbers in f32.

mod factors;
mod kernel;
#[cfg(test)]
mod tests;

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::meter;
use super::gemm::streamed::Weight;
use super::gemm::streamed::kernel::{LANES, MAX_ROWS};
use super::lines::{Lines, Plain};
use crate::device::to_bf16;

/// Rows of W, columns of Y, that a task computes at least.
pub(crate) const PANEL: usize = 64;
/// Products below this number of multiplications are not worth a second thread.
const SMALL: usize = 1 << 17;
/// Tasks per thread that even out threads of unequal speed.
const TASKS_PER_THREAD: usize = 2;
/// The same where there are panels enough: a thread that comes late finds some left.
const PANEL_TASKS_PER_THREAD: usize = 8;

/// A number type of weights.
pub(crate) trait Number: Weight {
    /// The nearest number of this type.
    fn round(value: f32) -> Self;
}

impl Number for f32 {
    fn round(value: f32) -> Self {
        value
    }
}

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(u16);

impl Number for Half {
    fn round(value: f32) -> Self {
        Self(to_bf16(value))
    }
}

impl Weight for Half {
    #[inline(always)]
    unsafe fn load<L: super::gemm::streamed::kernel::Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for values and instructions, and a half is a number of 16 bits.
        unsafe { L::widen(at.cast()) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: bytes, of any bits.
unsafe impl Plain for Line {}

/// A matrix `[rows, cols]` in strips: column after column of 16 rows, and strips up to a whole panel.
#[derive(Clone)]
pub(crate) struct Panels<W> {
    rows: usize,
    cols: usize,
    lines: Lines<Line>,
    numbers: std::marker::PhantomData<W>,
}

impl<W: Number> Panels<W> {
    /// Zeros.
    pub(crate) fn zeros([rows, cols]: [usize; 2]) -> Self {
        let bytes = rows.next_multiple_of(PANEL) * cols * size_of::<W>();
        Self { rows, cols, lines: Lines::zeros(bytes / 64), numbers: std::marker::PhantomData }
    }

    fn count(&self) -> usize {
        self.rows.next_multiple_of(PANEL) * self.cols
    }

    /// All values, strip after strip.
    fn values(&self) -> &[W] {
        // SAFETY: the lines hold `count` values of a type that any bits are valid for (f32, or a half), and a line is
        // aligned for them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.count()) }
    }

    fn values_mut(&mut self) -> &mut [W] {
        let count = self.count();
        // SAFETY: as above; the lines are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), count) }
    }

    /// Place of the first value of a row; the others follow at a distance of 16.
    fn place(&self, row: usize) -> usize {
        row / LANES * LANES * self.cols + row % LANES
    }

    /// Rounds rows of numbers, from row `first` on.
    pub(crate) fn set(&mut self, first: usize, values: &[f32]) {
        let cols = self.cols;
        for (i, values) in values.chunks_exact(cols).enumerate() {
            let place = self.place(first + i);
            let stored = self.values_mut()[place..].iter_mut().step_by(LANES);
            stored.zip(values).for_each(|(stored, &value)| *stored = W::round(value));
        }
    }

    /// The numbers of a row.
    pub(crate) fn row(&self, row: usize, values: &mut [f32]) {
        let stored = self.values()[self.place(row)..].iter().step_by(LANES);
        values.iter_mut().zip(stored).for_each(|(value, stored)| *value = stored.get());
    }

    /// A matrix of some of the rows, in this order.
    pub(crate) fn select(&self, rows: &[u32]) -> Self {
        let (mut selected, cols) = (Self::zeros([rows.len(), self.cols]), self.cols);
        if cols == 0 {
            return selected;
        }
        let strips = selected.values_mut().par_chunks_mut(LANES * cols).zip(rows.par_chunks(LANES));
        strips.for_each(|(strip, rows)| {
            for (i, &row) in rows.iter().enumerate() {
                let stored = self.values()[self.place(row as usize)..].iter().step_by(LANES);
                strip[i..].iter_mut().step_by(LANES).zip(stored).for_each(|(value, stored)| *value = *stored);
            }
        });
        selected
    }

    /// `Y[m,n] = X[m,k]·Wᵀ`, `m` rows.
    pub(crate) fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        Self::products_by(kernel::fastest(), [self], m, x, [y], || {});
    }

    /// The same with several matrices of as many columns, all at once. `last` is called when the last one begins: what it
    /// asks the cache for is there at the end.
    pub(crate) fn products<const N: usize>(
        all: [&Self; N],
        m: usize,
        x: &[f32],
        y: [&mut [f32]; N],
        last: impl Fn() + Sync,
    ) {
        Self::products_by(kernel::fastest(), all, m, x, y, last);
    }

    fn products_by<const N: usize>(
        kernel: Kernel<W>,
        all: [&Self; N],
        m: usize,
        x: &[f32],
        y: [&mut [f32]; N],
        last: impl Fn() + Sync,
    ) {
        let (k, columns) = (all[0].cols, all.iter().map(|w| w.rows).sum::<usize>());
        for (w, y) in all.iter().zip(&y) {
            let n = w.rows;
            assert!(w.cols == k && x.len() == m * k && y.len() == m * n, "product of {m}x{n}x{k}");
        }
        if m == 0 || columns == 0 {
            return;
        }
        let _metered = meter::start(2 * m * columns * k);
        let (outputs, panels) = (y.map(|y| Output(y.as_mut_ptr())), all.map(|w| w.rows.div_ceil(PANEL)));
        for_parts((m, panels), m * columns * k < SMALL, last, |i, rows, panels| {
            let (w, next) = (all[i].values(), all.get(i + 1).map(|next| next.values()));
            // SAFETY: `kernel` is one that this processor has; the sizes of the slices are checked above, and the parts
            // lie inside Y and do not overlap.
            unsafe { kernel(&Part { x, w, next, k, n: all[i].rows, rows, panels, y: outputs[i] }) };
        });
    }
}

/// What a range of the panels of several matrices, one after the other, is in each: `counts` are their panels.
fn of_each<const N: usize>(
    counts: [usize; N],
    range: Range<usize>,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut before = 0;
    counts.into_iter().enumerate().filter_map(move |(i, count)| {
        let first = before;
        before += count;
        let inside = range.start.max(first)..range.end.min(before);
        (inside.start < inside.end).then(|| (i, inside.start - first..inside.end - first))
    })
}

/// Calls `compute(matrix, rows, panels)` for parts of `m` rows and of matrices of `counts` panels, by all threads unless
/// the product is small, and `last` once, before the first part of the last matrix.
pub(crate) fn for_parts<const N: usize>(
    (m, counts): (usize, [usize; N]),
    small: bool,
    last: impl Fn() + Sync,
    compute: impl Fn(usize, Range<usize>, Range<usize>) + Sync,
) {
    let (threads, panels) = (rayon::current_num_threads(), counts.iter().sum());
    let compute = |rows: Range<usize>, panels: Range<usize>| {
        for (i, panels) in of_each(counts, panels) {
            if [i + 1, rows.start, panels.start] == [N, 0, 0] {
                last();
            }
            compute(i, rows.clone(), panels);
        }
    };
    if small || threads == 1 {
        return compute(0..m, 0..panels);
    }
    let [row_step, panel_step] = steps([m, panels], threads);
    let across = panels.div_ceil(panel_step);
    (0..m.div_ceil(row_step) * across).into_par_iter().with_max_len(1).for_each(|task| {
        let (row, panel) = (task / across * row_step, task % across * panel_step);
        compute(row..m.min(row + row_step), panel..panels.min(panel + panel_step));
    });
}

/// Rows and panels of a task.
fn steps([m, panels]: [usize; 2], threads: usize) -> [usize; 2] {
    let panel_step = panels.div_ceil(threads * PANEL_TASKS_PER_THREAD);
    let down = (threads * TASKS_PER_THREAD / panels.div_ceil(panel_step)).max(1);
    let row_step = m.div_ceil(down).next_multiple_of(MAX_ROWS).max(4 * MAX_ROWS);
    [row_step.min(m), panel_step]
}

/// A part of Y: some of its rows, and the columns of some panels.
struct Part<'a, W> {
    x: &'a [f32],
    /// All strips.
    w: &'a [W],
    /// Those of the matrix that is read next, with as many columns, where it is known.
    next: Option<&'a [W]>,
    /// Values of a row of X and of W.
    k: usize,
    /// Values of a row of Y.
    n: usize,
    rows: Range<usize>,
    panels: Range<usize>,
    y: Output,
}

/// Y, whose parts are written by several threads.
#[derive(Clone, Copy)]
pub(crate) struct Output(pub(crate) *mut f32);

// SAFETY: `for_parts` gives out disjoint parts, and only the kernel that owns a part writes to it.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Computes a part. Unsafe because the processor must have its instructions.
type Kernel<W> = unsafe fn(&Part<'_, W>);
