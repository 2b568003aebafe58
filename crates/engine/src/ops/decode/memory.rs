//! Values that sentences keep for a whole search, at fixed places, so that captured passes find them.

use super::{cpu, cuda, kept};
use crate::cuda::memory::Dtype;
use crate::{Device, Ids, Tape, Tensor};

/// Rows of a matrix that come and go one by one: keys and values of sources, head weights of sentences.
pub struct SlotTensor {
    /// `[rows, cols]`; on the CPU as many rows as were needed so far, on a GPU all there is room for.
    tensor: Tensor,
    /// Rows that there is room for.
    room: usize,
}

impl SlotTensor {
    /// Room for `[rows, cols]` activations; on a CPU that holds matrices in bf16 or int8, rounded to bf16.
    pub fn activations(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self::new(device, [rows, cols], kept::dtype(device))
    }

    /// Room for `[rows, cols]` numbers of 32 bits, such as head weights.
    pub fn floats(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self::new(device, [rows, cols], Dtype::F32)
    }

    fn new(device: &Device, [room, cols]: [usize; 2], dtype: Dtype) -> Self {
        let rows = if device.is_gpu() { room } else { 0 };
        Self { tensor: Tensor::new([rows, cols], device.scratch_of(dtype, rows * cols)), room }
    }

    /// Makes place for so many rows on the CPU, for twice as many as there are at least: a search that grows row
    /// by row copies each a few times at most.
    fn grow(&mut self, device: &Device, wanted: usize) {
        let (rows, cols) = (self.tensor.rows(), self.tensor.cols());
        if wanted > rows {
            let grown = wanted.max(2 * rows).min(self.room);
            let mut values = device.scratch_of(self.tensor.dtype(), grown * cols);
            values.copy(self.tensor.buffer());
            self.tensor = Tensor::new([grown, cols], values);
        }
    }

    /// The matrix; rows that nobody has put there hold anything.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Tape<'_> {
    /// Row i of `value` becomes row `rows[i]` of `slots`; no row is named twice. Where `rows` has room to spare,
    /// surplus rows of `value` go nowhere.
    pub fn put(&mut self, slots: &mut SlotTensor, value: &Tensor, rows: &Ids) {
        let wanted = rows.max() as usize + 1;
        assert!(value.rows() == rows.len(), "put: one place for each row");
        assert!(wanted <= slots.room, "put: row {} of {}", rows.max(), slots.room);
        assert_eq!(value.cols(), slots.tensor.cols(), "put: rows of another width");
        if slots.tensor.is_on_gpu() {
            assert_eq!(value.dtype(), slots.tensor.dtype(), "put: numbers of another type");
            return cuda::put(value, rows, &slots.tensor);
        }
        slots.grow(self.device(), wanted);
        cpu::put(value, rows, slots.tensor.buffer_mut().expect("nobody holds it between steps"));
    }
}
