//! Values of a computation.

use crate::cuda::memory::Ptr;
use crate::tensor::{Segments, Tensor};

/// A value in a computation.
#[derive(Clone, Debug)]
pub struct Var {
    pub(super) tensor: Tensor,
    pub(super) slot: Option<usize>,
    pub(super) rows: RealRows,
}

/// Number of real rows of a value. A captured pass has room for more rows than a batch.
#[derive(Clone, Debug)]
pub(crate) enum RealRows {
    /// As many as the value has.
    All,
    /// One per sentence of these.
    Sentences(Segments),
    /// As many as these have.
    Rows(Segments),
}

impl Var {
    /// A value that gradients do not flow through.
    pub fn constant(tensor: Tensor) -> Self {
        Self { tensor, slot: None, rows: RealRows::All }
    }

    /// The value.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The same value, cut off from what made it.
    pub fn detach(&self) -> Self {
        Self { slot: None, ..self.clone() }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tensor.rows()
    }

    /// Values per row.
    pub fn cols(&self) -> usize {
        self.tensor.cols()
    }

    /// Rows and values per row.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows(), self.cols()]
    }

    pub(crate) fn values(&self) -> &[f32] {
        self.tensor.values()
    }

    /// The address in device memory.
    pub(crate) fn ptr(&self) -> Ptr {
        self.tensor.ptr()
    }

    pub(crate) fn with_rows(self, rows: RealRows) -> Self {
        Self { rows, ..self }
    }

    pub(crate) fn real_rows(&self) -> &RealRows {
        &self.rows
    }

    /// True if a gradient is wanted for this value.
    pub(crate) fn tracked(&self) -> bool {
        self.slot.is_some()
    }
}
