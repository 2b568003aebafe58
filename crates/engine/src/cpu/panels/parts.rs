//! How the threads share products: in parts of some rows and panels.

use std::ops::Range;

use rayon::prelude::*;

use crate::cpu::gemm::streamed::kernel::MAX_ROWS;

/// Tasks per thread that even out threads of unequal speed.
const TASKS_PER_THREAD: usize = 2;
/// The same where there are panels enough: a thread that comes late finds some left.
pub(super) const PANEL_TASKS_PER_THREAD: usize = 8;

/// Y, whose parts are written by several threads.
#[derive(Clone, Copy)]
pub(crate) struct Output(pub(crate) *mut f32);

// SAFETY: `for_parts` gives out disjoint parts, and only the kernel that owns a part writes to it.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// What a range of the panels of several matrices, one after the other, is in each: `counts` are their panels.
pub(super) fn of_each<const N: usize>(
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
pub(super) fn steps([m, panels]: [usize; 2], threads: usize) -> [usize; 2] {
    let panel_step = panels.div_ceil(threads * PANEL_TASKS_PER_THREAD);
    let down = (threads * TASKS_PER_THREAD / panels.div_ceil(panel_step)).max(1);
    let row_step = m.div_ceil(down).next_multiple_of(MAX_ROWS).max(4 * MAX_ROWS);
    [row_step.min(m), panel_step]
}
