//! Rounding to bf16, in the order in which kernels read: pairs along the depth, the earlier value in the lower half. An
//! odd depth is filled up with a zero.

use std::ops::Range;

use rayon::prelude::*;

use super::super::Mat;
use super::kernel::{ROWS, STRIP};
use crate::cpu::vectorised;
use crate::device::to_bf16;

/// Pairs that are made at a time, so that what is read and written stays in the first-level cache.
const PAIRS: usize = 16;

/// Packs some rows of B (`depth`): for each strip of 32 of its `n` columns, pair after pair; zeros fill up the last strip.
pub(super) fn strips(b: Mat<'_>, n: usize, depth: &Range<usize>, packed: &mut [u32]) {
    packed.par_chunks_mut(STRIP * depth.len().div_ceil(2)).enumerate().for_each(|(strip, packed)| {
        let columns = strip * STRIP..n.min((strip + 1) * STRIP);
        vectorised(
            #[inline(always)]
            || pack::<STRIP>(b.t(), columns, depth, packed),
        );
    });
}

/// Packs a run of some rows of A in groups of [`ROWS`]; zeros fill up the last group.
pub(super) fn rows(a: Mat<'_>, rows: &Range<usize>, run: &Range<usize>, packed: &mut [u32]) {
    let groups = packed.chunks_exact_mut(ROWS * run.len().div_ceil(2));
    vectorised(
        #[inline(always)]
        || {
            for (first, packed) in rows.clone().step_by(ROWS).zip(groups) {
                pack::<ROWS>(a, first..rows.end.min(first + ROWS), run, packed);
            }
        },
    );
}

/// Packs `L` lines: rows of `mat`, of which the first may be there only.
#[inline(always)]
fn pack<const L: usize>(mat: Mat<'_>, lines: Range<usize>, depth: &Range<usize>, packed: &mut [u32]) {
    let (packed, _) = packed.as_chunks_mut::<L>();
    if lines.len() < L {
        packed.fill([0; L]);
    }
    for (block, packed) in packed.chunks_mut(PAIRS).enumerate() {
        let from = depth.start + 2 * PAIRS * block;
        let values = from..depth.end.min(from + 2 * PAIRS);
        if mat.transposed {
            across::<L>(mat, &lines, values, packed);
        } else {
            for (i, line) in lines.clone().enumerate() {
                along(&mat.data[line * mat.stride..][values.clone()], i, packed);
            }
        }
    }
}

/// Pairs of one line, whose values lie side by side, into place `i` of each.
#[inline(always)]
fn along<const L: usize>(values: &[f32], i: usize, packed: &mut [[u32; L]]) {
    let mut pairs = [0; PAIRS];
    let (whole, rest) = values.as_chunks::<2>();
    pairs.iter_mut().zip(whole).for_each(|(pair, [low, high])| *pair = round(*low, *high));
    if let [last] = rest {
        pairs[whole.len()] = round(*last, 0.0);
    }
    packed.iter_mut().zip(pairs).for_each(|(packed, pair)| packed[i] = pair);
}

/// Pairs of all lines, where the values of one depth lie side by side.
#[inline(always)]
fn across<const L: usize>(mat: Mat<'_>, lines: &Range<usize>, values: Range<usize>, packed: &mut [[u32; L]]) {
    let stored = |depth: usize| &mat.data[depth * mat.stride..][lines.clone()];
    for (packed, depth) in packed.iter_mut().zip(values.clone().step_by(2)) {
        let low = stored(depth);
        if depth + 1 < values.end {
            let both = low.iter().zip(stored(depth + 1));
            packed.iter_mut().zip(both).for_each(|(pair, (low, high))| *pair = round(*low, *high));
        } else {
            packed.iter_mut().zip(low).for_each(|(pair, low)| *pair = round(*low, 0.0));
        }
    }
}

#[inline(always)]
fn round(low: f32, high: f32) -> u32 {
    u32::from(to_bf16(low)) | u32::from(to_bf16(high)) << 16
}
