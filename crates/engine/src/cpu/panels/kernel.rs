//! The kernel, for vectors of any kind.

use std::ops::Range;

use super::factors::{Ahead, EVERY, Factors};
use super::{Kernel, Number, PANEL, Part};
use crate::cpu::LINE;
use crate::cpu::gemm::streamed::kernel::{LANES, Lanes, MAX_ROWS, Portable};
use crate::cpu::order::Strips;

/// Strips of a panel.
const STRIPS: usize = PANEL / LANES;

/// The fastest kernel of this processor.
pub(super) fn fastest<W: Number>() -> Kernel<W> {
    #[cfg(target_arch = "x86_64")]
    if let Some((_, kernel)) = x86::kernels().next() {
        return kernel;
    }
    compute::<Portable, W, 1, 1, 1>
}

/// All kernels of this processor.
#[cfg(test)]
pub(super) fn kernels<W: Number>() -> Vec<(&'static str, Kernel<W>)> {
    let mut all: Vec<(&'static str, Kernel<W>)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::kernels());
    all.push(("plain Rust", compute::<Portable, W, 1, 1, 1>));
    all
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, Number, Part, compute};
    use crate::cpu::gemm::streamed::x86::{Avx2, Avx512};

    /// The kernels that this processor has, the fastest first.
    pub(super) fn kernels<W: Number>() -> impl Iterator<Item = (&'static str, Kernel<W>)> {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let bytes = avx512 && is_x86_feature_detected!("avx512vbmi");
        let all: [(bool, &str, Kernel<W>); 3] = [
            (bytes, "AVX-512 with VBMI", self::avx512_bytes),
            (avx512, "AVX-512", self::avx512),
            (avx2, "AVX2", self::avx2),
        ];
        all.into_iter().filter_map(|(has, name, kernel)| has.then_some((name, kernel)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn avx512_bytes<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX-512 with these sets of instructions.
        unsafe { compute::<Avx512<true>, W, 8, 4, 4>(part) }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn avx512<W: Number>(part: &Part<'_, W>) {
        // SAFETY: as above.
        unsafe { compute::<Avx512<false>, W, 8, 4, 4>(part) }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX2 and FMA.
        unsafe { compute::<Avx2, W, 4, 2, 1>(part) }
    }
}

/// Bytes of a strip that are asked for ahead of their use where several are read side by side.
const AHEAD: usize = 16 * LINE;

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
            1 => few::<L, W, ONE, FEW, 1>(part),
            2 => few::<L, W, FEW, FEW, 2>(part),
            3 => few::<L, W, FEW, FEW, 3>(part),
            _ => many::<L, W, MANY>(part),
        }
    }
}

/// The strips of a part.
fn strips<W>(part: &Part<'_, W>) -> Range<usize> {
    part.panels.start * STRIPS..part.panels.end * STRIPS
}

/// Computes a part of `M` rows, `WIDE` strips at a time, and what is left `NARROW` at a time.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn few<L: Lanes, W: Number, const WIDE: usize, const NARROW: usize, const M: usize>(
    part: &Part<'_, W>,
) {
    let strips = strips(part);
    let rest = strips.end - strips.len() % WIDE;
    // SAFETY: the caller answers for instructions and sizes; the blocks lie inside the part.
    unsafe {
        for strip in (strips.start..rest).step_by(WIDE) {
            block::<L, W, WIDE, M>(part, strip, [0, 1]);
        }
        for strip in (rest..strips.end).step_by(NARROW) {
            block::<L, W, NARROW, M>(part, strip, [0, 1]);
        }
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

/// Computes `WIDE` strips of `M` rows, block `number` of `blocks`, and asks for strips that are read later.
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
    // SAFETY: a strip has 16 values for each of k columns, rows of X have k values, and the columns that are written are
    // those that Y has.
    unsafe {
        let factors = Factors::<W> { x: part.x.as_ptr().add(row * k), w: part.w.as_ptr().add(col * k), k };
        let mut sums = [[L::zero(); WIDE]; M];
        if WIDE == 1 {
            let [bytes, step] = [k, EVERY].map(|columns| columns * LANES * size_of::<W>());
            let next = factors.w.cast::<u8>().wrapping_add(bytes + number * bytes / blocks);
            factors.add(&mut sums, 0..k, Ahead::Next { first: next, step: step / blocks });
        } else if blocks == 1 {
            let column = LANES * size_of::<W>();
            let inside = k.saturating_sub(AHEAD / column) / (2 * EVERY) * (2 * EVERY);
            let strips = Strips::new(factors.w, k * LANES);
            let next = match part.next {
                _ if (col + 2 * WIDE * LANES) * k <= part.w.len() => {
                    strips.moved((WIDE * strips.apart) as isize)
                }
                Some(next) => next,
                // Nothing that is known: what is there already is asked for once more.
                None => strips,
            };
            factors.add(&mut sums, 0..inside, Ahead::Beside(strips.moved(AHEAD as isize)));
            factors.add(&mut sums, inside..k, Ahead::Beside(next.moved(-((inside * column) as isize))));
        } else {
            // Strips are read several times: from memory once, while all blocks are multiplied.
            factors.add(&mut sums, 0..k, Ahead::Nothing);
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
