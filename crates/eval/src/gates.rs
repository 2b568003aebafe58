//! What gates do: how sharp they are, and which experts they favour.

use mae_data::sampler::{Order, TooLong};
use mae_data::{BatchSampler, PackedBatch, ParallelDataset, Result, SamplerOptions};
use mae_engine::Tape;
use mae_model::attention::Pass;
use mae_model::{DeviceBatch, ExpertMode, Probe, Translator};
use mae_train::validate::entropy;
use serde::Serialize;

/// The gates of one attention over a data set.
#[derive(Clone, Debug, Serialize)]
pub struct GateSummary {
    /// The attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Whether rows are sentences (and not target positions).
    pub per_sentence: bool,
    /// Mean entropy, in nats.
    pub entropy: f64,
    /// For each expert, the share of rows whose gate it leads.
    pub shares: Vec<f64>,
    /// The leading expert of every row: of sentence i, where rows are sentences.
    #[serde(skip)]
    pub leaders: Vec<usize>,
}

/// The gates of every attention; empty for systems without gates.
pub fn summarise(model: &Translator, data: &ParallelDataset) -> Result<Vec<GateSummary>> {
    let positions = model.config().max_positions as u32;
    let options = SamplerOptions {
        max_tokens: positions.max(4096),
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        ..SamplerOptions::default()
    };
    let mut summaries: Vec<GateSummary> = Vec::new();
    for ids in BatchSampler::new(&data.lengths(), options)?.ordered(Order::Given) {
        let batch = DeviceBatch::new(model.params().device(), &PackedBatch::from_pairs(data, &ids));
        let mut tape = Tape::evaluation(model.params());
        let mut probe = Probe::default();
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) };
        model.features(&mut pass, &batch);
        for (i, record) in probe.gates.iter().enumerate() {
            let experts = record.gates.cols();
            if summaries.len() == i {
                let (attention, per_sentence) = (record.name.clone(), record.per_sentence);
                let shares = vec![0.0; experts];
                summaries.push(GateSummary {
                    attention,
                    per_sentence,
                    entropy: 0.0,
                    shares,
                    leaders: Vec::new(),
                });
            }
            for gate in record.gates.to_host().chunks_exact(experts) {
                let leader = (1..experts).fold(0, |best, e| if gate[e] > gate[best] { e } else { best });
                summaries[i].entropy += entropy(gate);
                summaries[i].shares[leader] += 1.0;
                summaries[i].leaders.push(leader);
            }
        }
    }
    for summary in &mut summaries {
        let rows = summary.leaders.len().max(1) as f64;
        summary.entropy /= rows;
        summary.shares.iter_mut().for_each(|share| *share /= rows);
    }
    Ok(summaries)
}
