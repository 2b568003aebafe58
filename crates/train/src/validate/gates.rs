//! Gates over a data set: entropy, information and load of gates over experts; head weights of the others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use mae_model::GateRecord;
use serde::{Deserialize, Serialize};

/// Weights of heads over rows, heads and attentions; 1 is plain attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadWeights {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// Gates over experts of one attention, over the rows of a data set: sentences, or positions where each has a gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttentionGates {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Mean entropy, in nats.
    pub entropy: f64,
    /// I(expert; input) in nats: entropy of the mean gate less the mean entropy.
    pub information: f64,
    /// Load: for each expert its mean gate, to five decimals.
    pub load: Vec<f64>,
}

/// Sums over the gates of attentions.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct EntropyMean {
    /// By name.
    sums: BTreeMap<String, GateSums>,
}

/// Sums over the gates of an attention.
#[derive(Default, Serialize, Deserialize)]
struct GateSums {
    /// Place of the attention in the model.
    place: usize,
    rows: usize,
    entropy: f64,
    gates: Vec<f64>,
}

impl EntropyMean {
    pub(super) fn add(&mut self, record: &GateRecord) {
        let place = self.sums.len();
        let sums = self.sums.entry(record.name.clone()).or_insert_with(|| GateSums {
            place,
            gates: vec![0.0; record.gates.cols()],
            ..GateSums::default()
        });
        for gate in record.gates.to_host().chunks_exact(record.gates.cols()) {
            sums.entropy += entropy(gate);
            sums.rows += 1;
            sums.gates.iter_mut().zip(gate).for_each(|(sum, &g)| *sum += f64::from(g));
        }
    }

    /// Adds the sums of another rank.
    pub(super) fn join(&mut self, other: Self) {
        for (name, theirs) in other.sums {
            match self.sums.entry(name) {
                Entry::Vacant(place) => drop(place.insert(theirs)),
                Entry::Occupied(mut ours) => {
                    let ours = ours.get_mut();
                    ours.rows += theirs.rows;
                    ours.entropy += theirs.entropy;
                    ours.gates.iter_mut().zip(theirs.gates).for_each(|(sum, gate)| *sum += gate);
                }
            }
        }
    }

    /// The mean over attentions of the mean entropy over rows.
    pub(super) fn mean(&self) -> Option<f64> {
        let means: Vec<f64> = self.sums.values().map(|sums| sums.entropy / sums.rows as f64).collect();
        (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
    }

    /// The attentions in the order of the model.
    pub(super) fn attentions(&self) -> Vec<AttentionGates> {
        let mut found: Vec<(&String, &GateSums)> = self.sums.iter().collect();
        found.sort_by_key(|(_, sums)| sums.place);
        let report = |(name, sums): (&String, &GateSums)| {
            let rows = sums.rows as f64;
            let load: Vec<f64> = sums.gates.iter().map(|sum| sum / rows).collect();
            let mean_entropy = sums.entropy / rows;
            let of_mean = -load.iter().filter(|&&m| m > 0.0).map(|m| m * m.ln()).sum::<f64>();
            AttentionGates {
                attention: name.clone(),
                entropy: mean_entropy,
                // Below 0 by rounding only.
                information: (of_mean - mean_entropy).max(0.0),
                load: load.iter().map(|share| (share * 1e5).round() / 1e5).collect(),
            }
        };
        found.into_iter().map(report).collect()
    }
}

/// Mean and deviation of the head weights of all rows and attentions.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct WeightMean {
    count: usize,
    sum: f64,
    squares: f64,
}

impl WeightMean {
    pub(super) fn add(&mut self, record: &GateRecord) {
        for weight in record.gates.to_host() {
            // Around 1, where weights are, squares cancel least.
            let distance = f64::from(weight) - 1.0;
            self.count += 1;
            self.sum += distance;
            self.squares += distance * distance;
        }
    }

    /// Adds the sums of another rank.
    pub(super) fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(super) fn found(&self) -> Option<HeadWeights> {
        let (count, mean) = (self.count as f64, self.sum / self.count as f64);
        let variance = (self.squares / count - mean * mean).max(0.0);
        (self.count > 0).then(|| HeadWeights { mean: 1.0 + mean, deviation: variance.sqrt() })
    }
}

/// −Σ g·ln g.
pub fn entropy(gate: &[f32]) -> f64 {
    -gate.iter().filter(|&&g| g > 0.0).map(|&g| f64::from(g) * f64::from(g).ln()).sum::<f64>()
}
