//! Whole numbers in place of f32 or bf16: the first layers of gates. A step of a search reads them for a few rows of X, at
//! the speed of memory, and so they cost what their bytes do: three quarters of f32, half of bf16.
//!
//! The numbers of a column count one unit, a power of two, so that weights of 24 bits are rounded by at most 2⁻²³ of the
//! largest one in their column, and those of 8 bits by at most 2⁻⁷. With 24 bits products lose less by it than by the
//! rounding of their sums: f32 itself has 24 bits.
//!
//! X is multiplied by the units, which is exact. The rounded weights are kept in f32 or bf16, too, and products with
//! either have the same bits. The smaller ones are read for a few rows; many rows would wait for their expansion.

use super::whole::Whole;
use super::{MAX_ROWS, Panels};
use crate::cpu::vectorised;

/// A matrix of whole numbers.
pub(crate) struct FixedMatrix<W: Whole> {
    fixed: Panels<W>,
    /// Unit of each column: its exponent, as an f32 has it. So all of them are a few lines of the cache.
    units: Vec<u8>,
    /// The same matrix without units.
    exact: Panels<W::Exact>,
}

impl<W: Whole> FixedMatrix<W> {
    /// Rounds the numbers of a matrix `[rows, cols]`.
    pub(crate) fn new(shape @ [rows, cols]: [usize; 2], values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * cols, "{rows} rows of {cols} values");
        let column = |col: usize| values.iter().skip(col).step_by(cols);
        let units: Vec<u8> = (0..cols).map(|col| unit(column(col), W::PLACES)).collect();
        let (mut fixed, mut exact) = (Panels::zeros(shape), Panels::zeros(shape));
        let mut numbers = vec![0.0; cols];
        for (i, row) in values.chunks_exact(cols).enumerate() {
            numbers.copy_from_slice(row);
            numbers.iter_mut().zip(&units).for_each(|(number, unit)| *number /= power(*unit));
            fixed.set(i, &numbers);
            fixed.row(i, &mut numbers);
            numbers.iter_mut().zip(&units).for_each(|(number, unit)| *number *= power(*unit));
            exact.set(i, &numbers);
        }
        Self { fixed, units, exact }
    }

    /// `Y = X·Wᵀ` and `Z = X·Vᵀ` with this V, `m` rows, both at once; `last` is called when V begins.
    pub(crate) fn products_beside(
        &self,
        w: &Panels<W::Exact>,
        m: usize,
        x: &[f32],
        y: [&mut [f32]; 2],
        last: impl Fn() + Sync,
    ) {
        if m > MAX_ROWS {
            return Panels::products((w, &self.exact), m, [x, x], y, last);
        }
        let mut counted = x.to_vec();
        vectorised(
            #[inline(always)]
            || {
                for row in counted.chunks_exact_mut(self.units.len().max(1)) {
                    row.iter_mut().zip(&self.units).for_each(|(x, unit)| *x *= power(*unit));
                }
            },
        );
        Panels::products((w, &self.fixed), m, [x, &counted], y, last);
    }
}

/// The power of two with this exponent, as an f32 has it.
#[inline(always)]
fn power(exponent: u8) -> f32 {
    f32::from_bits(u32::from(exponent) << 23)
}

/// Smallest exponent of a unit, 2⁻⁹⁰: X times a unit must keep its bits.
const LEAST_UNIT: u32 = 37;

/// Exponent of the unit in which the largest of these values is a number from 2 to the power of `places` to twice as much.
/// Where a value is infinite or not a number, it is that of infinity, and no product is a number.
fn unit<'a>(values: impl Iterator<Item = &'a f32>, places: u32) -> u8 {
    // Numbers without a sign are in the order of their bits; what is not a number comes last.
    let largest = values.map(|value| value.abs().to_bits() >> 23).max().unwrap_or(0);
    if largest == 255 { 255 } else { largest.saturating_sub(places).max(LEAST_UNIT) as u8 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_at_once, random};
    use super::super::{Byte, Half, ThreeBytes};
    use super::*;

    #[test]
    fn all_kernels_give_the_same_bits() {
        check::<ThreeBytes>(1e9);
        check_at_once::<f32, ThreeBytes>();
        check::<Byte>(120.0);
        check_at_once::<Half, Byte>();
    }

    /// A matrix with columns of very different sizes.
    fn uneven([rows, cols]: [usize; 2]) -> Vec<f32> {
        let sizes = random(7, cols);
        let values = random(8, rows * cols);
        values.iter().enumerate().map(|(i, v)| v * (10.0 * sizes[i % cols]).exp2()).collect()
    }

    #[test]
    fn weights_are_rounded_by_little() {
        check_rounding::<ThreeBytes>(23);
        check_rounding::<Byte>(7);
    }

    /// Weights are rounded by at most 2 to the power of minus `places` of the largest one in their column.
    fn check_rounding<W: Whole>(places: i32) {
        let shape @ [_, cols] = [70, 52];
        let values = uneven(shape);
        let matrix = FixedMatrix::<W>::new(shape, &values);
        for col in 0..cols {
            let column = |values: &[f32]| values.iter().skip(col).step_by(cols).copied().collect::<Vec<_>>();
            let largest = column(&values).iter().fold(0f32, |most, v| most.max(v.abs()));
            for (row, value) in column(&values).into_iter().enumerate() {
                let mut rounded = vec![0.0; cols];
                matrix.exact.row(row, &mut rounded);
                assert!(
                    (rounded[col] - value).abs() <= largest * 2f32.powi(-places),
                    "{value} {}",
                    rounded[col]
                );
            }
        }
    }

    #[test]
    fn few_rows_have_the_bits_of_many() {
        check_few_rows::<ThreeBytes>();
        check_few_rows::<Byte>();
    }

    fn check_few_rows<W: Whole>() {
        let [rows, cols, m] = [130, 90, 20];
        let mut w = Panels::zeros([64, cols]);
        w.set(0, &random(5, 64 * cols));
        let (v, x) = (FixedMatrix::<W>::new([rows, cols], &uneven([rows, cols])), random(6, m * cols));
        let products = |x: &[f32]| {
            let m = x.len() / cols;
            let (mut y, mut z) = (vec![f32::NAN; m * 64], vec![f32::NAN; m * rows]);
            v.products_beside(&w, m, x, [&mut y, &mut z], || {});
            (y, z)
        };
        let (y, z) = products(&x);
        for few in 1..=MAX_ROWS {
            let (first, others) = products(&x[..few * cols]);
            assert!(first == y[..few * 64] && others == z[..few * rows], "{few} rows");
        }
    }

    /// Errors of products with the matrix as it is, beside sums of f64: in f32, and in 24 bits.
    #[test]
    fn products_of_24_bits_are_as_exact_as_in_f32() {
        let shape @ [rows, cols] = [256, 512];
        let (values, x) = (uneven(shape), random(9, cols));
        // Columns are folded with the scales of a norm: inputs are small where weights are large.
        let largest = |col| values.iter().skip(col).step_by(cols).fold(0f32, |most, v| most.max(v.abs()));
        let x: Vec<f32> = x.iter().enumerate().map(|(col, x)| x / largest(col)).collect();
        let mut exact = Panels::zeros(shape);
        exact.set(0, &values);
        let [mut f32s, mut fixed] = [vec![0.0; rows], vec![0.0; rows]];
        exact.product(1, &x, &mut f32s);
        FixedMatrix::<ThreeBytes>::new(shape, &values).products_beside(
            &exact,
            1,
            &x,
            [&mut vec![0.0; rows], &mut fixed],
            || {},
        );
        let error = |y: &[f32]| {
            let errors = values.chunks_exact(cols).zip(y).map(|(w, y)| {
                let sum: f64 = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                (sum - f64::from(*y)).powi(2)
            });
            errors.sum::<f64>().sqrt()
        };
        let (f32s, fixed) = (error(&f32s), error(&fixed));
        assert!(fixed < 1.1 * f32s, "{fixed:e} in 24 bits, {f32s:e} in f32");
    }

    #[test]
    fn columns_without_size_and_numbers_that_are_none() {
        check_extremes::<ThreeBytes>();
        check_extremes::<Byte>();
    }

    fn check_extremes<W: Whole>() {
        let products = |w: [f32; 6], x: [f32; 2]| {
            let (matrix, mut y) = (FixedMatrix::<W>::new([3, 2], &w), [[0.0; 3]; 2]);
            let [one, other] = &mut y;
            matrix.products_beside(&Panels::zeros([3, 2]), 1, &x, [one, other], || {});
            other.to_owned()
        };
        assert_eq!(products([0.0, 1.0, 0.0, -0.5, 0.0, 3.0], [7.0, 2.0]), [2.0, -1.0, 6.0]);
        assert_eq!(products([1e-42, 1.0, 1e-30, 1.0, 0.0, 2f32.powi(127)], [1.0, 0.5])[2], 2f32.powi(126));
        for wrong in [f32::NAN, f32::INFINITY] {
            assert!(products([1.0, wrong, 1.0, 2.0, 1.0, 3.0], [1.0, 1.0]).iter().all(|y| y.is_nan()));
        }
    }
}
