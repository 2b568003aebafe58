//! Statistics of one attention while a data set is read, and the analysis of all of them.

use mae_model::Config;
use mae_model::experts::Experts;
use mae_model::pass::GateValues;

use super::collapse::{Sharing, Verdict, entropy_of, experts_in_use};
use super::pmi::Words;
use super::seen::Seen;
use super::tags::Tags;
use super::tally::Tally;
use super::{Analysis, AttentionReport, Kind, Means, Options, Rows, Sentence, Untrained};
use crate::gates::BatchGates;

/// Contents of a model's gates.
pub(super) struct Gated {
    values: GateValues,
    heads: usize,
    experts: Option<Experts>,
}

impl Gated {
    /// Of a model with this configuration.
    pub(super) fn of(config: &impl Config) -> Self {
        let (mixture, heads) = (config.mixture(), config.heads());
        Self { values: mixture.system.values(), heads, experts: mixture.experts(heads) }
    }

    /// Numbers of a row: E, or H.
    pub(super) fn columns(&self) -> usize {
        self.experts.map_or(self.heads, |experts| experts.count())
    }

    /// The weights of heads that each column stands for, `[columns, H]`: M, or the identity.
    pub(super) fn matrix(&self) -> Vec<f32> {
        let identity = || {
            let places = (0..self.heads).flat_map(|i| (0..self.heads).map(move |j| i == j));
            places.map(|same| if same { 1.0 } else { 0.0 }).collect()
        };
        self.experts.map_or_else(identity, |experts| experts.matrix())
    }
}

/// One attention while a data set is read.
pub(super) struct Gathered {
    attention: String,
    /// Kind of attention in its layer.
    pub(super) kind: Kind,
    rows: Rows,
    /// Its gates.
    pub(super) gates: Seen,
    /// Gates before their training, if they are read beside.
    pub(super) untrained: Option<Seen>,
}

impl Gathered {
    /// Nothing read yet of the attention that `gate` belongs to; `matrix` is that of [`Gated`].
    pub(super) fn new(gate: &BatchGates, matrix: &[f32], tags: Option<&Tags>) -> Self {
        let seen = || Seen::new(Tally::new(matrix, gate.columns, gate.holds), gate.columns, tags);
        Self {
            attention: gate.attention.clone(),
            kind: gate.kind,
            rows: gate.unit,
            gates: seen(),
            untrained: gate.untrained.as_ref().map(|_| seen()),
        }
    }

    /// Report of its gates; `part` names the stack it is in.
    pub(super) fn report(&self, part: &str, words: &Words, options: Options) -> AttentionReport {
        let Self { attention, kind, rows, gates, .. } = self;
        let layer =
            attention.split('.').nth(2).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0) + 1;
        let tally = &gates.tally;
        let (entropy, leads, mean_gate) = (tally.entropy(), tally.leads(), tally.mean_gate());
        let head_weights = tally.head_weights();
        let deviation =
            head_weights.iter().map(|head| head.deviation).sum::<f64>() / head_weights.len().max(1) as f64;
        let listed = |seen: &Seen| seen.together.associations(words, options.min_count, options.top_words);
        let untrained = self.untrained.as_ref().map(|seen| Untrained {
            entropy: seen.tally.entropy(),
            information: information(&seen.tally),
            leads: seen.tally.leads(),
            mean_gate: seen.tally.mean_gate(),
            head_weights: seen.tally.head_weights(),
            words: listed(seen),
            tags: seen.tags(),
        });
        AttentionReport {
            attention: attention.clone(),
            label: format!("{part} {layer}"),
            kind: *kind,
            layer,
            rows: *rows,
            count: tally.rows(),
            entropy,
            information: information(tally),
            sharing: entropy.map(|entropy| Sharing::of(entropy, &leads, &mean_gate, deviation)),
            experts_in_use: entropy.map(|_| experts_in_use(&mean_gate)),
            leads,
            mean_gate,
            head_weights,
            words: listed(gates),
            tags: gates.tags(),
            untrained,
        }
    }
}

/// Entropy of the mean gate less mean entropy of the gates.
fn information(tally: &Tally) -> Option<f64> {
    // Below 0 by rounding only.
    tally.entropy().map(|entropy| (entropy_of(&tally.mean_gate()) - entropy).max(0.0))
}

/// A gate to three decimals.
pub(super) fn rounded(gate: &[f32]) -> Vec<f32> {
    gate.iter().map(|&g| to_thousandths(g)).collect()
}

/// Three decimals.
pub(super) fn to_thousandths(value: f32) -> f32 {
    (value * 1000.0).round() / 1000.0
}

/// The analysis of all attentions; the caller adds the amounts read.
pub(super) fn conclude(
    gated: &Gated,
    reports: Vec<AttentionReport>,
    examples: Vec<Sentence>,
    options: Options,
) -> Analysis {
    let judged: Vec<(&str, Sharing)> =
        reports.iter().filter_map(|report| Some((report.label.as_str(), report.sharing?))).collect();
    let experts = gated.experts.map_or(0, |experts| experts.count());
    Analysis {
        gates: gated.values,
        experts,
        heads: gated.heads,
        left_out: gated.experts.map(|experts| experts.left_out()).unwrap_or_default(),
        uniform_entropy: gated.experts.map(|_| (experts as f64).ln()),
        sentences: 0,
        skipped: 0,
        text: None,
        min_count: options.min_count,
        entropy: Means::of(&reports, |report| report.entropy),
        information: Means::of(&reports, |report| report.information),
        untrained_entropy: Means::of(&reports, |report| report.untrained.as_ref()?.entropy),
        untrained_information: Means::of(&reports, |report| report.untrained.as_ref()?.information),
        tags: None,
        collapse: Verdict::of(&judged),
        attentions: reports,
        examples,
    }
}
