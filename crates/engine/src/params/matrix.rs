//! Matrices of parameters as ops of the CPU read them.

use std::borrow::Cow;

use super::storage::Packed;
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cpu::int8::{Int8Matrix, Rounded};
use crate::cpu::panels::{Byte, FixedMatrix, ThreeBytes};

/// The first layer of a gate, for products beside those with the matrix of a projection.
pub(crate) enum PackedGate {
    /// Of 24 bits.
    F32(FixedMatrix<ThreeBytes>),
    /// Of 8 bits.
    Bf16(FixedMatrix<Byte>),
    /// Of 4 bits ([`Int8Matrix::coarse`]).
    Int8(Int8Matrix),
}

/// A matrix `[rows, cols]` as ops of the CPU read it.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) values: Values<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Values<'a> {
    F32(&'a [f32]),
    Packed(&'a Packed),
}

impl<'a> Matrix<'a> {
    /// `Y[m, rows] = X[m, cols]·Wᵀ`.
    pub(crate) fn product(self, m: usize, x: &[f32], y: &mut [f32], precision: Precision) {
        let Self { rows, cols, values } = self;
        match values {
            Values::F32(w) => {
                let (x, w) = (Mat::new(x, cols), Mat::new(w, cols).t());
                gemm([m, rows, cols], x, w, y, Into::Overwrite, precision);
            }
            Values::Packed(packed) => packed.product(m, x, y),
        }
    }

    /// The first layer `[rows, cols]` of a gate, for products beside those with this matrix; `None` where it is not
    /// packed.
    pub(crate) fn packed_gate(self, values: &[f32]) -> Option<PackedGate> {
        let Values::Packed(packed) = self.values else { return None };
        let shape = [values.len() / self.cols, self.cols];
        Some(match packed {
            Packed::F32(_) => PackedGate::F32(FixedMatrix::new(shape, values)),
            Packed::Bf16(_) => PackedGate::Bf16(FixedMatrix::new(shape, values)),
            Packed::Int8(_) => PackedGate::Int8(Int8Matrix::coarse(shape, values)),
        })
    }

    /// `Y[m, rows] = X[m, cols]·Wᵀ` and `Z = X·Vᵀ` in one go; `last` is called when V begins.
    ///
    /// # Panics
    ///
    /// If V was not packed for products beside this matrix.
    pub(crate) fn products(
        self,
        gate: &PackedGate,
        m: usize,
        x: &[f32],
        y: [&mut [f32]; 2],
        last: impl Fn() + Sync,
    ) {
        match (self.values, gate) {
            (Values::Packed(Packed::F32(one)), PackedGate::F32(gate)) => {
                gate.products_beside(one, m, x, y, last)
            }
            (Values::Packed(Packed::Bf16(one)), PackedGate::Bf16(gate)) => {
                gate.products_beside(one, m, x, y, last)
            }
            (Values::Packed(Packed::Int8(one)), PackedGate::Int8(gate)) => {
                Int8Matrix::products([one, gate], &Rounded::new([m, self.cols], x), y, last);
            }
            _ => unreachable!("matrices of different number types"),
        }
    }

    /// The values, unless the matrix is packed.
    pub(crate) fn plain(self) -> Option<&'a [f32]> {
        match self.values {
            Values::F32(values) => Some(values),
            Values::Packed(_) => None,
        }
    }

    /// Copies a row.
    #[inline(always)]
    pub(crate) fn row(self, row: usize, out: &mut [f32]) {
        match self.values {
            Values::F32(values) => out.copy_from_slice(&values[row * self.cols..(row + 1) * self.cols]),
            Values::Packed(packed) => packed.row(row, out),
        }
    }

    /// All values: those in memory, or the numbers that they stand for.
    pub(crate) fn values(self) -> Cow<'a, [f32]> {
        match self.values {
            Values::F32(values) => Cow::Borrowed(values),
            Values::Packed(packed) => {
                let mut all = vec![0.0; self.rows * self.cols];
                all.chunks_exact_mut(self.cols).enumerate().for_each(|(i, row)| packed.row(i, row));
                Cow::Owned(all)
            }
        }
    }
}
