//! Number types of matrices in inference.

use std::borrow::Cow;

use super::{GroupSet, Layout};
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cpu::int8::Int8Matrix;
use crate::cpu::panels::{Half, Panels};

/// Number type in which a CPU holds the large matrices of a model. Vectors and small matrices have 32 bits in every
/// type, as have activations between products, norms, softmax and residual sums. Keys and values that a search keeps
/// between its steps have 16 bits ([`Bf16`](Self::Bf16)) where matrices have 16 or 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeType {
    /// That of the model's file; f32 for models without one, in the layout of training.
    #[default]
    Auto,
    /// Numbers of 32 bits, packed for products.
    F32,
    /// Weights of 16 bits (bfloat16), activations of 32 bits.
    Bf16,
    /// Weights and the activations they are multiplied with in 8 bits ([`crate::cpu::int8`]).
    Int8,
}

impl ComputeType {
    /// All types with their names.
    pub const NAMED: [(Self, &'static str); 4] =
        [(Self::Auto, "auto"), (Self::F32, "f32"), (Self::Bf16, "bf16"), (Self::Int8, "int8")];

    /// This type, or `stored` where it is [`ComputeType::Auto`].
    pub fn or(self, stored: Self) -> Self {
        if self == Self::Auto { stored } else { self }
    }
}

impl std::fmt::Display for ComputeType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Self::NAMED.iter().find(|(compute, _)| compute == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl std::str::FromStr for ComputeType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMED.iter().find(|(_, other)| *other == name);
        found
            .map(|(compute, _)| *compute)
            .ok_or_else(|| format!("{name} is none of auto, f32, bf16 and int8"))
    }
}

/// Fewest values of a matrix that is packed. Smaller ones cost nothing in f32, and some are the last layers of gates,
/// which decide more than their size says.
const LEAST_VALUES: usize = 1 << 14;
/// Fewest values of its rows.
const LEAST_COLS: usize = 32;

/// Returns true for matrices that are packed where a number type is asked for.
pub fn is_large(shape: &[usize]) -> bool {
    matches!(*shape, [rows, cols] if cols >= LEAST_COLS && rows * cols >= LEAST_VALUES)
}

/// A matrix that is packed for products.
#[derive(Clone)]
pub(super) enum Packed {
    F32(Panels<f32>),
    Bf16(Panels<Half>),
    Int8(Int8Matrix),
}

impl Packed {
    fn zeros(compute: ComputeType, shape: [usize; 2]) -> Option<Self> {
        match compute {
            ComputeType::Auto => None,
            ComputeType::F32 => Some(Self::F32(Panels::zeros(shape))),
            ComputeType::Bf16 => Some(Self::Bf16(Panels::zeros(shape))),
            ComputeType::Int8 => Some(Self::Int8(Int8Matrix::zeros(shape))),
        }
    }

    /// Rounds rows of numbers, from row `first` on.
    pub(super) fn set(&mut self, first: usize, values: &[f32]) {
        match self {
            Self::F32(matrix) => matrix.set(first, values),
            Self::Bf16(matrix) => matrix.set(first, values),
            Self::Int8(matrix) => matrix.set(first, values),
        }
    }

    /// A matrix of some of the rows, in this order.
    pub(super) fn select(&self, rows: &[u32]) -> Self {
        match self {
            Self::F32(matrix) => Self::F32(matrix.select(rows)),
            Self::Bf16(matrix) => Self::Bf16(matrix.select(rows)),
            Self::Int8(matrix) => Self::Int8(matrix.select(rows)),
        }
    }

    /// `Y[m, rows] = X[m, cols]·Wᵀ`.
    fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        match self {
            Self::F32(matrix) => matrix.product(m, x, y),
            Self::Bf16(matrix) => matrix.product(m, x, y),
            Self::Int8(matrix) => matrix.product(m, x, y),
        }
    }

    /// The numbers of a row.
    pub(super) fn row(&self, row: usize, values: &mut [f32]) {
        match self {
            Self::F32(matrix) => matrix.row(row, values),
            Self::Bf16(matrix) => matrix.row(row, values),
            Self::Int8(matrix) => matrix.row(row, values),
        }
    }
}

/// Takes large matrices out of the flat buffers: all but those of the groups `exact`. Returns one entry per block.
pub(super) fn pack(layout: &mut Layout, compute: ComputeType, exact: GroupSet) -> Vec<Option<Packed>> {
    let mut all = Vec::with_capacity(layout.blocks.len());
    layout.group_len.fill(0);
    for block in &mut layout.blocks {
        let large =
            is_large(&[block.rows, block.cols]) && block.parts.iter().all(|part| part.shape.len() == 2);
        let packed = match large && !exact.contains(block.group) {
            true => Packed::zeros(compute, [block.rows, block.cols]),
            false => None,
        };
        let len = &mut layout.group_len[block.group.0];
        block.offset = *len;
        if packed.is_none() {
            *len += (block.rows * block.cols).next_multiple_of(super::layout::ALIGNMENT);
        }
        all.push(packed);
    }
    all
}

/// A matrix that is no parameter, packed as one.
pub(crate) struct PackedMatrix(Packed);

impl PackedMatrix {
    /// `Y[m, rows] = X[m, cols]·Wᵀ`.
    pub(crate) fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
        self.0.product(m, x, y);
    }
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

    /// A matrix `[rows, cols]` of other numbers, packed as this one is; `None` where it is not packed.
    pub(crate) fn packed_like(self, values: &[f32]) -> Option<PackedMatrix> {
        let Values::Packed(packed) = self.values else { return None };
        let rows = values.len() / self.cols;
        let mut like = match packed {
            Packed::F32(_) => Packed::F32(Panels::zeros([rows, self.cols])),
            Packed::Bf16(_) => Packed::Bf16(Panels::zeros([rows, self.cols])),
            Packed::Int8(_) => Packed::Int8(Int8Matrix::zeros([rows, self.cols])),
        };
        like.set(0, values);
        Some(PackedMatrix(like))
    }

    /// `Y[m, rows] = X[m, cols]·Wᵀ` and `Z = X·Vᵀ` in one go, V being packed as this matrix is.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(crate) fn products(self, other: &PackedMatrix, m: usize, x: &[f32], y: [&mut [f32]; 2]) {
        match (self.values, &other.0) {
            (Values::Packed(Packed::F32(one)), Packed::F32(other)) => Panels::products([one, other], m, x, y),
            (Values::Packed(Packed::Bf16(one)), Packed::Bf16(other)) => {
                Panels::products([one, other], m, x, y)
            }
            (Values::Packed(Packed::Int8(one)), Packed::Int8(other)) => {
                Int8Matrix::products([one, other], m, x, y);
            }
            _ => unreachable!("matrices that are packed in different ways"),
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
