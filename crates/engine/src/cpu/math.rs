//! Elementary functions written so that the compiler can vectorise loops over them.

/// 1.5·2²³: what is added to it is rounded to a whole number, which is then in its lowest bits.
const ROUND: f32 = 12_582_912.0;

/// 2 to the power that [`ROUND`] has rounded.
#[inline(always)]
fn power_of_two(rounded: f32) -> f32 {
    f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// eˣ to about 2 units in the last place, for any finite x; 0 below −87.3, capped above 88.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first with few bits, so that x − n·ln 2 is exact to the last place.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.3, 88.0);
    let rounded = clamped * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut poly = 1.987_569_2e-4;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        poly = r.mul_add(poly, c);
    }
    let mantissa = (r * r).mul_add(poly, r) + 1.0;
    if x < -87.3 { 0.0 } else { mantissa * power_of_two(rounded) }
}

/// tanh x = 1 − 2/(e²ˣ + 1), with a polynomial (from the Cephes library) near 0 where that cancels.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let far = 1.0 - 2.0 / (exp(2.0 * x.clamp(-15.0, 15.0)) + 1.0);
    let square = x * x;
    let mut poly = -5.704_988_7e-3;
    for c in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        poly = square.mul_add(poly, c);
    }
    let near = (x * square).mul_add(poly, x);
    if x.abs() < 0.625 { near } else { far }
}

/// tanh x to 2e-7, a small part of 1 and not of a small x: for hidden units of gates in search.
#[inline(always)]
pub(crate) fn quick_tanh(x: f32) -> f32 {
    const LN2: f32 = std::f32::consts::LN_2;
    let twice = (2.0 * x).clamp(-30.0, 30.0);
    let rounded = twice.mul_add(std::f32::consts::LOG2_E, ROUND);
    let r = (rounded - ROUND).mul_add(-LN2, twice);
    let mut poly = 1.398_2e-3;
    for c in [8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0] {
        poly = r.mul_add(poly, c);
    }
    1.0 - 2.0 / power_of_two(rounded).mul_add(poly, 1.0)
}

/// σ(x) = 1/(1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x.clamp(-80.0, 80.0)))
}

/// Distribution function and density of the normal distribution at x, the first to 2e-7: erfc by the formula 7.1.26 of
/// Abramowitz and Stegun.
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    const DENSITY_AT_0: f32 = 0.398_942_3;
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let power = exp(-z * z);
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let mut poly = 1.061_405_4;
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        poly = t.mul_add(poly, c);
    }
    let tail = 0.5 * t * poly * power;
    (if x < 0.0 { tail } else { 1.0 - tail }, DENSITY_AT_0 * power)
}

/// The largest value; −∞ for none.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = if v > *lane { v } else { *lane };
        }
    }
    let highest = rest.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    match values.len() {
        // The lanes of few values hold none.
        0..16 => highest,
        _ => lanes.iter().fold(highest, |m, &v| if v > m { v } else { m }),
    }
}

/// Σ f(v), in 16 lanes.
#[inline(always)]
pub(crate) fn sum_by(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let chunks = values.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|&v| f(v)).sum();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f(v);
        }
    }
    match values.len() {
        // The lanes of few values hold none.
        0..16 => rest,
        _ => rest + lanes.iter().sum::<f32>(),
    }
}

/// Σ a·b, in 16 lanes.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane = x.mul_add(y, *lane);
        }
    }
    rest + lanes.iter().sum::<f32>()
}

/// Softmax of `row` in place; returns log Σ exp. An empty row gives −∞.
#[inline(always)]
pub(crate) fn softmax(row: &mut [f32]) -> f32 {
    let highest = max(row);
    for v in row.iter_mut() {
        *v = exp(*v - highest);
    }
    let sum = sum_by(row, |v| v);
    let inverse = 1.0 / sum;
    for v in row.iter_mut() {
        *v *= inverse;
    }
    highest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_tanh_agree_with_the_library() {
        for i in -90_000..90_000 {
            let x = i as f32 * 1e-3;
            let want = f64::from(x).exp();
            if x < 87.9 && x > -87.2 {
                assert!(((f64::from(exp(x)) - want) / want).abs() < 3e-7, "exp {x}: {} {want}", exp(x));
            }
            let want = f64::from(x).tanh();
            assert!(
                (f64::from(tanh(x)) - want).abs() <= 4e-7 * want.abs().max(1e-3),
                "tanh {x}: {} {want}",
                tanh(x)
            );
        }
        for i in -400_000..400_000 {
            let x = i as f32 * 1e-4;
            let (got, want) = (quick_tanh(x), f64::from(x).tanh());
            assert!((f64::from(got) - want).abs() <= 2e-7, "quick tanh {x}: {got} {want}");
        }
        assert_eq!([f32::NEG_INFINITY, f32::INFINITY].map(quick_tanh), [-1.0, 1.0]);
        assert!(quick_tanh(f32::NAN).is_nan());
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn softmax_of_extreme_rows() {
        let mut row = [1000.0, 1000.0, -1000.0];
        let lse = softmax(&mut row);
        assert_eq!(row, [0.5, 0.5, 0.0]);
        assert!((lse - 1_000.693_1).abs() < 1e-3);
    }
}
