//! Arithmetic rounded as numpy rounds it.

/// The numbers a score is computed with.
///
/// sacreBLEU scores a corpus in double and its resamples in single precision; printed digits depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// `f64`.
    Double,
    /// `f32`.
    Single,
}

impl Precision {
    /// The nearest number of this precision.
    ///
    /// Applied to each sum, product or quotient of numbers that are of this precision already, it gives what
    /// arithmetic in that precision gives: 53 bits are enough that rounding twice does no harm.
    pub(crate) fn round(self, x: f64) -> f64 {
        match self {
            Self::Double => x,
            Self::Single => f64::from(x as f32),
        }
    }

    /// The mean, with numpy's order of summation.
    pub(crate) fn mean(self, values: &[f64]) -> f64 {
        self.round(self.sum(values) / values.len() as f64)
    }

    /// numpy's pairwise sum: eight interleaved sums over at most 128 numbers, halves above.
    fn sum(self, values: &[f64]) -> f64 {
        let add = |a: f64, b: f64| self.round(a + b);
        let count = values.len();
        if count < 8 {
            return values.iter().fold(0.0, |sum, &value| add(sum, value));
        }
        if count > 128 {
            let half = count / 2;
            let (left, right) = values.split_at(half - half % 8);
            return add(self.sum(left), self.sum(right));
        }
        let (first, rest) = values.split_at(8);
        let eights = rest.chunks_exact(8);
        let left_over = eights.remainder();
        let mut sums: [f64; 8] = std::array::from_fn(|i| first[i]);
        for eight in eights {
            sums.iter_mut().zip(eight).for_each(|(sum, &value)| *sum = add(*sum, value));
        }
        let [a, b, c, d, e, f, g, h] = sums;
        let sum = add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h)));
        left_over.iter().fold(sum, |sum, &value| add(sum, value))
    }
}
