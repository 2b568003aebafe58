//! Sums over the gates of one attention, a row at a time.

use mae_model::pass::GateValues;
use mae_train::validate::entropy;
use serde::Serialize;

use crate::gates::leader;

/// Sums over the rows of one attention's gates.
#[derive(Clone, Debug)]
pub struct Tally {
    /// M `[E, H]`: share of each head in an expert.
    matrix: Vec<f32>,
    values: GateValues,
    rows: u64,
    entropy: f64,
    leads: Vec<u64>,
    gates: Vec<f64>,
    /// Of each head's weight: mean so far, and sum of squared distances from it (Welford).
    weights: Vec<(f64, f64)>,
    /// Rows in which a head weighs more than 0.
    used: Vec<u64>,
}

/// Weight of a head; plain attention gives every head 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeadWeight {
    /// Mean over rows.
    pub mean: f64,
    /// Standard deviation over rows: the influence of the input.
    pub deviation: f64,
    /// Share of rows in which it is above 0.
    pub used: f64,
}

impl Tally {
    /// No rows yet, of experts with this matrix M `[experts, heads]`, or of heads with the identity.
    pub fn new(matrix: &[f32], experts: usize, values: GateValues) -> Self {
        let heads = matrix.len() / experts.max(1);
        Self {
            matrix: matrix.to_vec(),
            values,
            rows: 0,
            entropy: 0.0,
            leads: vec![0; experts],
            gates: vec![0.0; experts],
            weights: vec![(0.0, 0.0); heads],
            used: vec![0; heads],
        }
    }

    /// Adds a gate; returns the expert that leads it.
    pub fn add(&mut self, gate: &[f32]) -> usize {
        let leader = leader(gate);
        self.rows += 1;
        self.entropy += entropy(gate);
        self.leads[leader] += 1;
        for (sum, &g) in self.gates.iter_mut().zip(gate) {
            *sum += f64::from(g);
        }
        let heads = self.weights.len();
        for (head, (mean, squares)) in self.weights.iter_mut().enumerate() {
            let taken = gate.iter().enumerate().map(|(e, &g)| f64::from(g * self.matrix[e * heads + head]));
            let weight: f64 = taken.sum();
            let distance = weight - *mean;
            *mean += distance / self.rows as f64;
            *squares += distance * (weight - *mean);
            self.used[head] += u64::from(weight > 0.0);
        }
        leader
    }

    /// Gates seen.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Mean entropy of the gates, in nats; not defined for head weights.
    pub fn entropy(&self) -> Option<f64> {
        (self.values == GateValues::Probabilities).then(|| self.entropy / self.count())
    }

    /// For each expert, the share of rows that it leads.
    pub fn leads(&self) -> Vec<f64> {
        self.leads.iter().map(|&rows| rows as f64 / self.count()).collect()
    }

    /// The mean gate: for each expert, the share of the draws that train it.
    pub fn mean_gate(&self) -> Vec<f64> {
        self.gates.iter().map(|sum| sum / self.count()).collect()
    }

    /// The weight of each head.
    pub fn head_weights(&self) -> Vec<HeadWeight> {
        let deviation = |squares: f64| (squares / self.count()).sqrt();
        self.weights
            .iter()
            .zip(&self.used)
            .map(|(&(mean, squares), &used)| {
                let used = used as f64 / self.count();
                HeadWeight { mean, deviation: deviation(squares), used }
            })
            .collect()
    }

    fn count(&self) -> f64 {
        self.rows.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mae_model::experts::Experts;

    fn tally(gates: &[[f32; 4]]) -> Tally {
        let experts = Experts { heads: 4, dropped: 1 };
        let mut tally = Tally::new(&experts.matrix(), experts.count(), GateValues::Probabilities);
        gates.iter().for_each(|gate| {
            tally.add(gate);
        });
        tally
    }

    #[test]
    fn uniform_gates_have_the_largest_entropy_and_plain_heads() {
        let tally = tally(&[[0.25; 4]; 3]);
        assert!((tally.entropy().unwrap() - 4_f64.ln()).abs() < 1e-6);
        for weight in tally.head_weights() {
            assert!((weight.mean - 1.0).abs() < 1e-6 && weight.deviation < 1e-6, "{weight:?}");
        }
    }

    #[test]
    fn sums_are_those_of_the_rows() {
        // Expert 0 leaves head 0 out and scales the others by 4/3.
        let tally = tally(&[[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]);
        assert_eq!(tally.rows(), 3);
        assert!((tally.entropy().unwrap() - 2_f64.ln() / 3.0).abs() < 1e-6);
        assert_eq!(tally.leads(), [2.0 / 3.0, 0.0, 0.0, 1.0 / 3.0]);
        assert_eq!(tally.mean_gate(), [0.5, 0.5 / 3.0, 0.0, 1.0 / 3.0]);
        // Head 0 weighs 0, 2/3 and 4/3: mean 2/3, variance (4/9 + 0 + 4/9) / 3.
        let head = tally.head_weights()[0];
        assert!((head.mean - 2.0 / 3.0).abs() < 1e-6, "{head:?}");
        assert!((head.deviation - (8.0_f64 / 27.0).sqrt()).abs() < 1e-6, "{head:?}");
        let total: f64 = tally.head_weights().iter().map(|head| head.mean).sum();
        assert!((total - 4.0).abs() < 1e-5, "weights sum to the number of heads");
    }
}
