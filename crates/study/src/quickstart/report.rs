//! Results of quickstart.

use std::collections::BTreeMap;

use mae_eval::gates::GateSummary;
use mae_model::pass::GateValues;
use serde::Serialize;

use super::line::Line;

/// Results of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the corpus.
    pub corpus: &'static str,
    /// Name of the system.
    pub system: String,
    /// Sentence pairs that it was trained on.
    pub pairs: usize,
    /// Seed of the corpus and of the training.
    pub seed: u64,
    /// Parameters of the model.
    pub parameters: usize,
    /// Updates.
    pub updates: u64,
    /// Seconds of training, translation and scoring.
    pub seconds: f64,
    /// Share of held-out lines translated exactly, 0 to 1.
    pub exact_match: f64,
    /// BLEU, 0 to 100.
    pub bleu: f64,
    /// Its signature.
    pub bleu_signature: String,
    /// Gates on the held-out lines.
    #[serde(flatten)]
    pub gates: GateReport,
    /// Some held-out lines.
    pub examples: Vec<Example>,
    /// Folder of the model.
    pub model: String,
}

/// Gates on the held-out lines.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GateReport {
    /// ln of the number of experts, the entropy of a uniform gate, in nats.
    pub entropy_limit: Option<f64>,
    /// Mean gate entropy by attention, in nats.
    pub entropy: BTreeMap<String, f64>,
    /// The same of the gates that the run began with, on the same inputs.
    pub untrained_entropy: BTreeMap<String, f64>,
    /// Mean weight of each head by attention, where gates weigh heads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub head_weights: BTreeMap<String, Vec<f64>>,
    /// Share of rows that each expert leads, by attention.
    pub experts: BTreeMap<String, Vec<f64>>,
    /// By kind of sentence: the expert that most often leads in the first encoder layer, and its share.
    pub kinds: BTreeMap<String, (usize, f64)>,
    /// The same of the gate that the run began with.
    pub untrained_kinds: BTreeMap<String, (usize, f64)>,
}

/// A held-out line.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// Source.
    pub source: String,
    /// Reference.
    pub target: String,
    /// Translation.
    pub translation: String,
}

impl GateReport {
    pub(super) fn new(gates: Vec<GateSummary>, held_out: &[Line]) -> Self {
        let (gates, weights): (Vec<_>, Vec<_>) =
            gates.into_iter().partition(|gate| gate.holds == GateValues::Probabilities);
        let entropy = |of: &dyn Fn(&GateSummary) -> Option<f64>| {
            gates.iter().filter_map(|gate| Some((gate.attention.clone(), of(gate)?))).collect()
        };
        let kinds = |leaders: Option<&Vec<usize>>| {
            let experts = gates.first().map_or(0, |gate| gate.shares.len());
            leaders.map_or_else(BTreeMap::new, |leaders| leading_experts(leaders, experts, held_out))
        };
        let untrained = |gate: &GateSummary| gate.untrained.as_ref().and_then(|gate| gate.entropy);
        let first_untrained = gates.first().and_then(|gate| gate.untrained.as_ref());
        Self {
            entropy_limit: gates.first().map(|gate| (gate.shares.len() as f64).ln()),
            kinds: kinds(gates.first().map(|gate| &gate.leaders)),
            untrained_kinds: kinds(first_untrained.map(|gate| &gate.leaders)),
            entropy: entropy(&|gate| gate.entropy),
            untrained_entropy: entropy(&untrained),
            head_weights: weights.into_iter().map(|gate| (gate.attention, gate.means)).collect(),
            experts: gates.into_iter().map(|gate| (gate.attention, gate.shares)).collect(),
        }
    }

    /// Number of experts of an attention.
    pub fn expert_count(&self) -> usize {
        self.experts.values().next().map_or(0, Vec::len)
    }

    /// Mean entropy over attentions.
    pub fn mean_entropy(&self) -> Option<f64> {
        let count = self.entropy.len();
        (count > 0).then(|| self.entropy.values().sum::<f64>() / count as f64)
    }
}

/// Returns, for each kind of sentence, the expert that leads most often and its share.
fn leading_experts(leaders: &[usize], experts: usize, held_out: &[Line]) -> BTreeMap<String, (usize, f64)> {
    let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (pair, &leader) in held_out.iter().zip(leaders) {
        counts.entry(pair.kind.clone()).or_insert_with(|| vec![0; experts])[leader] += 1;
    }
    let most = |counts: Vec<usize>| {
        let best = (0..counts.len()).max_by_key(|&e| counts[e]).unwrap_or(0);
        (best, counts[best] as f64 / counts.iter().sum::<usize>().max(1) as f64)
    };
    counts.into_iter().map(|(kind, counts)| (kind, most(counts))).collect()
}
