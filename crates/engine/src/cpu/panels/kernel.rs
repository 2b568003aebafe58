//! The kernel, for vectors of any kind.

use super::{Kernel, Number, PANEL, Part};
use crate::cpu::gemm::streamed::kernel::{LANES, Lanes, MAX_ROWS, Portable};

/// The fastest kernel of this processor.
pub(super) fn fastest<W: Number>() -> Kernel<W> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return x86::avx512;
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return x86::avx2;
    }
    compute::<Portable, W, 1>
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
    all.push(("plain Rust", compute::<Portable, W, 1>));
    all
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Number, Part, compute};
    use crate::cpu::gemm::streamed::x86::{Avx2, Avx512};

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX-512.
        unsafe { compute::<Avx512, W, 4>(part) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<W: Number>(part: &Part<'_, W>) {
        // SAFETY: the caller answers for the part; the processor has AVX2 and FMA.
        unsafe { compute::<Avx2, W, 1>(part) }
    }
}

/// Computes a part of Y, in blocks of `WIDE` vectors.
///
/// # Safety
///
/// The processor has the instructions of `L`; the part lies inside X, W and Y, and nobody else writes to it.
#[inline(always)]
unsafe fn compute<L: Lanes, W: Number, const WIDE: usize>(part: &Part<'_, W>) {
    for panel in part.panels.clone() {
        for row in part.rows.clone().step_by(MAX_ROWS) {
            for line in (0..PANEL / LANES).step_by(WIDE) {
                let at = Place { panel, line, row };
                // SAFETY: the caller answers for instructions and sizes; the block lies inside the part.
                unsafe {
                    match part.rows.end - row {
                        1 => block::<L, W, WIDE, 1>(part, at),
                        2 => block::<L, W, WIDE, 2>(part, at),
                        3 => block::<L, W, WIDE, 3>(part, at),
                        4 => block::<L, W, WIDE, 4>(part, at),
                        5 => block::<L, W, WIDE, 5>(part, at),
                        _ => block::<L, W, WIDE, MAX_ROWS>(part, at),
                    }
                }
            }
        }
    }
}

/// First panel, line of the panel and row of a block.
struct Place {
    panel: usize,
    line: usize,
    row: usize,
}

/// Computes `M` rows of `WIDE` vectors.
///
/// # Safety
///
/// As [`compute`].
#[inline(always)]
unsafe fn block<L: Lanes, W: Number, const WIDE: usize, const M: usize>(part: &Part<'_, W>, at: Place) {
    let (k, col) = (part.k, at.panel * PANEL + at.line * LANES);
    // SAFETY: a panel has 64 values for each of k columns, rows of X have k values, and the columns that are written
    // are those that Y has.
    unsafe {
        let x = part.x.as_ptr().add(at.row * k);
        let w = part.w.as_ptr().add(at.panel * PANEL * k + at.line * LANES);
        let mut sums = [[L::zero(); WIDE]; M];
        for depth in 0..k {
            let mut weights = [L::zero(); WIDE];
            for (i, weights) in weights.iter_mut().enumerate() {
                *weights = W::load::<L>(w.add(depth * PANEL + i * LANES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = L::splat(x.add(i * k + depth));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = sum.add_product(x, weights);
                }
            }
        }
        let cols = (WIDE * LANES).min(part.n.saturating_sub(col));
        for (i, sums) in sums.into_iter().enumerate() {
            let y = part.y.0.wrapping_add((at.row + i) * part.n + col);
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
