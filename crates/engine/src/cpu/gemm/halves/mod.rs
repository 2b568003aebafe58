//! Products of bf16 with AVX-512 BF16, for training: both factors are rounded to 8 bits, sums have the 24 bits of `f32`.
//!
//! `vdpbf16ps` multiplies pairs of neighbours along the depth and adds both products to a sum. B is packed once, by all
//! threads, in strips of 32 columns; each task packs some rows of A and multiplies them with strip after strip, twelve
//! rows at a time, whose sums stay in registers. Runs of 512 products are added up in C, so that the result depends
//! neither on the threads nor on the sizes of tasks. Numbers below the smallest normal `f32` count as zero.

mod kernel;
mod pack;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use rayon::prelude::*;

use super::{Into, Mat};
use crate::cpu::panels::Output;
use kernel::{Block, Kernel, ROWS, STRIP};

/// Products that are summed before they are added to C.
const RUN: usize = 512;
/// Rows of a task at most: with a run of 512 values, 144 KiB of the second-level cache.
const TASK_ROWS: usize = 144;
/// Tasks per thread that even out threads of unequal speed.
const TASKS_PER_THREAD: usize = 4;
/// Pairs of B that are packed at a time at most: 16 MiB.
const MAX_SHARED: usize = 4 << 20;
/// Fewest multiplications of a product that is worth rounding its factors.
const LEAST: usize = 1 << 20;

thread_local! {
    static SHARED: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
    static ROWS_OF_TASK: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// Lends a buffer of this thread that keeps its memory from call to call. A product that begins on this thread before
/// another has ended gets a new one.
fn with_buffer<R>(
    buffer: &'static LocalKey<Cell<Vec<u32>>>,
    len: usize,
    f: impl FnOnce(&mut [u32]) -> R,
) -> R {
    let mut pairs = buffer.take();
    if pairs.len() < len {
        pairs.resize(len, 0);
    }
    let result = f(&mut pairs[..len]);
    buffer.set(pairs);
    result
}

/// True if this processor has the instructions.
pub(super) fn available() -> bool {
    kernel::fastest().is_some()
}

/// True if a product is large enough for this kernel, and the processor has its instructions.
pub(super) fn pays([m, n, k]: [usize; 3]) -> bool {
    m >= ROWS && n >= STRIP && m * n * k >= LEAST && available()
}

pub(super) fn gemm(size: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &mut [f32], into: Into) {
    gemm_by(kernel::fastest().unwrap_or(kernel::portable), size, a, b, c, into);
}

fn gemm_by(kernel: Kernel, [m, n, k]: [usize; 3], a: Mat<'_>, b: Mat<'_>, c: &mut [f32], into: Into) {
    assert!(a.data.len() == m * k && b.data.len() == k * n && c.len() == m * n, "product of {m}x{n}x{k}");
    let strips = n.div_ceil(STRIP);
    let at_once = (MAX_SHARED / (strips * STRIP * RUN / 2)).max(1) * RUN;
    let product = Product { kernel, n, a, c: Output(c.as_mut_ptr()), into };
    // Moves to a thread of the pool once, rather than with every parallel loop.
    rayon::scope(|_| {
        for first in (0..k).step_by(at_once) {
            let depth = first..k.min(first + at_once);
            with_buffer(&SHARED, strips * STRIP * depth.len().div_ceil(2), |packed| {
                pack::strips(b, n, &depth, packed);
                product.by_tasks(m, &Shared { pairs: packed, depth });
            });
        }
    });
}

/// B, or some of its rows, in strips of pairs.
struct Shared<'a> {
    pairs: &'a [u32],
    depth: Range<usize>,
}

impl Shared<'_> {
    /// A strip's pairs of a run.
    fn strip(&self, strip: usize, run: &Range<usize>) -> &[u32] {
        let begin = STRIP * (strip * self.depth.len().div_ceil(2) + (run.start - self.depth.start) / 2);
        &self.pairs[begin..begin + STRIP * run.len().div_ceil(2)]
    }
}

/// Common to all tasks of a product.
struct Product<'a> {
    kernel: Kernel,
    n: usize,
    a: Mat<'a>,
    c: Output,
    into: Into,
}

impl Product<'_> {
    /// Multiplies `m` rows with what is packed of B, in tasks of some rows and strips.
    fn by_tasks(&self, m: usize, shared: &Shared<'_>) {
        let strips = self.n.div_ceil(STRIP);
        let rows = m.div_ceil(m.div_ceil(TASK_ROWS)).next_multiple_of(ROWS);
        let (down, wanted) = (m.div_ceil(rows), rayon::current_num_threads() * TASKS_PER_THREAD);
        let step = strips.div_ceil(wanted.div_ceil(down).min(strips));
        let across = strips.div_ceil(step);
        (0..down * across).into_par_iter().with_max_len(1).for_each(|task| {
            let (row, strip) = (task / across * rows, task % across * step);
            self.multiply(row..m.min(row + rows), strip..strips.min(strip + step), shared);
        });
    }

    /// Multiplies rows with strips, which no other task has.
    fn multiply(&self, rows: Range<usize>, strips: Range<usize>, shared: &Shared<'_>) {
        with_buffer(&ROWS_OF_TASK, TASK_ROWS * RUN / 2, |packed| {
            for begin in shared.depth.clone().step_by(RUN) {
                let run = begin..shared.depth.end.min(begin + RUN);
                let pairs = run.len().div_ceil(2);
                let packed = &mut packed[..rows.len().next_multiple_of(ROWS) * pairs];
                pack::rows(self.a, &rows, &run, packed);
                for strip in strips.clone() {
                    let (first, cols) = (strip * STRIP, STRIP.min(self.n - strip * STRIP));
                    let block = Block {
                        a: packed,
                        b: shared.strip(strip, &run),
                        pairs,
                        // SAFETY: the task's rows and columns lie inside C.
                        c: unsafe { self.c.0.add(rows.start * self.n + first) },
                        stride: self.n,
                        size: [rows.len(), cols],
                        into: if begin > 0 { Into::Add } else { self.into },
                    };
                    // SAFETY: the processor has the kernel's instructions; rows and strip hold so many pairs each, and the
                    // block of C belongs to this task alone.
                    unsafe { (self.kernel)(&block) };
                }
            }
        });
    }
}
