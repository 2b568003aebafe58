//! Values that sentences keep for a whole search, at fixed places, so that captured passes find them.

use super::{cpu, cuda};
use crate::device::Buffer;
use crate::{Device, Ids, Tape, Tensor};

/// Rows of a matrix that come and go one by one: keys and values of sources, head weights of sentences.
pub struct SlotTensor {
    /// `[rows, cols]`; on the CPU as many rows as were needed so far, on a GPU all there is room for.
    tensor: Tensor,
    /// Rows that there is room for.
    room: usize,
}

impl SlotTensor {
    /// Room for `[rows, cols]` activations.
    pub fn activations(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self::new(device, [rows, cols], Device::scratch)
    }

    /// Room for `[rows, cols]` numbers of 32 bits, such as head weights.
    pub fn floats(device: &Device, [rows, cols]: [usize; 2]) -> Self {
        Self::new(device, [rows, cols], Device::scratch_floats)
    }

    fn new(device: &Device, [room, cols]: [usize; 2], scratch: fn(&Device, usize) -> Buffer) -> Self {
        let rows = if device.is_gpu() { room } else { 0 };
        Self { tensor: Tensor::new([rows, cols], scratch(device, rows * cols)), room }
    }

    /// Makes place for so many rows on the CPU, for twice as many as there are at least: a search that grows row
    /// by row copies each a few times at most.
    fn grow(&mut self, device: &Device, wanted: usize) {
        let (rows, cols) = (self.tensor.rows(), self.tensor.cols());
        if wanted > rows {
            let grown = wanted.max(2 * rows).min(self.room);
            let mut values = device.scratch(grown * cols);
            values.write(0, self.tensor.values());
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
        assert!(value.cols() == slots.tensor.cols() && value.dtype() == slots.tensor.dtype());
        if slots.tensor.is_on_gpu() {
            return cuda::put(value, rows, &slots.tensor);
        }
        slots.grow(self.device(), wanted);
        cpu::put(value, rows, slots.tensor.values_mut().expect("nobody holds it between steps"));
    }
}
