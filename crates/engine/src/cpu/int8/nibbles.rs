//! Whole numbers of 4 bits: the first layers of gates. A step of a search reads them for a few rows of X, at the speed of
//! memory, and so they cost half of what numbers of 8 bits do.
//!
//! Such numbers are those from −7 to 7 times 16, so that each is the upper half of a number of 8 bits. They are kept in
//! both sizes, and products with either have the same bits: kernels take the one that is faster.
//!
//! They lie line by line on all processors: strips of nibbles are so short that one which looks ahead by itself would have
//! to begin anew too often.

use super::quantise::quantise_row_coarsely;
use super::{Int8Matrix, LANES, Layout, Line, STEP, STRIPS, fastest};

/// Lines that share one of nibbles: the first has the lower halves of its bytes, the second the upper ones.
pub(super) const SHARED: usize = 2;
/// The upper half of a byte.
pub(super) const UPPER: u8 = 0xf0;

impl Int8Matrix {
    /// A matrix whose numbers have 4 bits.
    pub(crate) fn coarse(shape: [usize; 2], values: &[f32]) -> Self {
        Self::coarse_as(fastest().layout, shape, values)
    }

    pub(super) fn coarse_as(layout: Layout, [rows, cols]: [usize; 2], values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * cols, "{rows} rows of {cols} values");
        let (mut matrix, mut rounded) = (Self::zeros_as(layout, [rows, cols]), vec![0; cols]);
        for (row, values) in values.chunks_exact(cols).enumerate() {
            let scale = quantise_row_coarsely(values, &mut rounded);
            matrix.set_row(row, &rounded, scale);
        }
        let shared_line = |strip: usize, line: usize| {
            let of_line = |i: usize| matrix.lines[matrix.line(strip, SHARED * line + i)];
            shared(of_line(0), of_line(1))
        };
        let of_panel = |panel: usize| {
            let lines = 0..matrix.strip_lines() / SHARED;
            lines.flat_map(move |line| (0..STRIPS).map(move |strip| (panel * STRIPS + strip, line)))
        };
        let places = (0..matrix.panels()).flat_map(of_panel);
        matrix.nibbles = places.map(|(strip, line)| shared_line(strip, line)).collect();
        matrix
    }
}

fn shared(first: Line, second: Line) -> Line {
    let mut line = Line([[0; STEP]; LANES]);
    let pairs = first.0.as_flattened().iter().zip(second.0.as_flattened());
    for (byte, (first, second)) in line.0.as_flattened_mut().iter_mut().zip(pairs) {
        *byte = (*first as u8 >> 4 | *second as u8 & UPPER) as i8;
    }
    line
}
