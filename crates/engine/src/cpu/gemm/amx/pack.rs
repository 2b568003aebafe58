//! Splitting `f32` operands into bf16 parts, laid out as AMX tiles.
//!
//! An operand is a set of *lines* (rows of `A`, columns of `B`), each `depth` values long. 32 lines make a
//! panel; a panel is a run of *steps*, each 32 values deep; a step is two tiles per part: two halves of 16
//! lines. The kernel then reads both operands strictly forwards.
//!
//! `tdpbf16ps` multiplies pairs of neighbouring bf16 values. A sum has no order, so values `i` and `i + 16` of
//! a step are paired instead of `2i` and `2i + 1`, in both operands: pairs then come from two vectors lane by
//! lane, without shuffling.

use super::super::Mat;
use std::arch::x86_64::*;

/// Lines in a panel.
pub(super) const PANEL: usize = 32;
/// Depth of one step.
pub(super) const STEP: usize = 32;
const HALF: usize = 16;

/// One tile: 16 rows of 16 pairs of bf16 values.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile([[u32; 16]; 16]);

impl Tile {
    pub(super) const ZERO: Self = Self([[0; 16]; 16]);
}

/// One packed step of 32 lines: two halves of each part.
pub(super) type Step<const PARTS: usize> = [[Tile; 2]; PARTS];

/// Contents of the rows of a tile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TileRows {
    /// Lines, as the left operand of `tdpbf16ps` wants them.
    Lines,
    /// Pairs along the depth, as the right operand wants them.
    Depth,
}

/// An operand of the product, seen as lines.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    data: &'a [f32],
    /// Distance between stored rows, which are lines or cuts across all lines at one depth.
    stride: usize,
    pub(super) stored_rows_are_lines: bool,
    pub(super) lines: usize,
    depth: usize,
    tile_rows: TileRows,
}

impl<'a> Operand<'a> {
    /// The rows of `A`.
    pub(super) fn rows_of(a: Mat<'a>, rows: usize, depth: usize) -> Self {
        let stored_rows_are_lines = !a.transposed;
        let (data, stride, lines) = (a.data, a.stride, rows);
        Self { data, stride, stored_rows_are_lines, lines, depth, tile_rows: TileRows::Lines }
    }

    /// The columns of `B`.
    pub(super) fn columns_of(b: Mat<'a>, columns: usize, depth: usize) -> Self {
        let stored_rows_are_lines = b.transposed;
        let (data, stride, lines) = (b.data, b.stride, columns);
        Self { data, stride, stored_rows_are_lines, lines, depth, tile_rows: TileRows::Depth }
    }

    /// Packs one step of the panel that starts at `line`; what lies beyond the operand becomes zero.
    #[target_feature(enable = "avx512f")]
    pub(super) fn pack_step<const PARTS: usize>(&self, line: usize, depth: usize, step: &mut Step<PARTS>) {
        let turned = (self.tile_rows == TileRows::Lines) != self.stored_rows_are_lines;
        for half in 0..2 {
            let line = line + half * HALF;
            let (first, second) = (self.square(line, depth), self.square(line, depth + HALF));
            if turned {
                let (first, second) = (first.transposed(), second.transposed());
                for row in 0..16 {
                    store_parts(split_pairs(first[row], second[row]), step, half, row);
                }
            } else {
                for row in 0..16 {
                    store_parts(split_pairs(first.row(row), second.row(row)), step, half, row);
                }
            }
        }
    }

    /// The square of 16 lines and 16 values that starts at (`line`, `depth`).
    fn square(&self, line: usize, depth: usize) -> Square<'a> {
        let (lines, depths) =
            (self.lines.saturating_sub(line).min(16), self.depth.saturating_sub(depth).min(16));
        if lines == 0 || depths == 0 {
            return Square { data: &[], stride: 0, rows: 0, mask: 0, next: 0 };
        }
        let (start, rows, columns, next) = if self.stored_rows_are_lines {
            (line * self.stride + depth, lines, depths, STEP)
        } else {
            (depth * self.stride + line, depths, lines, STEP * self.stride)
        };
        let data = &self.data[start..start + (rows - 1) * self.stride + columns];
        Square { data, stride: self.stride, rows, mask: u16::MAX >> (16 - columns), next }
    }
}

/// Up to 16 x 16 values as stored; the rest of the square counts as zero.
///
/// `data` ends with the last value of the last row.
struct Square<'a> {
    data: &'a [f32],
    stride: usize,
    rows: usize,
    /// The columns that exist.
    mask: u16,
    /// Distance to the same place in the next step.
    next: usize,
}

impl Square<'_> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn row(&self, row: usize) -> __m512 {
        let mask = if row < self.rows { self.mask } else { 0 };
        let start = self.data.as_ptr().wrapping_add(row * self.stride);
        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(self.next).cast());
        // SAFETY: the columns of an existing row lie inside `data`; masked lanes, and rows, are not read.
        unsafe { _mm512_maskz_loadu_ps(mask, start) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transposed(&self) -> [__m512; 16] {
        let mut rows = [_mm512_setzero_ps(); 16];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = self.row(i);
        }
        transpose(rows)
    }
}

/// The bf16 parts of two vectors, largest part first, as pairs of (`low`, `high`).
///
/// Each part is the rounding of what the parts before it leave, so its error has either sign. Two parts are
/// within 2⁻¹⁷ of the whole; three parts of 8 bits hold all 24 bits of an `f32` (unless the last is
/// subnormal), and the products of parts left out of the sum are below 2⁻²⁶ of the whole. An infinite value
/// leaves `inf - inf = NaN`.
#[inline]
#[target_feature(enable = "avx512f")]
fn split_pairs<const PARTS: usize>(mut low: __m512, mut high: __m512) -> [__m512i; PARTS] {
    let mut parts = [_mm512_setzero_si512(); PARTS];
    let (last, others) = parts.split_last_mut().expect("some parts");
    for part in others {
        let ((low_part, low_rest), (high_part, high_rest)) = (round_off(low), round_off(high));
        *part = pair(low_part, high_part);
        (low, high) = (low_rest, high_rest);
    }
    // The third part needs no rounding: cutting it is exact, and keeps NaN.
    *last = if PARTS == 3 { pair(low, high) } else { rounded_pair(low, high) };
    parts
}

/// Two vectors rounded to bf16, as [`pair`] puts them; NaN in either makes a pair of NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounded_pair(low: __m512, high: __m512) -> __m512i {
    // Rounding up could carry a NaN over into a zero.
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(low, high);
    let rounded = pair(add_half(low), add_half(high));
    _mm512_mask_set1_epi32(rounded, nan, !0)
}

/// A value rounded to bf16 (ties away from zero), and the exact rest.
#[inline]
#[target_feature(enable = "avx512f")]
fn round_off(value: __m512) -> (__m512, __m512) {
    let rounded = _mm512_and_si512(_mm512_castps_si512(add_half(value)), _mm512_set1_epi32(!0xffff));
    let rounded = _mm512_castsi512_ps(rounded);
    (rounded, _mm512_sub_ps(value, rounded))
}

/// Moves a value up by half of the last bit of a bf16, so that cutting rounds it.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_half(value: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x8000)))
}

/// The upper halves of two vectors, lane by lane: `low`'s in the lower half.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(low: __m512, high: __m512) -> __m512i {
    let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(low));
    // Truth table of `first | (second & third)`.
    const OR_AND: i32 = 0b1111_1000;
    _mm512_ternarylogic_epi32::<OR_AND>(low, _mm512_castps_si512(high), _mm512_set1_epi32(!0xffff))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_parts<const PARTS: usize>(parts: [__m512i; PARTS], step: &mut Step<PARTS>, half: usize, row: usize) {
    for (part, value) in parts.into_iter().enumerate() {
        let to = &mut step[part][half].0[row];
        // SAFETY: `to` is 64 writable bytes, and rows of a tile are aligned to 64 bytes.
        unsafe { _mm512_store_si512(to.as_mut_ptr().cast(), value) };
    }
}

/// Rows become columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [__m512; 16]) -> [__m512; 16] {
    let zero = [_mm512_setzero_ps(); 16];
    let (mut pairs, mut quads, mut columns) = (zero, zero, zero);
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let pd = |i: usize| _mm512_castps_pd(pairs[i]);
    for i in (0..16).step_by(4) {
        quads[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(i), pd(i + 2)));
        quads[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(i), pd(i + 2)));
        quads[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(i + 1), pd(i + 3)));
        quads[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(i + 1), pd(i + 3)));
    }
    // Quarter `q` of `quads[4g + j]` is now column `4q + j` of rows `4g..4g + 4`.
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    for j in 0..4 {
        let upper_even = _mm512_shuffle_f32x4::<EVEN>(quads[j], quads[4 + j]);
        let lower_even = _mm512_shuffle_f32x4::<EVEN>(quads[8 + j], quads[12 + j]);
        let upper_odd = _mm512_shuffle_f32x4::<ODD>(quads[j], quads[4 + j]);
        let lower_odd = _mm512_shuffle_f32x4::<ODD>(quads[8 + j], quads[12 + j]);
        columns[j] = _mm512_shuffle_f32x4::<EVEN>(upper_even, lower_even);
        columns[4 + j] = _mm512_shuffle_f32x4::<EVEN>(upper_odd, lower_odd);
        columns[8 + j] = _mm512_shuffle_f32x4::<ODD>(upper_even, lower_even);
        columns[12 + j] = _mm512_shuffle_f32x4::<ODD>(upper_odd, lower_odd);
    }
    columns
}
