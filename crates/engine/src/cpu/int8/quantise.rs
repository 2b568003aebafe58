//! Rounding of rows to whole numbers from −127 to 127.

use std::cell::Cell;

use rayon::prelude::*;

use super::{DEPTH, Kernel, fastest};
use crate::cpu::vectorised;

const LARGEST: f32 = 127.0;
/// The largest of the numbers of 4 bits, and what they are multiplied by.
const LARGEST_COARSE: f32 = 7.0;
const COARSE_STEP: i8 = 16;
/// Values that are rounded by one thread.
const SERIAL: usize = 1 << 16;

/// Rounds a row; returns its scale, by which the whole numbers are multiplied to get the row back. The scale of a row
/// with a value that is not finite is not a number.
pub fn quantise_row(row: &[f32], rounded: &mut [i8]) -> f32 {
    vectorised(
        #[inline(always)]
        || {
            let (factor, scale) = scales(row);
            for (whole, value) in rounded.iter_mut().zip(row) {
                *whole = low_byte(value * factor) as i8;
            }
            scale
        },
    )
}

/// Rounds a row to whole numbers from −7 to 7, which it multiplies by 16.
pub(super) fn quantise_row_coarsely(row: &[f32], rounded: &mut [i8]) -> f32 {
    let (factor, scale) = scales(row);
    for (whole, value) in rounded.iter_mut().zip(row) {
        *whole = low_byte(value * (factor * (LARGEST_COARSE / LARGEST))) as i8 * COARSE_STEP;
    }
    scale * (LARGEST / (LARGEST_COARSE * f32::from(COARSE_STEP)))
}

/// The nearest whole number, of two the even one, in two's complement: numbers near 1.5·2²³ have no fraction, and their
/// last bits count.
#[inline(always)]
fn low_byte(value: f32) -> u8 {
    (value + 12_582_912.0).to_bits() as u8
}

/// Adding 128 to a number of 8 bits changes this bit.
const SIGN: u8 = 0x80;

/// Factor that makes values whole numbers, and the scale that undoes it.
#[inline(always)]
fn scales(row: &[f32]) -> (f32, f32) {
    // Magnitudes have the order of their bits, and what is not finite comes last.
    let mut largest = 0;
    for value in row {
        largest = largest.max(value.abs().to_bits());
    }
    match f32::from_bits(largest) {
        0.0 => (0.0, 0.0),
        largest if largest.is_finite() => (LARGEST / largest, largest / LARGEST),
        _ => (f32::NAN, f32::NAN),
    }
}

/// X, rounded, with the scale of each row.
pub(crate) struct Rounded {
    /// The kernel that reads it.
    pub(super) kernel: Kernel,
    pub(super) m: usize,
    pub(super) k: usize,
    /// Rows of `k` values, padded to a multiple of 64, in the form that the kernel reads.
    pub(super) values: Vec<u8>,
    pub(super) scales: Vec<f32>,
}

thread_local! {
    /// Memory of rounded rows and their scales, which is used again.
    static ROUNDED: Cell<(Vec<u8>, Vec<f32>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Rounded {
    /// `m` rows of `k` values.
    pub(crate) fn new(shape: [usize; 2], x: &[f32]) -> Self {
        Self::by(fastest(), shape, x)
    }

    pub(super) fn by(kernel: Kernel, [m, k]: [usize; 2], x: &[f32]) -> Self {
        assert_eq!(x.len(), m * k, "{m} rows of {k} values");
        let (mut values, mut scales) = ROUNDED.take();
        let bytes = m * kernel.form.row_bytes(k.next_multiple_of(DEPTH));
        values.resize(values.len().max(bytes), 0);
        scales.resize(scales.len().max(m), 0.0);
        quantise_rows(x, k, kernel.form, &mut values[..bytes], &mut scales[..m]);
        Self { kernel, m, k, values, scales }
    }
}

impl Drop for Rounded {
    fn drop(&mut self) {
        ROUNDED.set((std::mem::take(&mut self.values), std::mem::take(&mut self.scales)));
    }
}

/// How a kernel reads rounded values of X.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Values with 128 added.
    Shifted,
    /// Values with their signs, then their magnitudes.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "AVX2 alone reads it"))]
    Split,
}

impl Form {
    /// Bytes of a row of `depth` values.
    pub(super) fn row_bytes(self, depth: usize) -> usize {
        match self {
            Self::Shifted => depth,
            Self::Split => 2 * depth,
        }
    }
}

/// Rounds rows of `k` values, each padded to a multiple of 64; the padding holds anything.
fn quantise_rows(x: &[f32], k: usize, form: Form, rounded: &mut [u8], scales_of_rows: &mut [f32]) {
    let depth = k.next_multiple_of(DEPTH);
    let bytes = form.row_bytes(depth);
    let round = |((row, rounded), scale_of_row): ((&[f32], &mut [u8]), &mut f32)| {
        vectorised(
            #[inline(always)]
            || {
                let (factor, scale) = scales(row);
                *scale_of_row = scale;
                let (values, magnitudes) = rounded.split_at_mut(depth);
                match form {
                    Form::Shifted => {
                        for (whole, value) in values.iter_mut().zip(row) {
                            *whole = low_byte(value * factor) ^ SIGN;
                        }
                    }
                    Form::Split => {
                        for ((whole, magnitude), value) in values.iter_mut().zip(magnitudes).zip(row) {
                            *whole = low_byte(value * factor);
                            *magnitude = (*whole as i8).unsigned_abs();
                        }
                    }
                }
            },
        )
    };
    if x.len() < SERIAL {
        x.chunks_exact(k).zip(rounded.chunks_exact_mut(bytes)).zip(scales_of_rows).for_each(round);
    } else {
        let rows = x.par_chunks_exact(k).zip(rounded.par_chunks_exact_mut(bytes)).zip(scales_of_rows);
        rows.with_min_len(SERIAL / 4 / k.max(1)).for_each(round);
    }
}
