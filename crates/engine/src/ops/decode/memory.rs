//! Values that sentences keep for a whole search, at fixed places, so that captured passes find them.

use super::{cpu, cuda, kept};
use crate::cuda::memory::Dtype;
use crate::ops::linear::Activation;
use crate::{Device, Ids, ParamId, Tape, Tensor, Var};

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

/// Rows of a product that are computed at a time where they are rounded: all at once would take twice the memory of what
/// is kept of them.
const SOME_ROWS: usize = 128;

impl Tape<'_> {
    /// Rows of `X·Wᵀ + b` are put as [`Tape::put`] puts them.
    pub fn put_linear(&mut self, slots: &mut SlotTensor, x: &Var, [weight, bias]: [ParamId; 2], rows: &Ids) {
        if slots.tensor.is_on_gpu() || slots.tensor.dtype() == Dtype::F32 {
            let value = self.linear(x, weight, bias, Activation::Identity, 0.0);
            return self.put(slots, value.tensor(), rows);
        }
        assert_eq!(x.rows(), rows.len(), "put_linear: one place for each row");
        let (device, inner) = (self.device().clone(), x.cols());
        // All at once, as the room would else be copied each time it grows.
        slots.grow(&device, rows.max() as usize + 1);
        for (x, rows) in x.values().chunks(SOME_ROWS * inner).zip(rows.values().chunks(SOME_ROWS)) {
            let x = Var::constant(Tensor::from_host(&device, [rows.len(), inner], x));
            let value = self.linear(&x, weight, bias, Activation::Identity, 0.0);
            self.put(slots, value.tensor(), &Ids::from_host(&device, rows));
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::GroupId;
    use crate::{ComputeType, ParamsBuilder, Rng};

    /// A product that is kept some rows at a time has the bits of one that is kept at once.
    #[test]
    fn products_are_kept_some_rows_at_a_time() {
        let (inner, cols) = (64, 256);
        for compute in [ComputeType::Auto, ComputeType::F32, ComputeType::Bf16, ComputeType::Int8] {
            let mut builder = ParamsBuilder::default();
            let weight = builder.matrix("w".into(), [cols, inner], GroupId(0));
            let bias = builder.vector("b".into(), cols, GroupId(0));
            let device = Device::cpu().holding(compute).unwrap();
            let mut params = builder.finish(&device);
            let random = |stream: u32, count: usize| -> Vec<f32> {
                let stream = Rng::new(1, 0).stream(stream);
                (0..count as u32).map(|i| stream.normal(i, 0)).collect()
            };
            params.set("w", &random(0, cols * inner)).unwrap();
            params.set("b", &random(1, cols)).unwrap();
            let mut tape = Tape::evaluation(&params);
            for count in [1, SOME_ROWS, 2 * SOME_ROWS + 7] {
                let x = Tensor::from_host(&device, [count, inner], &random(2, count * inner));
                let x = Var::constant(x);
                // Backwards, from row 3 on.
                let rows: Vec<u32> = (3..3 + count as u32).rev().collect();
                let rows = Ids::from_host(&device, &rows);
                let [mut found, mut wanted] =
                    [0; 2].map(|_| SlotTensor::activations(&device, [count + 5, cols]));
                tape.put_linear(&mut found, &x, [weight, bias], &rows);
                let all = tape.linear(&x, weight, bias, Activation::Identity, 0.0);
                tape.put(&mut wanted, all.tensor(), &rows);
                let [found, wanted] = [found, wanted].map(|slots| slots.tensor().to_host());
                assert_eq!(found[3 * cols..], wanted[3 * cols..], "{compute}, {count} rows");
            }
        }
    }
}
