//! bfloat16: the upper half of an f32.

use crate::cpu::vectorised;

/// Rounds values to bfloat16s.
pub(super) fn round(values: &[f32], halves: &mut [u16]) {
    vectorised(
        #[inline(always)]
        || halves.iter_mut().zip(values).for_each(|(half, &value)| *half = to_bf16(value)),
    );
}

/// The number that a bfloat16 is.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to the nearest bfloat16; of two, to the even one.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Rounding could carry a NaN over to infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        let step = 1.0 / 128.0;
        // Halfway between two, the even one is taken.
        let cases = [
            (0.0, 0.0),
            (-2.5, -2.5),
            (1.0 + 0.49 * step, 1.0),
            (1.0 + 0.51 * step, 1.0 + step),
            (1.0 + 0.5 * step, 1.0),
            (-1.0 - 1.5 * step, -1.0 - 2.0 * step),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ];
        // Many at a time, and one by one.
        let (values, wanted): (Vec<f32>, Vec<f32>) = cases.iter().copied().cycle().take(67).unzip();
        let mut halves = vec![0; 67];
        round(&values, &mut halves);
        assert_eq!(halves.iter().map(|&bits| from_bf16(bits)).collect::<Vec<_>>(), wanted);
        assert!(values.iter().zip(&halves).all(|(&value, &half)| to_bf16(value) == half));
        let nans = [f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)];
        assert!(nans.iter().all(|&nan| from_bf16(to_bf16(nan)).is_nan()));
    }
}
