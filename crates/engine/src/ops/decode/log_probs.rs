//! Whole rows of log-probabilities on the host, for choices that need more than the best continuations.

use crate::Tensor;
use crate::cpu::{for_rows, math};

/// `ln softmax(logits / temperature)` of the first `rows` rows, `[rows, V]` on the host. Waits for the device.
pub fn log_probs(logits: &Tensor, rows: usize, temperature: f32) -> Vec<f32> {
    let mut values = logits.first_rows_to_host(rows);
    let (types, sharpness) = (logits.cols(), 1.0 / temperature);
    for_rows(
        &mut values,
        types,
        #[inline(always)]
        |_, rows| {
            for row in rows.chunks_exact_mut(types) {
                if sharpness != 1.0 {
                    row.iter_mut().for_each(|value| *value *= sharpness);
                }
                let highest = math::max(row);
                let log_sum = highest + math::sum_by(row, |v| math::exp(v - highest)).ln();
                row.iter_mut().for_each(|value| *value -= log_sum);
            }
        },
    );
    values
}

/// The logarithm of the mean probability over several models, `ln(Σ exp(each) / n)`, value by value: how an ensemble
/// agrees. Of one model: what it says.
pub fn mean_log_probs(mut each: Vec<Vec<f32>>) -> Vec<f32> {
    let Some(mut mean) = each.pop() else { return Vec::new() };
    assert!(
        each.iter().all(|other| other.len() == mean.len()),
        "all models say something about the same tokens"
    );
    if each.is_empty() {
        return mean;
    }
    let share = ((each.len() + 1) as f32).ln();
    const RUN: usize = 1024;
    for_rows(
        &mut mean,
        RUN,
        #[inline(always)]
        |first, run| {
            for (i, value) in run.iter_mut().enumerate() {
                let at = first * RUN + i;
                let highest = each.iter().fold(*value, |highest, other| highest.max(other[at]));
                // Impossible for all of them, or not a number: nothing to add up.
                if highest.is_finite() {
                    let sum =
                        (*value - highest).exp() + each.iter().map(|o| (o[at] - highest).exp()).sum::<f32>();
                    *value = highest + sum.ln() - share;
                }
            }
        },
    );
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Rng};

    #[test]
    fn rows_are_normalised_at_any_temperature() {
        let stream = Rng::new(5, 0).stream(0);
        let values: Vec<f32> = (0..3 * 37).map(|i| 3.0 * stream.normal(i, 0)).collect();
        let logits = Tensor::from_host(&Device::cpu(), [3, 37], &values);
        for temperature in [0.3, 1.0, 2.5] {
            let got = log_probs(&logits, 2, temperature);
            assert_eq!(got.len(), 2 * 37, "surplus rows are left out");
            for (row, got) in values.chunks_exact(37).zip(got.chunks_exact(37)) {
                let scaled = |v: f32| f64::from(v) / f64::from(temperature);
                let sum: f64 = row.iter().map(|&v| scaled(v).exp()).sum();
                for (v, got) in row.iter().zip(got) {
                    assert!((scaled(*v) - sum.ln() - f64::from(*got)).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn ensembles_average_probabilities() {
        let each = vec![
            vec![0.5f32.ln(), 0.1f32.ln(), f32::NEG_INFINITY],
            vec![0.3f32.ln(), f32::NEG_INFINITY, f32::NEG_INFINITY],
        ];
        let mean: Vec<f32> = mean_log_probs(each).into_iter().map(f32::exp).collect();
        for (got, want) in mean.iter().zip([0.4, 0.05, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{got} for {want}");
        }
        assert_eq!(mean_log_probs(vec![vec![-1.0, -2.0]]), [-1.0, -2.0]);
    }
}
