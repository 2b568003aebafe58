//! Kernels: AVX-512 BF16, and plain Rust, which shows that packing and blocks are right on any machine.

use super::super::Into;

/// Rows of A that are multiplied at a time.
pub(super) const ROWS: usize = 12;
/// Columns of a strip: two vectors.
pub(super) const STRIP: usize = 32;

/// A block of C: some rows and the columns of a strip.
pub(super) struct Block<'a> {
    /// Groups of [`ROWS`] rows: for each, `pairs` times a pair of each row.
    pub(super) a: &'a [u32],
    /// `pairs` times a pair of each column.
    pub(super) b: &'a [u32],
    pub(super) pairs: usize,
    pub(super) c: *mut f32,
    /// Distance between rows of C.
    pub(super) stride: usize,
    /// Rows and columns.
    pub(super) size: [usize; 2],
    pub(super) into: Into,
}

/// Computes a block. Unsafe because the processor must have its instructions, and because of the addresses: A and B
/// hold `pairs` pairs for each row and column, and nobody else touches the block of C.
pub(super) type Kernel = unsafe fn(&Block<'_>);

/// The kernel for this processor, if it has the instructions.
pub(super) fn fastest() -> Option<Kernel> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512f") {
        return Some(x86::avx512);
    }
    None
}

/// All kernels of this processor.
#[cfg(test)]
pub(super) fn kernels() -> Vec<(&'static str, Kernel)> {
    let mut all: Vec<(&'static str, Kernel)> = vec![("plain Rust", portable)];
    all.extend(fastest().map(|kernel| ("AVX-512 BF16", kernel)));
    all
}

/// The kernel in plain Rust.
///
/// # Safety
///
/// As [`Kernel`]; any processor has the instructions.
pub(super) unsafe fn portable(block: &Block<'_>) {
    let half = |pair: u32| [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)];
    let [rows, _] = block.size;
    for first in (0..rows).step_by(ROWS) {
        let group = &block.a[first * block.pairs..(first + ROWS) * block.pairs];
        let mut sums = [[0f32; STRIP]; ROWS];
        for (a, b) in group.as_chunks::<ROWS>().0.iter().zip(block.b.as_chunks::<STRIP>().0) {
            for (sums, a) in sums.iter_mut().zip(a.map(half)) {
                for (sum, b) in sums.iter_mut().zip(b.map(half)) {
                    *sum = a[0].mul_add(b[0], a[1].mul_add(b[1], *sum));
                }
            }
        }
        // SAFETY: the caller answers for the block.
        unsafe { write(block, first, &sums) };
    }
}

/// Writes the sums of a group of rows, or adds them.
///
/// # Safety
///
/// The block lies inside C, and nobody else touches it.
#[inline(always)]
unsafe fn write(block: &Block<'_>, first: usize, sums: &[[f32; STRIP]; ROWS]) {
    let [rows, cols] = block.size;
    for (row, sums) in (first..rows).zip(sums) {
        for (col, sum) in sums[..cols].iter().enumerate() {
            // SAFETY: row and column are the block's.
            unsafe {
                let c = block.c.add(row * block.stride + col);
                *c = if block.into == Into::Add { *c + sum } else { *sum };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Block, ROWS, STRIP, write};

    const WIDE: usize = STRIP / 16;

    /// Computes a block with AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) unsafe fn avx512(block: &Block<'_>) {
        let [rows, _] = block.size;
        for first in (0..rows).step_by(ROWS) {
            // SAFETY: a group has `pairs` times 12 pairs, a strip `pairs` times 32; the caller answers for the block.
            unsafe {
                let (mut a, mut b) = (block.a.as_ptr().add(first * block.pairs), block.b.as_ptr());
                let mut sums = [[_mm512_setzero_ps(); WIDE]; ROWS];
                for _ in 0..block.pairs {
                    let weights =
                        [halves(_mm512_loadu_si512(b.cast())), halves(_mm512_loadu_si512(b.add(16).cast()))];
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let a = halves(_mm512_set1_epi32(*a.add(i) as i32));
                        sums[0] = _mm512_dpbf16_ps(sums[0], a, weights[0]);
                        sums[1] = _mm512_dpbf16_ps(sums[1], a, weights[1]);
                    }
                    (a, b) = (a.add(ROWS), b.add(STRIP));
                }
                let mut lines = [[0f32; STRIP]; ROWS];
                for (line, sums) in lines.iter_mut().zip(sums) {
                    _mm512_storeu_ps(line.as_mut_ptr(), sums[0]);
                    _mm512_storeu_ps(line.as_mut_ptr().add(16), sums[1]);
                }
                write(block, first, &lines);
            }
        }
    }

    /// 16 pairs as halves.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn halves(pairs: __m512i) -> __m512bh {
        // SAFETY: both are 512 bits that any content is valid for.
        unsafe { std::mem::transmute(pairs) }
    }
}
