//! Inference only: attention of single rows over cached keys and values, rows by index, best continuations.

mod attention;
mod best;

pub use attention::{KvCache, Lineage};
pub use best::{Candidate, Constraints, best_continuations};

use crate::{Ids, Tape, Tensor};

impl Tape<'_> {
    /// The rows of `x` named by `rows`, in that order; no gradient.
    pub fn gather(&mut self, x: &Tensor, rows: &Ids) -> Tensor {
        let cols = x.cols();
        let mut y = self.device().scratch(rows.len() * cols);
        for (y, &row) in y.chunks_exact_mut(cols).zip(rows.values()) {
            y.copy_from_slice(x.row(row as usize));
        }
        Tensor::new([rows.len(), cols], y)
    }

    /// The columns `range` of `x`; no gradient.
    pub fn columns(&mut self, x: &Tensor, range: std::ops::Range<usize>) -> Tensor {
        let mut y = self.device().scratch(x.rows() * range.len());
        for (row, y) in y.chunks_exact_mut(range.len()).enumerate() {
            y.copy_from_slice(&x.row(row)[range.clone()]);
        }
        Tensor::new([x.rows(), range.len()], y)
    }

    /// `a + b`, `[N, D]`; no gradient.
    pub fn sum(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        assert_eq!([a.rows(), a.cols()], [b.rows(), b.cols()], "sum: shapes differ");
        let mut y = self.device().scratch(a.values().len());
        y.iter_mut().zip(a.values()).zip(b.values()).for_each(|((y, a), b)| *y = a + b);
        Tensor::new([a.rows(), a.cols()], y)
    }

    /// `factor·a`; no gradient.
    pub fn scaled(&mut self, a: &Tensor, factor: f32) -> Tensor {
        let mut y = self.device().scratch(a.values().len());
        y.iter_mut().zip(a.values()).for_each(|(y, a)| *y = a * factor);
        Tensor::new([a.rows(), a.cols()], y)
    }
}
