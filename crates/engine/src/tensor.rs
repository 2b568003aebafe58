//! Matrices, id lists and sentence boundaries on a device.

use std::sync::Arc;

use crate::device::{Buffer, Device};

/// A row-major matrix `[rows, cols]` on a device. Immutable once made; cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    rows: usize,
    cols: usize,
    data: Arc<Buffer>,
}

impl Tensor {
    /// Copies a matrix from the host.
    pub fn from_host(device: &Device, [rows, cols]: [usize; 2], values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * cols, "a {rows}x{cols} tensor needs {} values", rows * cols);
        let mut buffer = device.scratch(values.len());
        buffer.copy_from_slice(values);
        Self::new([rows, cols], buffer)
    }

    pub(crate) fn new([rows, cols]: [usize; 2], buffer: Buffer) -> Self {
        assert_eq!(buffer.len(), rows * cols);
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
        self.data.to_vec()
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.data
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

/// A list of ids (tokens, rows, experts) on a device.
#[derive(Clone, Debug)]
pub struct Ids(Arc<[u32]>);

impl Ids {
    /// Copies ids from the host.
    pub fn from_host(_device: &Device, ids: &[u32]) -> Self {
        Self(ids.into())
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest id; 0 where there are none.
    pub fn max(&self) -> u32 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn values(&self) -> &[u32] {
        &self.0
    }
}

/// Sentence boundaries of a packed matrix: sentence `b` owns rows `starts[b]..starts[b+1]`.
#[derive(Clone, Debug)]
pub struct Segments {
    starts: Arc<[u32]>,
}

impl Segments {
    /// From `B + 1` boundaries that begin at 0 and never fall.
    pub fn from_host(_device: &Device, starts: &[u32]) -> Self {
        assert!(starts.first() == Some(&0), "segments begin at row 0");
        assert!(starts.windows(2).all(|w| w[0] <= w[1]), "segment boundaries never fall");
        Self { starts: starts.into() }
    }

    /// Number of sentences.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of rows of all sentences together.
    pub fn rows(&self) -> usize {
        self.starts[self.starts.len() - 1] as usize
    }

    pub(crate) fn range(&self, sentence: usize) -> std::ops::Range<usize> {
        self.starts[sentence] as usize..self.starts[sentence + 1] as usize
    }

    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = std::ops::Range<usize>> + '_ {
        (0..self.count()).map(|sentence| self.range(sentence))
    }
}
