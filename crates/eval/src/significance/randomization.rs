//! Approximate randomisation: translations of two systems are swapped at random.

use super::pcg64::Pcg64;
use super::{Comparison, Resampling, SignificanceError};
use crate::metric::Counted;

/// Compares every system with the first one, the baseline: the paired two-sided test of approximate
/// randomisation. The p-value is the share of trials in which the scores differ by more than they do.
pub fn paired_randomization(
    systems: &[Counted],
    Resampling { samples, seed, .. }: Resampling,
) -> Result<Vec<Comparison>, SignificanceError> {
    let Some((baseline, others)) = systems.split_first() else { return Ok(Vec::new()) };
    if baseline.rows().is_empty() || samples == 0 {
        return Err(SignificanceError::Nothing);
    }
    let score = baseline.score();
    let mut comparisons = vec![Comparison { score, interval: None, p_value: None }];
    for system in others {
        if system.metric() != baseline.metric() || system.rows().len() != baseline.rows().len() {
            return Err(SignificanceError::Mismatch);
        }
        let (system_score, mut random) = (system.score(), Bits::new(seed));
        let real = (score - system_score).abs();
        let larger =
            (0..samples).filter(|_| difference_swapped(baseline, system, &mut random) > real).count();
        let p_value = Some((larger + 1) as f64 / (samples + 1) as f64);
        comparisons.push(Comparison { score: system_score, interval: None, p_value });
    }
    Ok(comparisons)
}

/// Difference of the scores after translations were swapped.
fn difference_swapped(baseline: &Counted, system: &Counted, random: &mut Bits) -> f64 {
    let width = baseline.rows()[0].len();
    let (mut one, mut other) = (vec![0.0; width], vec![0.0; width]);
    for (ours, theirs) in baseline.rows().iter().zip(system.rows()) {
        let (ours, theirs) = if random.next() { (ours, theirs) } else { (theirs, ours) };
        one.iter_mut().zip(ours).for_each(|(sum, value)| *sum += value);
        other.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
    }
    (baseline.score_of(&one) - baseline.score_of(&other)).abs()
}

/// Random bits in the order in which numpy's `integers(2, dtype=bool)` takes them out of 32-bit numbers.
struct Bits {
    random: Pcg64,
    word: u32,
    left: u32,
}

impl Bits {
    fn new(seed: u64) -> Self {
        Self { random: Pcg64::new(seed), word: 0, left: 0 }
    }

    fn next(&mut self) -> bool {
        if self.left == 0 {
            (self.word, self.left) = (self.random.next(), 32);
        }
        let bit = self.word & 1 == 1;
        self.word >>= 1;
        self.left -= 1;
        bit
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn bits_are_numpys() {
        // numpy.random.default_rng(12345).integers(2, size=40, dtype=bool)
        let mut random = Bits::new(12345);
        let bits: String = (0..40).map(|_| if random.next() { '1' } else { '0' }).collect();
        assert_eq!(bits, "1011100110000011111111110100110110110001");
    }
}
