//! The paired bootstrap for language models: stretches of a text are drawn instead of translated sentences.

use super::pcg64::Pcg64;
use super::{Resampling, Scores, SignificanceError};
use crate::perplexity::Stretch;
use crate::precision::Precision;

/// The probability that the perplexities of two models on one text, cut into the same stretches, differ as much
/// as they do by chance. It is counted as [`super::paired_bootstrap`] counts it, but equal models get 1:
/// sacreBLEU gives them the lowest value there is, for no difference is larger than none.
pub fn paired_bootstrap_of_texts(
    baseline: &[Stretch],
    system: &[Stretch],
    resampling: Resampling,
) -> Result<f64, SignificanceError> {
    let lengths = |stretches: &[Stretch]| stretches.iter().map(|stretch| stretch.tokens).collect::<Vec<_>>();
    if lengths(baseline) != lengths(system) {
        return Err(SignificanceError::Mismatch);
    }
    let scores = [draw(baseline, resampling)?, draw(system, resampling)?];
    if baseline == system {
        return Ok(1.0);
    }
    let real_difference = perplexity(baseline.iter()) - perplexity(system.iter());
    Ok(scores[1].p_value(&scores[0], real_difference.abs()))
}

fn perplexity<'a>(stretches: impl Iterator<Item = &'a Stretch>) -> f64 {
    let (tokens, nll_nats) = stretches
        .fold((0, 0.0), |(tokens, nll_nats), stretch| (tokens + stretch.tokens, nll_nats + stretch.nll_nats));
    (nll_nats / tokens.max(1) as f64).exp()
}

/// Perplexities of resamples. Equal seeds draw the same stretches of every model: that makes the test a paired one.
fn draw(
    stretches: &[Stretch],
    Resampling { samples, seed, .. }: Resampling,
) -> Result<Scores, SignificanceError> {
    if stretches.is_empty() || samples == 0 {
        return Err(SignificanceError::Nothing);
    }
    let mut random = Pcg64::new(seed);
    let count = stretches.len() as u32;
    let mut resample = || perplexity((0..count).map(|_| &stretches[random.below(count) as usize]));
    let values = (0..samples).map(|_| resample()).collect();
    Ok(Scores { values, precision: Precision::Double })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stretches of about 200 tokens and 5 nats per token, some harder than others; `change` is the effect of a
    /// model, in nats per token of each stretch.
    fn text(change: impl Fn(usize) -> f64) -> Vec<Stretch> {
        let stretch = |i: usize| {
            let tokens = 200 + (i * 37 % 50) as u64;
            let nats = 5.0 + (i * 13 % 7) as f64 / 5.0 + change(i);
            Stretch { tokens, nll_nats: nats * tokens as f64 }
        };
        (0..300).map(stretch).collect()
    }

    /// A number between −1 and 1, without a pattern.
    fn noise(i: usize) -> f64 {
        f64::from(Pcg64::new(i as u64).next()) / f64::from(u32::MAX / 2) - 1.0
    }

    fn p(baseline: &[Stretch], system: &[Stretch]) -> f64 {
        paired_bootstrap_of_texts(baseline, system, Resampling::default()).expect("the same stretches")
    }

    #[test]
    fn p_tells_differences_from_noise() {
        let base = text(|_| 0.0);
        assert_eq!(p(&base, &base), 1.0);
        // Better by 0.05 nats everywhere but for noise of the same size, and no better but for that noise.
        let better = text(|i| -0.05 + 0.05 * noise(i));
        assert_eq!(p(&base, &better), 1.0 / 1001.0);
        // numpy.random.default_rng(12345) draws the same stretches and counts 427 and 41 of 1001.
        let near = |p: f64, count: u32| assert!((p - f64::from(count) / 1001.0).abs() < 0.002, "{p} {count}");
        let mean = (0..300).map(noise).sum::<f64>() / 300.0;
        let other = text(|i| 0.05 * (noise(i) - mean));
        near(p(&base, &other), 427);
        assert_eq!(p(&base, &other), p(&base, &other), "the same draws every time");
        near(p(&base[..12], &text(|i| -0.005 + 0.05 * noise(i))[..12]), 41);
        // A worse model is as far away as a better one.
        assert!(p(&base, &text(|i| 0.05 + 0.05 * noise(i))) < 0.01);
    }

    #[test]
    fn other_stretches_are_refused() {
        let base = text(|_| 0.0);
        let refused = |a: &[Stretch], b: &[Stretch]| paired_bootstrap_of_texts(a, b, Resampling::default());
        assert_eq!(refused(&base, &base[1..]), Err(SignificanceError::Mismatch));
        let mut moved = base.clone();
        moved[3].tokens += 1;
        assert_eq!(refused(&base, &moved), Err(SignificanceError::Mismatch));
        assert_eq!(refused(&[], &[]), Err(SignificanceError::Nothing));
    }
}
