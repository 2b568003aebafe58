//! Products on AMX tiles, with the accuracy of `f32` or, for training, half the arithmetic.
//!
//! AMX multiplies bf16 values (8 significant bits) and sums in `f32`. At full precision each `f32` is split
//! into three bf16 parts that add up to it, `a = a₁ + a₂ + a₃`, and of the nine products of parts the six that
//! matter are summed: `a₁b₁ + a₁b₂ + a₂b₁ + a₂b₂ + a₁b₃ + a₃b₁`. The three left out are below the rounding of
//! `f32`. Six bf16 products on AMX still take less time than one `f32` product on AVX-512.
//!
//! For training there are two parts, 16 bits, and three products: `a₁b₁ + a₁b₂ + a₂b₁`. Relative to `ab`,
//! rounding to two parts costs up to 2⁻¹⁷ for each operand, and `a₂b₂` is up to 2⁻¹⁶. Training in bf16 has one part and
//! one product.
//!
//! Two limits differ from plain `f32`: values beyond the largest bf16 (3.39e38) count as infinite, and what
//! falls below the smallest normal `f32` (1.2e-38) is flushed to zero, including the smaller parts.
//!
//! The operand with fewer lines is packed once, by all threads, and *shared*; the other is *streamed*: each
//! task packs some of its lines into its own cache and multiplies them with every shared panel. So each value
//! is split once. Every value of `C` is summed by one task in an order that depends only on the depth.

pub(in crate::cpu) mod cpu;
mod kernel;
mod pack;

pub(super) use cpu::available;

use super::{Into, Mat};
use kernel::{Block, Kernel};
use pack::{Operand, PANEL, STEP, Step, Tile};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

/// Steps summed in tiles before they are added to `C`: a depth of 512.
const RUN_STEPS: usize = 16;
/// Streamed lines per task: with a run of 512 values, up to 768 KiB of the 2 MiB second-level cache.
const MAX_TASK_LINES: usize = 256;
/// Below this, reading the shared panels costs more than multiplying them.
const MIN_TASK_LINES: usize = 64;
/// Tasks per thread that even out threads of unequal speed.
const TASKS_PER_THREAD: usize = 2;
/// Steps of the shared operand packed at a time: at most 12 MiB, well inside a last-level cache.
const MAX_SHARED_STEPS: usize = 2 << 10;

thread_local! {
    static SHARED: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
    static STREAMED: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
}

/// Lends a buffer of this thread that keeps its memory from call to call.
///
/// It is taken out while in use, so that a product that starts on this thread before another has ended (a
/// thread that waits for others may steal any task) gets a new one.
fn with_steps<const PARTS: usize, R>(
    buffer: &'static LocalKey<Cell<Vec<Tile>>>,
    count: usize,
    f: impl FnOnce(&mut [Step<PARTS>]) -> R,
) -> R {
    let mut tiles = buffer.take();
    if tiles.len() < count * 2 * PARTS {
        tiles.resize(count * 2 * PARTS, Tile::ZERO);
    }
    let result = f(&mut tiles.as_chunks_mut().0.as_chunks_mut().0[..count]);
    buffer.set(tiles);
    result
}

/// True if a product is large enough to be worth splitting its operands; the limits are measured.
pub(super) fn pays([m, n, k]: [usize; 3], b: Mat<'_>) -> bool {
    // The portable kernel is slow to read a transposed `B`, so there AMX pays for a few rows already.
    let (least_rows, least_products) = if b.transposed { (8, 1 << 20) } else { (64, 1 << 24) };
    m >= least_rows && n >= 128 && k >= 32 && m * n * k >= least_products
}

pub(super) fn gemm<const PARTS: usize>(
    [m, n, k]: [usize; 3],
    a: Mat<'_>,
    b: Mat<'_>,
    c: &mut [f32],
    into: Into,
) {
    assert!(available(), "AMX is not available");
    let (a, b) = (Operand::rows_of(a, m, k), Operand::columns_of(b, n, k));
    let stream_a = m >= n;
    let (shared, streamed) = if stream_a { (b, a) } else { (a, b) };
    let out = Output { start: c.as_mut_ptr(), rows: m, cols: n, stream_a };

    let panels = shared.lines.div_ceil(PANEL);
    let all_steps = k.div_ceil(STEP);
    let steps_at_once = (MAX_SHARED_STEPS / (panels * RUN_STEPS)).max(1) * RUN_STEPS;
    // Moves to a thread of the pool once, rather than with every parallel loop.
    rayon::scope(|_| {
        for first in (0..all_steps).step_by(steps_at_once) {
            let steps = first..all_steps.min(first + steps_at_once);
            with_steps::<PARTS, _>(&SHARED, panels * steps.len(), |packed| {
                pack_shared(&shared, &steps, packed);
                multiply_streamed(&streamed, packed, &steps, &out, into);
            });
        }
    });
}

/// Packs the given steps of all panels, panel after panel.
fn pack_shared<const PARTS: usize>(shared: &Operand<'_>, steps: &Range<usize>, packed: &mut [Step<PARTS>]) {
    packed.par_iter_mut().with_min_len(RUN_STEPS).enumerate().for_each(|(i, step)| {
        let (panel, depth) = (i / steps.len(), (steps.start + i % steps.len()) * STEP);
        // SAFETY: AMX, and with it AVX-512, is available: `gemm` has checked.
        unsafe { shared.pack_step(panel * PANEL, depth, step) };
    });
}

/// Multiplies all lines of the streamed operand with the packed panels of the shared one.
fn multiply_streamed<const PARTS: usize>(
    streamed: &Operand<'_>,
    shared: &[Step<PARTS>],
    steps: &Range<usize>,
    out: &Output,
    into: Into,
) {
    let wanted_tasks = rayon::current_num_threads() * TASKS_PER_THREAD;
    let task_lines = streamed.lines.div_ceil(wanted_tasks).next_multiple_of(PANEL);
    let task_lines = task_lines.clamp(MIN_TASK_LINES, MAX_TASK_LINES);
    (0..streamed.lines.div_ceil(task_lines)).into_par_iter().with_max_len(1).for_each(|task| {
        let first = task * task_lines;
        let lines = first..streamed.lines.min(first + task_lines);
        let panels = lines.len().div_ceil(PANEL);
        with_steps::<PARTS, _>(&STREAMED, panels * RUN_STEPS, |packed| {
            for start in steps.clone().step_by(RUN_STEPS) {
                let run = start..steps.end.min(start + RUN_STEPS);
                let packed = &mut packed[..panels * run.len()];
                pack_lines(streamed, &lines, &run, packed);
                let panels = lines.clone().step_by(PANEL).zip(packed.chunks_exact(run.len()));
                let shared = shared.chunks_exact(steps.len());
                let shared = shared.map(|panel| &panel[run.start - steps.start..run.end - steps.start]);
                let add = into == Into::Add || start > 0;
                // SAFETY: tasks own disjoint streamed lines, so no other task touches these lines of C.
                unsafe { multiply_panels(panels, shared, out, add) };
            }
        });
    });
}

/// Packs a run of steps of some streamed lines, panel after panel.
fn pack_lines<const PARTS: usize>(
    streamed: &Operand<'_>,
    lines: &Range<usize>,
    run: &Range<usize>,
    packed: &mut [Step<PARTS>],
) {
    let (panels, steps) = (lines.len().div_ceil(PANEL), run.len());
    for i in 0..panels * steps {
        // Reads on along stored rows.
        let (panel, step) =
            if streamed.stored_rows_are_lines { (i / steps, i % steps) } else { (i % panels, i / panels) };
        let packed = &mut packed[panel * steps + step];
        // SAFETY: AMX, and with it AVX-512, is available: `gemm` has checked.
        unsafe { streamed.pack_step(lines.start + panel * PANEL, (run.start + step) * STEP, packed) };
    }
}

/// Multiplies every streamed panel, given with its first line, with every shared panel.
///
/// # Safety
///
/// No other thread may touch the lines of `C` that belong to the streamed panels.
unsafe fn multiply_panels<'a, const PARTS: usize>(
    streamed: impl Iterator<Item = (usize, &'a [Step<PARTS>])> + Clone,
    shared: impl Iterator<Item = &'a [Step<PARTS>]>,
    out: &Output,
    add: bool,
) {
    // Nothing in here hands control to rayon, so the kernel's tiles stay its own.
    let mut kernel = Kernel::new();
    let mut shared = (0..).step_by(PANEL).zip(shared).peekable();
    while let Some((shared_line, panel)) = shared.next() {
        let mut ahead = shared.peek().map_or(panel, |(_, next)| next).as_ptr();
        for (streamed_line, streamed) in streamed.clone() {
            let (a, b, row, col) = if out.stream_a {
                (streamed, panel, streamed_line, shared_line)
            } else {
                (panel, streamed, shared_line, streamed_line)
            };
            // SAFETY: the block lies inside C, in lines the caller has to itself.
            unsafe { kernel.multiply(a, b, &out.block(row, col), add, ahead) };
            ahead = ahead.wrapping_byte_add(size_of_val(a) / kernel::STEPS_PER_FETCH);
        }
    }
}

/// `C`, written in blocks by several threads.
struct Output {
    start: *mut f32,
    rows: usize,
    cols: usize,
    /// Streamed lines are rows of `C`, not columns.
    stream_a: bool,
}

// SAFETY: the pointer is only dereferenced in the kernel, whose callers answer for disjoint blocks.
unsafe impl Sync for Output {}

impl Output {
    /// The block that starts at (`row`, `col`), up to the edges of `C`.
    fn block(&self, row: usize, col: usize) -> Block {
        let start = self.start.wrapping_add(row * self.cols + col);
        let (rows, cols) = ((self.rows - row).min(PANEL), (self.cols - col).min(PANEL));
        Block { start, rows, cols, stride: self.cols }
    }
}
