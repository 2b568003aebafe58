//! Matrices of bfloat16, and products of 32-bit activations with them: half the memory of f32, and as much arithmetic.

use super::gemm::streamed::kernel::Lanes;
use super::gemm::streamed::{self, Weight};
use crate::device::to_bf16;

/// The upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(u16);

impl Weight for Half {
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const Self) -> L {
        // SAFETY: the caller answers for values and instructions, and a half is a number of 16 bits.
        unsafe { L::widen(at.cast()) }
    }

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A row-major matrix of bfloat16.
#[derive(Clone)]
pub(crate) struct Bf16Matrix {
    rows: usize,
    cols: usize,
    values: Vec<Half>,
}

impl Bf16Matrix {
    /// Zeros.
    pub(crate) fn zeros([rows, cols]: [usize; 2]) -> Self {
        Self { rows, cols, values: vec![Half(0); rows * cols] }
    }

    /// Rounds rows of numbers, from row `first` on.
    pub(crate) fn set(&mut self, first: usize, values: &[f32]) {
        let halves = &mut self.values[first * self.cols..][..values.len()];
        halves.iter_mut().zip(values).for_each(|(half, &value)| *half = Half(to_bf16(value)));
    }

    /// The numbers of a row.
    pub(crate) fn row(&self, row: usize, values: &mut [f32]) {
        let halves = &self.values[row * self.cols..(row + 1) * self.cols];
        values.iter_mut().zip(halves).for_each(|(value, half)| *value = half.get());
    }

    /// `Y[m,n] = X[m,k]·Wᵀ`, `m` rows, with the bits of the product of the same numbers in f32.
    pub(crate) fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        if m > 0 && self.rows > 0 {
            streamed::product([m, self.rows, self.cols], x, &self.values, y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// A product with halves has the bits of a product with the numbers that they are, on every kernel.
    #[test]
    fn products_are_those_of_the_rounded_numbers() {
        for [m, n, k] in [[1, 3, 7], [5, 66, 512], [8, 10, 49]] {
            let stream = Rng::new(1, 0).stream(0);
            let x: Vec<f32> = (0..(m * k) as u32).map(|i| stream.normal(i, 0)).collect();
            let w: Vec<f32> = (0..(n * k) as u32).map(|i| stream.normal(i, 1)).collect();
            let mut matrix = Bf16Matrix::zeros([n, k]);
            matrix.set(0, &w);
            let mut rounded = vec![0.0; n * k];
            rounded.chunks_exact_mut(k).enumerate().for_each(|(row, values)| matrix.row(row, values));
            assert!(w.iter().zip(&rounded).all(|(w, r)| (w - r).abs() <= w.abs() / 256.0));
            let mut want = vec![0.0; m * n];
            streamed::product([m, n, k], &x, &rounded, &mut want);
            let mut all = streamed::kernels::<Half>();
            for (name, kernel) in all.drain(..) {
                let mut y = vec![0.0; m * n];
                streamed::product_by(kernel, [m, n, k], &x, &matrix.values, &mut y);
                assert_eq!(y, want, "{name}");
            }
        }
    }
}
