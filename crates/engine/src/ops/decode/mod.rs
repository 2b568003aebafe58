//! Inference only: attention of single rows over cached keys and values, rows by index, best continuations, rows of
//! log-probabilities.

mod attention;
mod best;
mod lineage;
mod log_probs;
mod window;

pub use attention::KvCache;
pub(crate) use best::ranked;
pub use best::{Candidate, Constraints, Continuations, continuations};
pub(crate) use lineage::GpuLineage;
pub use lineage::{Kept, Lineage, Room, RunningSum};
pub use log_probs::{log_probs, mean_log_probs};
pub use window::InputWindow;

use crate::{Ids, Tape, Tensor};

impl Tape<'_> {
    /// The rows of `x` named by `rows`, in that order; no gradient.
    pub fn gather(&mut self, x: &Tensor, rows: &Ids) -> Tensor {
        let cols = x.cols();
        if let Some(gpu) = self.gpu() {
            let y = self.device().scratch_of(x.dtype(), rows.len() * cols);
            crate::cuda::ops::elementwise::gather(&gpu, x, rows.ptr(), rows.len(), &y);
            return Tensor::new([rows.len(), cols], y);
        }
        let mut y = self.device().scratch(rows.len() * cols);
        for (y, &row) in y.chunks_exact_mut(cols).zip(rows.values()) {
            y.copy_from_slice(x.row(row as usize));
        }
        Tensor::new([rows.len(), cols], y)
    }

    /// The columns `range` of `x`; no gradient. CPU only, as the two below.
    fn columns(&mut self, x: &Tensor, range: std::ops::Range<usize>) -> Tensor {
        let mut y = self.device().scratch(x.rows() * range.len());
        for (row, y) in y.chunks_exact_mut(range.len()).enumerate() {
            y.copy_from_slice(&x.row(row)[range.clone()]);
        }
        Tensor::new([x.rows(), range.len()], y)
    }

    /// `a + b`, `[N, D]`; no gradient.
    fn sum(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        assert_eq!([a.rows(), a.cols()], [b.rows(), b.cols()], "sum: shapes differ");
        let mut y = self.device().scratch(a.values().len());
        y.iter_mut().zip(a.values()).zip(b.values()).for_each(|((y, a), b)| *y = a + b);
        Tensor::new([a.rows(), a.cols()], y)
    }

    /// `factor·a`; no gradient.
    fn scaled(&mut self, a: &Tensor, factor: f32) -> Tensor {
        let mut y = self.device().scratch(a.values().len());
        y.iter_mut().zip(a.values()).for_each(|(y, a)| *y = a * factor);
        Tensor::new([a.rows(), a.cols()], y)
    }
}
