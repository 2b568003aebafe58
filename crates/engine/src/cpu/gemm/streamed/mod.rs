//! Products `Y = X·Wᵀ` of evaluation passes, with W read as it lies: nothing is packed or copied, so that a few rows
//! take as long as reading W takes.
//!
//! Every value of Y is the sum over 16 lanes, lane l of the products of values l, l + 16, l + 32, …, and the lanes are
//! summed in one fixed order. So a row of Y depends on its row of X and on W only: neither on the number of rows, nor
//! on the threads, nor on the instructions of the processor. All kernels give the same bits.

pub(crate) mod kernel;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use std::ops::Range;

use rayon::prelude::*;

use kernel::{GROUP, Portable};

/// Values of W as they are stored.
pub(crate) trait Weight: Copy + Send + Sync + 'static {
    /// 16 values from `at` on.
    ///
    /// # Safety
    ///
    /// `at` points to 16 values, and the processor has the instructions of `L`.
    unsafe fn load<L: kernel::Lanes>(at: *const Self) -> L;

    /// The value.
    fn get(self) -> f32;
}

impl Weight for f32 {
    #[inline(always)]
    unsafe fn load<L: kernel::Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for both.
        unsafe { L::load(at) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        self
    }
}

/// Products below this number of multiplications are not worth a second thread.
const SMALL: usize = 1 << 18;
/// Columns of Y whose weights stay in the second-level cache while the rows pass by.
const PANEL: usize = 64;
/// Tasks per thread that even out threads of unequal speed.
const TASKS_PER_THREAD: usize = 2;

/// A part of Y: some of its rows and columns.
pub(in crate::cpu) struct Part<'a, W> {
    x: &'a [f32],
    w: &'a [W],
    /// Values of a row of X and of W.
    k: usize,
    /// Values of a row of Y.
    n: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    y: Output,
}

/// Y, whose parts are written by several threads.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: `product` gives out disjoint parts, and only the kernel that owns a part writes to it.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Computes a part. Unsafe because the processor must have its instructions.
pub(in crate::cpu) type Kernel<W> = unsafe fn(&Part<'_, W>);

/// The fastest kernel of this processor.
fn fastest<W: Weight>() -> Kernel<W> {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = x86::fastest() {
        return kernel;
    }
    kernel::compute::<Portable, W>
}

/// All kernels of this processor.
#[cfg(test)]
pub(in crate::cpu) fn kernels<W: Weight>() -> Vec<(&'static str, Kernel<W>)> {
    let mut all: Vec<(&'static str, Kernel<W>)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::kernels());
    all.push(("plain Rust", kernel::compute::<Portable, W>));
    all
}

/// `Y[m,n] = X[m,k]·W[n,k]ᵀ`; n and k are above 0.
pub(crate) fn product<W: Weight>(size: [usize; 3], x: &[f32], w: &[W], y: &mut [f32]) {
    product_by(fastest(), size, x, w, y);
}

pub(in crate::cpu) fn product_by<W: Weight>(
    kernel: Kernel<W>,
    [m, n, k]: [usize; 3],
    x: &[f32],
    w: &[W],
    y: &mut [f32],
) {
    assert!(x.len() == m * k && w.len() == n * k && y.len() == m * n, "streamed product of {m}x{n}x{k}");
    let y = Output(y.as_mut_ptr());
    let [row_step, col_step] = steps([m, n, k], rayon::current_num_threads());
    let across = n.div_ceil(col_step);
    let compute = |task: usize| {
        let (row, col) = (task / across * row_step, task % across * col_step);
        let (rows, cols) = (row..m.min(row + row_step), col..n.min(col + col_step));
        // SAFETY: `kernel` is one that this processor has; the sizes of the slices are checked above, and the parts
        // lie inside Y and do not overlap.
        unsafe { kernel(&Part { x, w, k, n, rows, cols, y }) };
    };
    match m.div_ceil(row_step) * across {
        1 => compute(0),
        tasks => (0..tasks).into_par_iter().with_max_len(1).for_each(compute),
    }
}

/// Rows and columns of a task.
fn steps([m, n, k]: [usize; 3], threads: usize) -> [usize; 2] {
    if threads == 1 || m * n * k < SMALL {
        return [m.max(1), n];
    }
    let wanted = threads * TASKS_PER_THREAD;
    // Whole panels where there are many rows, to read X from the cache; else whatever shares W out evenly.
    let unit = if m > 2 * kernel::MAX_ROWS { PANEL } else { 4 * GROUP };
    let col_step = n.div_ceil(wanted).next_multiple_of(unit);
    let down = (wanted / n.div_ceil(col_step)).max(1);
    let row_step = m.div_ceil(down).next_multiple_of(kernel::MAX_ROWS).max(4 * kernel::MAX_ROWS);
    [row_step.min(m), col_step]
}
