//! Statistics of gates: their entropy, and the experts they favour.

use std::ops::Range;
use std::sync::Arc;

use mae_data::sampler::{Order, TooLong};
use mae_data::{BatchSampler, PackedBatch, ParallelDataset, SamplerOptions};
use mae_engine::{Params, Tape, Tensor};
use mae_model::attention::Pass;
use mae_model::pass::{GateValues, Kind, Rows};
use mae_model::{ExpertMode, Model, Probe, Translator};
use mae_train::validate::entropy;
use serde::Serialize;

use crate::error::Result;

/// The gates of one attention over a data set.
#[derive(Clone, Debug, Serialize)]
pub struct GateSummary {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Unit of a row.
    pub rows: Rows,
    /// Content of a row.
    pub holds: GateValues,
    /// Mean entropy, in nats; not defined for head weights.
    pub entropy: Option<f64>,
    /// For each expert, or head, its mean.
    pub means: Vec<f64>,
    /// For each expert, or head, the share of rows whose gate it leads.
    pub shares: Vec<f64>,
    /// The leading expert, or head, of every row: of sentence i, where rows are sentences.
    #[serde(skip)]
    pub leaders: Vec<usize>,
    /// The untrained gate on the same inputs, where it was asked for.
    pub untrained: Option<UntrainedGate>,
}

/// An untrained gate beside a trained one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UntrainedGate {
    /// Mean entropy, in nats; not defined for head weights.
    pub entropy: Option<f64>,
    /// The leading expert, or head, of every row.
    #[serde(skip)]
    pub leaders: Vec<usize>,
}

/// The gates of one attention for the sentences of a batch.
#[derive(Clone, Debug)]
pub struct BatchGates {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Kind of the attention.
    pub kind: Kind,
    /// Unit of a row.
    pub unit: Rows,
    /// Content of a row.
    pub holds: GateValues,
    /// E, or H where rows hold head weights.
    pub columns: usize,
    /// The rows, `[rows, columns]`.
    pub values: Vec<f32>,
    /// The same of the gates before their training, where they were asked for.
    pub untrained: Option<Vec<f32>>,
}

impl BatchGates {
    /// The gates, row by row.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.columns)
    }

    /// The untrained gates, row by row; none where they were not asked for.
    pub fn untrained_rows(&self) -> impl Iterator<Item = &[f32]> {
        self.untrained.iter().flat_map(|values| values.chunks_exact(self.columns))
    }

    /// One of the gates.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// An untrained gate, where they were asked for.
    pub fn untrained_row(&self, row: usize) -> Option<&[f32]> {
        self.untrained.as_ref().map(|values| &values[row * self.columns..][..self.columns])
    }

    /// The rows of the batch's sentence `b`.
    pub fn rows_of(&self, batch: &PackedBatch, b: usize) -> Range<usize> {
        let starts = match (self.unit, self.kind) {
            (Rows::Sentences, _) => return b..b + 1,
            (Rows::Positions, Kind::Encoder) => &batch.src_starts,
            (Rows::Positions, Kind::Decoder | Kind::Cross) => &batch.tgt_starts,
        };
        starts[b] as usize..starts[b + 1] as usize
    }

    /// Gates that a pass has recorded, in its order.
    pub(crate) fn noted(probe: &Probe) -> Vec<Self> {
        let on_host = probe.gates.iter().map(|record| Self {
            attention: record.name.clone(),
            kind: record.kind,
            unit: record.rows,
            holds: record.values,
            columns: record.gates.cols(),
            values: record.gates.to_host(),
            untrained: record.untrained.as_ref().map(Tensor::to_host),
        });
        on_host.collect()
    }
}

/// Runs the mixture over the whole data set, targets given, and calls `see` with the gates of each batch, beside them
/// `untrained` ones that read the same inputs; returns the number of pairs that were left out because they are longer than the model's positions. Systems
/// without gates have none to show.
pub fn for_each_batch(
    model: &Translator,
    data: &ParallelDataset,
    untrained: Option<&Arc<Params>>,
    mut see: impl FnMut(&PackedBatch, &[BatchGates]),
) -> Result<u64> {
    let sampler = sampler(model, data)?;
    let device = model.params().device();
    for ids in sampler.ordered(Order::Given) {
        let packed = PackedBatch::from_pairs(data, &ids);
        let batch = model.upload(&packed);
        let mut tape = Tape::evaluation(model.params());
        let mut probe = Probe { untrained: untrained.cloned(), ..Probe::default() };
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) };
        model.features(&mut pass, &batch);
        let gates = BatchGates::noted(&probe);
        device.check()?;
        see(&packed, &gates);
    }
    Ok(sampler.skipped().count)
}

/// Number of pairs that [`for_each_batch`] reads.
pub(crate) fn pairs_read(model: &Translator, data: &ParallelDataset) -> Result<u64> {
    Ok(sampler(model, data)?.sentences() as u64)
}

/// Batches of all pairs that the model has positions for.
fn sampler(model: &Translator, data: &ParallelDataset) -> Result<BatchSampler> {
    let positions = model.config().max_positions as u32;
    let options = SamplerOptions {
        max_tokens: positions.max(4096),
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        ..SamplerOptions::default()
    };
    Ok(BatchSampler::new(&data.lengths(), options)?)
}

/// The gates of every attention, and beside them `untrained` ones; empty for systems without gates.
pub fn summarise(
    model: &Translator,
    data: &ParallelDataset,
    untrained: Option<&Arc<Params>>,
) -> Result<Vec<GateSummary>> {
    let mut summaries: Vec<GateSummary> = Vec::new();
    for_each_batch(model, data, untrained, |_, batch| {
        for (i, gates) in batch.iter().enumerate() {
            let entropy_begins = (gates.holds == GateValues::Probabilities).then_some(0.0);
            if summaries.len() == i {
                let untrained = UntrainedGate { entropy: entropy_begins, leaders: Vec::new() };
                summaries.push(GateSummary {
                    attention: gates.attention.clone(),
                    rows: gates.unit,
                    holds: gates.holds,
                    entropy: entropy_begins,
                    means: vec![0.0; gates.columns],
                    shares: vec![0.0; gates.columns],
                    leaders: Vec::new(),
                    untrained: gates.untrained.as_ref().map(|_| untrained),
                });
            }
            if let Some(untrained) = &mut summaries[i].untrained {
                for gate in gates.untrained_rows() {
                    untrained.entropy = untrained.entropy.map(|sum| sum + entropy(gate));
                    untrained.leaders.push(leader(gate));
                }
            }
            for gate in gates.rows() {
                let (leader, summary) = (leader(gate), &mut summaries[i]);
                if let Some(sum) = &mut summary.entropy {
                    *sum += entropy(gate);
                }
                summary.means.iter_mut().zip(gate).for_each(|(sum, &g)| *sum += f64::from(g));
                summary.shares[leader] += 1.0;
                summary.leaders.push(leader);
            }
        }
    })?;
    for summary in &mut summaries {
        let rows = summary.leaders.len().max(1) as f64;
        summary.entropy = summary.entropy.map(|sum| sum / rows);
        if let Some(untrained) = &mut summary.untrained {
            untrained.entropy = untrained.entropy.map(|sum| sum / rows);
        }
        summary.shares.iter_mut().chain(&mut summary.means).for_each(|share| *share /= rows);
    }
    Ok(summaries)
}

/// The expert, or head, with the largest gate; of equal ones the first.
pub fn leader(gate: &[f32]) -> usize {
    (1..gate.len()).fold(0, |best, e| if gate[e] > gate[best] { e } else { best })
}
