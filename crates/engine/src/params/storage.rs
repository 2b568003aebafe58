//! Number types of matrices in inference.

use super::{GroupSet, Layout};
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
    /// Numbers of 32 bits, packed for products. The first layers of gates have 24 in the steps of a search, where products
    /// are as exact as with 32.
    F32,
    /// Weights of 16 bits (bfloat16), activations of 32 bits. In the steps of a search, the first layers of gates have 8
    /// and the second ones 16.
    Bf16,
    /// Weights and the activations they are multiplied with in 8 bits ([`crate::cpu::int8`]). In the steps of a
    /// search, the first layers of gates have 4 and the second ones 16.
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
    pub(super) fn product(&self, m: usize, x: &[f32], y: &mut [f32]) {
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
