//! Rounding of rows to whole numbers from −127 to 127.

use rayon::prelude::*;

use super::{DEPTH, Form};
use crate::cpu::vectorised;

const LARGEST: f32 = 127.0;
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
    let (mut largest, mut finite) = ([0f32; 16], [0f32; 16]);
    let chunks = row.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for ((largest, finite), value) in largest.iter_mut().zip(&mut finite).zip(chunk) {
            *largest = if value.abs() > *largest { value.abs() } else { *largest };
            // 0, or not a number.
            *finite += value * 0.0;
        }
    }
    let finite: f32 = finite.iter().sum::<f32>() + rest.iter().map(|value| value * 0.0).sum::<f32>();
    let largest = rest.iter().chain(&largest).fold(0f32, |largest, value| largest.max(value.abs())) + finite;
    if largest == 0.0 { (0.0, 0.0) } else { (LARGEST / largest, largest / LARGEST) }
}

/// Rounds rows of `k` values, each padded to a multiple of 64; the padding holds anything.
pub(super) fn quantise_rows(x: &[f32], k: usize, form: Form, rounded: &mut [u8], scales_of_rows: &mut [f32]) {
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
