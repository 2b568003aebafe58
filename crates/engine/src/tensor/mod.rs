//! Matrices, id lists and sentence boundaries on a device.

mod ids;
mod segments;

use std::sync::Arc;

pub use self::ids::Ids;
pub(crate) use self::segments::NO_SENTENCE;
pub use self::segments::Segments;
use crate::cuda::Gpu;
use crate::cuda::memory::{Dtype, Ptr};
use crate::device::{Buffer, Device};

/// A row-major matrix `[rows, cols]` on a device. Immutable once made; cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    rows: usize,
    cols: usize,
    data: Arc<Buffer>,
}

impl Tensor {
    /// Copies a matrix from the host, as 32-bit floats on every device.
    pub fn from_host(device: &Device, [rows, cols]: [usize; 2], values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * cols, "a {rows}x{cols} tensor needs {} values", rows * cols);
        let mut buffer = device.scratch_floats(values.len());
        buffer.write(0, values);
        Self::new([rows, cols], buffer)
    }

    pub(crate) fn new([rows, cols]: [usize; 2], buffer: Buffer) -> Self {
        assert_eq!(buffer.count(), rows * cols);
        Self { rows, cols, data: Arc::new(buffer) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Copies the values to the host, waiting for the device.
    pub fn to_host(&self) -> Vec<f32> {
        self.data.to_host()
    }

    /// Copies the first `rows` rows to the host, waiting for the device.
    pub(crate) fn first_rows_to_host(&self, rows: usize) -> Vec<f32> {
        self.data.range_to_host(0..rows * self.cols)
    }

    /// Number of values.
    pub(crate) fn count(&self) -> usize {
        self.rows * self.cols
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.data
    }

    /// The values of whatever type they are.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.data
    }

    /// The values, to be changed, if nobody else holds them.
    pub(crate) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        Arc::get_mut(&mut self.data)
    }

    /// The address in device memory.
    pub(crate) fn ptr(&self) -> Ptr {
        self.data.ptr()
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.data.dtype()
    }

    pub(crate) fn is_on_gpu(&self) -> bool {
        matches!(&*self.data, Buffer::Gpu(_))
    }

    /// The GPU that holds it.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        match &*self.data {
            Buffer::Host(_) => unreachable!("an op of the GPU was given a tensor of the CPU"),
            Buffer::Gpu(buffer) => buffer.block.gpu(),
        }
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.cols..(row + 1) * self.cols]
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor[{}, {}]", self.rows, self.cols)
    }
}
