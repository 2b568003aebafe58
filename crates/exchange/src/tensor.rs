//! Tensors of foreign files: views of bytes, read as f32.

use std::collections::BTreeMap;

/// Number format of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// 16-bit floats of IEEE 754.
    F16,
    /// The upper half of 32-bit floats.
    Bf16,
    /// 64-bit integers.
    I64,
    /// 32-bit integers.
    I32,
    /// 16-bit integers.
    I16,
    /// 8-bit integers.
    I8,
    /// 8-bit integers without a sign.
    U8,
}

impl Dtype {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// Returns whether numbers of this format are weights.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }
}

/// Most axes of a view. Weights have at most four; a file could name millions of length 1.
pub const MOST_AXES: usize = 8;

/// A tensor in a file: a view of bytes. All places that shape and strides lead to lie inside of the bytes.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Distances in numbers; `None` for rows that follow one another.
    strides: Option<Vec<usize>>,
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A tensor of rows that follow one another; `None` if the bytes do not have that size.
    pub fn new(dtype: Dtype, shape: Vec<usize>, bytes: &'a [u8]) -> Option<Self> {
        let size = count(&shape)?.checked_mul(dtype.size())?;
        (size == bytes.len()).then_some(Self { dtype, shape, strides: None, bytes })
    }

    /// A view that starts at number `offset` of `storage`; `None` if it leads outside of it or has too many axes.
    pub fn view(
        dtype: Dtype,
        (shape, strides): (Vec<usize>, Vec<usize>),
        storage: &'a [u8],
        offset: usize,
    ) -> Option<Self> {
        if shape.len() > MOST_AXES {
            return None;
        }
        let numbers = count(&shape)?;
        let bytes = storage.get(offset.checked_mul(dtype.size())?..)?;
        let mut last = 0_usize;
        for (&size, &stride) in shape.iter().zip(&strides) {
            last = last.checked_add(size.saturating_sub(1).checked_mul(stride)?)?;
        }
        let end = if numbers == 0 { 0 } else { last.checked_add(1)?.checked_mul(dtype.size())? };
        // A view larger than its storage repeats numbers; no weights do.
        if strides.len() != shape.len() || end > bytes.len() || numbers > storage.len() / dtype.size() {
            return None;
        }
        let mut wanted = 1;
        let is_plain = shape.iter().zip(&strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == wanted;
            wanted *= size;
            fits
        });
        let bytes = if is_plain { bytes.get(..numbers * dtype.size())? } else { bytes };
        Some(Self { dtype, shape, strides: (!is_plain).then_some(strides), bytes })
    }

    /// Number format.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Numbers of the tensor.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the tensor holds no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All numbers, row by row.
    pub fn read(&self) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.len());
        match &self.strides {
            None => convert(self.dtype, self.bytes, &mut out),
            Some(strides) => self.gather(strides, 0, 0, &mut out),
        }
        out
    }

    /// Numbers of a row of a matrix (of the first dimension), appended to `out`.
    pub fn read_row(&self, row: usize, out: &mut Vec<f32>) {
        match &self.strides {
            None => {
                let size = self.bytes.len() / self.shape[0].max(1);
                convert(self.dtype, &self.bytes[row * size..(row + 1) * size], out);
            }
            Some(strides) => self.gather(strides, 1, row * strides[0], out),
        }
    }

    /// The only number of a tensor.
    pub fn scalar(&self) -> Option<f32> {
        (self.len() == 1).then(|| self.read()[0])
    }

    fn gather(&self, strides: &[usize], axis: usize, at: usize, out: &mut Vec<f32>) {
        if axis == self.shape.len() {
            let size = self.dtype.size();
            return convert(self.dtype, &self.bytes[at * size..(at + 1) * size], out);
        }
        for i in 0..self.shape[axis] {
            self.gather(strides, axis + 1, at + i * strides[axis], out);
        }
    }
}

fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))
}

fn convert(dtype: Dtype, bytes: &[u8], out: &mut Vec<f32>) {
    fn each<const N: usize>(bytes: &[u8], out: &mut Vec<f32>, value: impl Fn([u8; N]) -> f32) {
        out.extend(bytes.as_chunks::<N>().0.iter().map(|&chunk| value(chunk)));
    }
    match dtype {
        Dtype::F32 => each(bytes, out, f32::from_le_bytes),
        Dtype::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        Dtype::F16 => each(bytes, out, |b| half(u16::from_le_bytes(b))),
        Dtype::Bf16 => each(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        Dtype::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        Dtype::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        Dtype::I16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        Dtype::I8 => each(bytes, out, |[b]| f32::from(b as i8)),
        Dtype::U8 => each(bytes, out, |[b]| f32::from(b)),
    }
}

/// A 16-bit float. The exponent is moved from bias 15 to bias 127; numbers below the normal ones are exact products.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => (fraction as f32 * f32::from_bits(103 << 23)).to_bits(),
        0x1f => 0xff << 23 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// Tensors of a file by name.
pub type Tensors<'a> = BTreeMap<String, Tensor<'a>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2.0_f32.powi(-24)),
            (0x0400, 2.0_f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0x8000, -0.0),
        ] {
            assert_eq!(half(bits).to_bits(), value.to_bits(), "{bits:x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn views_are_read_through_their_strides() {
        let bytes: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let view = |shape, strides, offset| Tensor::view(Dtype::F32, (shape, strides), &bytes, offset);
        let turned = view(vec![3, 2], vec![1, 3], 0).unwrap();
        assert_eq!(turned.read(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let mut row = Vec::new();
        turned.read_row(1, &mut row);
        assert_eq!(row, [1.0, 4.0]);
        assert_eq!(view(vec![2, 2], vec![2, 1], 2).unwrap().read(), [2.0, 3.0, 4.0, 5.0]);
        for (shape, strides, offset) in [
            (vec![3, 2], vec![2, 1], 1),
            (vec![7], vec![1], 0),
            (vec![1 << 40], vec![0], 0),
            (vec![usize::MAX, 2], vec![1, 1], 0),
            (vec![2], vec![usize::MAX], 0),
            (vec![1], vec![1], 7),
            (vec![2, 2], vec![1], 0),
            (vec![1; 9], vec![1; 9], 0),
        ] {
            assert!(view(shape.clone(), strides, offset).is_none(), "{shape:?}");
        }
    }
}
