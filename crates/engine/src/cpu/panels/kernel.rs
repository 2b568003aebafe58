//! The kernel, for vectors of any kind.

use std::ops::Range;

use super::{Kernel, Number, PANEL, Part};
use crate::cpu::gemm::streamed::kernel::{LANES, Lanes, MAX_ROWS, Portable};
use crate::cpu::prefetch;

/// The fastest kernel of this processor.
pub(super) fn fastest<W: Number>() -> Kernel<W> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return x86::avx512;
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return x86::avx2;
    }
    compute::<Portable, W, 1, 1, 1>
}

/// All kernels of this processor.
#[cfg(test)]
pub(super) fn kernels<W: Number>() -> Vec<(&'static str, Kernel<W>)> {
    let mut all: Vec<(&'static str, Kernel<W>)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            all.push(("AVX-512", x86::avx512));
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(("AVX2", x86::avx2));
        }
    }
    all.push(("plain Rust", compute::<Portable, W, 1, 1, 1>));
    all
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Number, Part, compute};
    use crate::cpu::gemm::streamed::x86::{Avx2, Avx512};

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX-512.
        unsafe { compute::<Avx512, W, 4, 4, 4>(part) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX2 and FMA.
        unsafe { compute::<Avx2, W, 4, 2, 1>(part) }
    }
}

/// Columns that are multiplied between two requests to the cache.
const EVERY: usize = 2;

/// Computes a part of Y: `ONE` strips at a time for one row, `FEW` for two or three, whose sums leave registers free, else
/// `MANY`.
///
/// # Safety
///
/// The processor has the instructions of `L`; the part lies inside X, W and Y, and nobody else writes to it.
#[inline(always)]
unsafe fn compute<L: Lanes, W: Number, const ONE: usize, const FEW: usize, const MANY: usize>(
    part: &Part<'_, W>,
) {
    // SAFETY: the caller answers for instructions and sizes.
    unsafe {
        match part.rows.len() {
            1 => few::<L, W, ONE, 1>(part),
            2 => few::<L, W, FEW, 2>(part),
            3 => few::<L, W, FEW, 3>(part),
            _ => many::<L, W, MANY>(part),
        }
    }
}

/// The strips of a part.
fn strips<W>(part: &Part<'_, W>) -> Range<usize> {
    part.panels.start * (PANEL / LANES)..part.panels.end * (PANEL / LANES)
}

/// Computes a part of `M` rows, `WIDE` strips at a time.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn few<L: Lanes, W: Number, const WIDE: usize, const M: usize>(part: &Part<'_, W>) {
    for strip in strips(part).step_by(WIDE) {
        // SAFETY: the caller answers for instructions and sizes; the block lies inside the part.
        unsafe { block::<L, W, WIDE, M>(part, strip, [0, 1]) };
    }
}

/// Computes a part of at least four rows, `WIDE` strips at a time, in blocks of about the same number of rows.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn many<L: Lanes, W: Number, const WIDE: usize>(part: &Part<'_, W>) {
    let (rows, blocks) = (part.rows.len(), part.rows.len().div_ceil(MAX_ROWS));
    for strip in strips(part).step_by(WIDE) {
        for number in 0..blocks {
            let place = [number, blocks];
            // SAFETY: the caller answers for instructions and sizes; the block lies inside the part.
            unsafe {
                match first_row(rows, [number + 1, blocks]) - first_row(rows, place) {
                    3 => block::<L, W, WIDE, 3>(part, strip, place),
                    4 => block::<L, W, WIDE, 4>(part, strip, place),
                    5 => block::<L, W, WIDE, 5>(part, strip, place),
                    _ => block::<L, W, WIDE, MAX_ROWS>(part, strip, place),
                }
            }
        }
    }
}

/// The first row of block `number` of `blocks`.
fn first_row(rows: usize, [number, blocks]: [usize; 2]) -> usize {
    number * rows / blocks
}

/// Computes `WIDE` strips of `M` rows, block `number` of `blocks`. Meanwhile the second level of the cache is asked for a
/// part of the next strip; where several are read side by side, the processor looks ahead by itself.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn block<L: Lanes, W: Number, const WIDE: usize, const M: usize>(
    part: &Part<'_, W>,
    strip: usize,
    [number, blocks]: [usize; 2],
) {
    let (k, col) = (part.k, strip * LANES);
    let row = part.rows.start + first_row(part.rows.len(), [number, blocks]);
    let bytes = LANES * k * size_of::<W>();
    let mut ahead = part
        .w
        .as_ptr()
        .wrapping_add((strip + 1) * LANES * k)
        .cast::<u8>()
        .wrapping_add(number * bytes / blocks);
    let step = EVERY * LANES * size_of::<W>() / blocks;
    // SAFETY: a strip has 16 values for each of k columns, rows of X have k values, and the columns that are written are
    // those that Y has.
    unsafe {
        let x = part.x.as_ptr().add(row * k);
        let w = part.w.as_ptr().add(col * k);
        let mut sums = [[L::zero(); WIDE]; M];
        let mut depth = 0;
        // Columns are written out: the instructions of a loop would take the place of others.
        while depth + 2 * EVERY <= k {
            for depth in [depth, depth + EVERY] {
                if WIDE == 1 {
                    prefetch(ahead);
                    ahead = ahead.wrapping_add(step);
                }
                add_column(&mut sums, x.add(depth), w.add(depth * LANES), k);
                add_column(&mut sums, x.add(depth + 1), w.add((depth + 1) * LANES), k);
            }
            depth += 2 * EVERY;
        }
        for depth in depth..k {
            add_column(&mut sums, x.add(depth), w.add(depth * LANES), k);
        }
        let cols = (WIDE * LANES).min(part.n.saturating_sub(col));
        for (i, sums) in sums.into_iter().enumerate() {
            let y = part.y.0.wrapping_add((row + i) * part.n + col);
            for (line, sum) in sums.into_iter().enumerate() {
                let first = line * LANES;
                if first + LANES <= cols {
                    sum.store(y.add(first));
                } else if first < cols {
                    let mut values = [0f32; LANES];
                    sum.store(values.as_mut_ptr());
                    y.add(first).copy_from_nonoverlapping(values.as_ptr(), cols - first);
                }
            }
        }
    }
}

/// Adds the products of a column of X, at `x`, with a column of some strips, at `w`.
///
/// # Safety
///
/// The processor has the instructions of `L`; `x` and `w` are the addresses of columns of matrices with rows of `k` values.
#[inline(always)]
unsafe fn add_column<L: Lanes, W: Number, const WIDE: usize, const M: usize>(
    sums: &mut [[L; WIDE]; M],
    x: *const f32,
    w: *const W,
    k: usize,
) {
    // SAFETY: the caller answers for addresses and instructions.
    unsafe {
        let mut weights = [L::zero(); WIDE];
        for (i, weights) in weights.iter_mut().enumerate() {
            *weights = W::load::<L>(w.add(i * k * LANES));
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let x = L::splat(x.add(i * k));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = sum.add_product(x, weights);
            }
        }
    }
}
