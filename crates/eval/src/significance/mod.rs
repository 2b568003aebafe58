//! Confidence intervals and tests of scores: bootstrap resampling (Koehn, 2004) and approximate randomisation
//! (Riezler and Maxwell, 2005) as sacreBLEU does them.
//!
//! A resample draws as many segments as the corpus has, with replacement. The spread of the scores of many
//! resamples gives a confidence interval; the spread of the differences between two systems, how likely a
//! difference as large as theirs comes about by chance. Randomisation swaps the translations of two systems at
//! random instead, segment by segment: if they do not differ, the scores differ as much as before in many such
//! trials. The random numbers and the rounding are numpy's, so that the digits are sacreBLEU's.

mod pcg64;
mod randomization;
mod shares;
mod texts;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::metric::Counted;
use crate::precision::Precision;
use pcg64::Pcg64;
pub use randomization::paired_randomization;
pub use shares::paired_bootstrap_of_shares;
pub use texts::paired_bootstrap_of_texts;

/// Corpora that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SignificanceError {
    /// There are no segments, or no resamples were asked for.
    #[error("resampling needs at least one segment and one resample")]
    Nothing,
    /// Two systems were counted by different metrics or have different numbers of segments.
    #[error("a paired test needs the same metric and the same segments for both systems")]
    Mismatch,
}

/// Way of making a random variant of the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Segments are drawn with replacement.
    Bootstrap,
    /// Translations of two systems are swapped.
    Randomization,
}

/// Choices of a resampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resampling {
    /// Way of making random variants.
    pub method: Method,
    /// The number of resamples, or of trials.
    pub samples: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Resampling {
    /// sacreBLEU's: 1000 resamples from the seed 12345.
    fn default() -> Self {
        Self { method: Method::Bootstrap, samples: 1000, seed: 12345 }
    }
}

/// The interval that holds 95 % of the resampled scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean of the resampled scores.
    pub mean: f64,
    /// Half of the interval's width.
    pub half_width: f64,
}

/// A system beside the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The system's score.
    pub score: f64,
    /// Its confidence interval, from the bootstrap.
    pub interval: Option<Interval>,
    /// The probability of such a difference by chance; none for the baseline itself.
    pub p_value: Option<f64>,
}

/// The confidence interval of a score.
pub fn confidence(counted: &Counted, resampling: Resampling) -> Result<Interval, SignificanceError> {
    let scores = Scores::draw(counted, resampling)?;
    // sacreBLEU has an exact mean here, other than in the paired test; `f64` is exact enough for `f32`.
    let mean = scores.values.iter().sum::<f64>() / scores.values.len() as f64;
    Ok(Interval { mean: scores.precision.round(mean), ..scores.interval() })
}

/// Compares every system with the first one, the baseline: the paired bootstrap test.
pub fn paired_bootstrap(
    systems: &[Counted],
    resampling: Resampling,
) -> Result<Vec<Comparison>, SignificanceError> {
    let Some((baseline, others)) = systems.split_first() else { return Ok(Vec::new()) };
    let (score, scores) = (baseline.score(), Scores::draw(baseline, resampling)?);
    let mut comparisons = vec![Comparison { score, interval: Some(scores.interval()), p_value: None }];
    for system in others {
        if system.metric() != baseline.metric() || system.rows().len() != baseline.rows().len() {
            return Err(SignificanceError::Mismatch);
        }
        let (system_score, system_scores) = (system.score(), Scores::draw(system, resampling)?);
        let p_value = Some(system_scores.p_value(&scores, (score - system_score).abs()));
        comparisons.push(Comparison {
            score: system_score,
            interval: Some(system_scores.interval()),
            p_value,
        });
    }
    Ok(comparisons)
}

/// The scores of all resamples, in numpy's number type.
struct Scores {
    values: Vec<f64>,
    precision: Precision,
}

impl Scores {
    /// Equal seeds draw the same segments of every system: that makes the test a paired one.
    fn draw(
        counted: &Counted,
        Resampling { samples, seed, .. }: Resampling,
    ) -> Result<Self, SignificanceError> {
        let rows: Vec<Vec<f32>> =
            counted.rows().iter().map(|row| row.iter().map(|&value| value as f32).collect()).collect();
        let Some(first) = rows.first().filter(|_| samples > 0) else {
            return Err(SignificanceError::Nothing);
        };
        let mut random = Pcg64::new(seed);
        let mut scores = Self { values: Vec::with_capacity(samples), precision: Precision::Single };
        let mut sum = vec![0_f32; first.len()];
        let mut row = Vec::with_capacity(first.len());
        for _ in 0..samples {
            sum.fill(0.0);
            for _ in 0..rows.len() {
                let drawn = &rows[random.below(rows.len() as u32) as usize];
                sum.iter_mut().zip(drawn).for_each(|(sum, value)| *sum += value);
            }
            row.clear();
            row.extend(sum.iter().map(|&value| f64::from(value)));
            let (score, precision) = counted.metric().resampled_score(&row);
            scores.values.push(score);
            // One double makes all of an array's numbers doubles.
            if precision == Precision::Double {
                scores.precision = Precision::Double;
            }
        }
        Ok(scores)
    }

    fn interval(&self) -> Interval {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let cut = sorted.len() / 40;
        let width = self.precision.round(sorted[sorted.len() - cut - 1] - sorted[cut]);
        Interval { mean: self.precision.mean(&sorted), half_width: 0.5 * width }
    }

    /// The share of resamples whose difference is further from the mean difference than the real one is from zero.
    fn p_value(&self, baseline: &Self, real_difference: f64) -> f64 {
        let precision = match (self.precision, baseline.precision) {
            (Precision::Single, Precision::Single) => Precision::Single,
            _ => Precision::Double,
        };
        let pairs = self.values.iter().zip(&baseline.values);
        let differences: Vec<f64> = pairs.map(|(a, b)| precision.round(a - b).abs()).collect();
        let mean = precision.mean(&differences);
        let real = precision.round(real_difference);
        let further =
            differences.iter().filter(|&difference| precision.round(difference - mean) > real).count();
        (further + 1) as f64 / (differences.len() + 1) as f64
    }
}
