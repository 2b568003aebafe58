//! The paired bootstrap for shares of lines that are exactly right.

use super::pcg64::Pcg64;
use super::{Resampling, Scores, SignificanceError};
use crate::precision::Precision;

/// The probability that the shares of right lines of two systems, on the same lines, differ as much as they do by chance. It
/// is counted as [`super::paired_bootstrap`] counts it, but equal shares get 1.
pub fn paired_bootstrap_of_shares(
    baseline: &[bool],
    system: &[bool],
    resampling: Resampling,
) -> Result<f64, SignificanceError> {
    if baseline.len() != system.len() {
        return Err(SignificanceError::Mismatch);
    }
    let scores = [draw(baseline, resampling)?, draw(system, resampling)?];
    let [before, after] = [baseline, system].map(|lines| share(lines.iter()));
    Ok(if before == after { 1.0 } else { scores[1].p_value(&scores[0], (before - after).abs()) })
}

fn share<'a>(lines: impl ExactSizeIterator<Item = &'a bool>) -> f64 {
    let count = lines.len().max(1) as f64;
    lines.filter(|right| **right).count() as f64 / count
}

/// Shares of resamples. Equal seeds draw the same lines of both systems: that makes the test a paired one.
fn draw(lines: &[bool], Resampling { samples, seed, .. }: Resampling) -> Result<Scores, SignificanceError> {
    if lines.is_empty() || samples == 0 {
        return Err(SignificanceError::Nothing);
    }
    let mut random = Pcg64::new(seed);
    let mut resample = || share((0..lines.len()).map(|_| &lines[random.below(lines.len() as u32) as usize]));
    Ok(Scores { values: (0..samples).map(|_| resample()).collect(), precision: Precision::Double })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_tells_a_difference_from_none() {
        let lines = |of: usize, right: usize| -> Vec<bool> { (0..1_000).map(|i| i % of < right).collect() };
        let p = |a: &[bool], b: &[bool]| paired_bootstrap_of_shares(a, b, Resampling::default()).unwrap();
        assert_eq!(p(&lines(10, 4), &lines(10, 4)), 1.0);
        assert!(p(&lines(10, 4), &lines(10, 6)) < 0.01);
        let mut hardly = lines(10, 4);
        hardly[999] = true;
        assert!(p(&lines(10, 4), &hardly) > 0.05);
        assert!(paired_bootstrap_of_shares(&[true], &[], Resampling::default()).is_err());
    }
}
