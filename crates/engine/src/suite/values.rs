//! Numbers that both devices start from.

use crate::device::{Buffer, Device, Numbers, to_bf16};
use crate::{Rng, Var};

/// `count` numbers evenly spread around 0, of variance 1, that the GPU can represent.
pub(crate) fn random(numbers: Numbers, stream: u32, count: usize) -> Vec<f32> {
    let mut bits = vec![0; count];
    Rng::new(11, 0).stream(stream).bits16(0, &mut bits);
    bits.iter().map(|&bits| fit(numbers, (f32::from(bits) / 65_536.0 - 0.5) * 12f32.sqrt())).collect()
}

/// The nearest number that the GPU can represent.
pub(crate) fn fit(numbers: Numbers, value: f32) -> f32 {
    match numbers {
        Numbers::F32 => value,
        Numbers::Bf16 => f32::from_bits(u32::from(to_bf16(value)) << 16),
    }
}

/// A gradient for `var`, in its type.
pub(crate) fn gradient_of(device: &Device, var: &Var, values: &[f32]) -> Buffer {
    Buffer::from_host(device, var.tensor().dtype(), values)
}

/// Boundaries of sentences with these lengths.
pub(crate) fn starts(lengths: &[u32]) -> Vec<u32> {
    let mut at = 0;
    let ends = lengths.iter().map(|length| {
        at += length;
        at
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_rounds_to_nearest_even() {
        // 1 + 2⁻⁸ lies between two; 1 is the even one. A little more goes up.
        assert_eq!(fit(Numbers::Bf16, 1.0 + 2f32.powi(-8)), 1.0);
        assert_eq!(fit(Numbers::Bf16, 1.0 + 1.01 * 2f32.powi(-8)), 1.0 + 2f32.powi(-7));
        assert_eq!(fit(Numbers::Bf16, -3.0), -3.0);
        assert_eq!(fit(Numbers::F32, 0.1), 0.1);
    }

    #[test]
    fn random_numbers_have_mean_zero_and_variance_one() {
        let values = random(Numbers::Bf16, 3, 10_007);
        let mean = values.iter().sum::<f32>() / 10_007.0;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / 10_007.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        assert!(values.iter().all(|&v| v == fit(Numbers::Bf16, v)));
    }
}
