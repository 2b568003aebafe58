//! Weights of heads, multiplied into output projections: what a model without gates can hold of a model with them.

use std::collections::BTreeMap;

use mae_data::sampler::{BatchSampler, Order, SamplerOptions, TooLong};
use mae_data::{PackedBatch, ParallelDataset};
use mae_engine::{Device, Tape};
use mae_model::config::{Mixture, System};
use mae_model::folder::ModelFolder;
use mae_model::pass::{GateValues, Pass};
use mae_model::{ExpertMode, Model, Probe, Translator};

use super::{Folder, attentions};
use crate::{Error, Result};

/// Weights of the heads of each attention.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadWeights {
    /// By attention, `encoder.layers.0.self_attn`; none for a model whose heads all weigh 1.
    weights: BTreeMap<String, Vec<f32>>,
}

/// Cost of folding gates to means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bits per target token of the model with its gates.
    pub gated: f64,
    /// Bits per target token of the model with mean gates.
    pub folded: f64,
    /// Target tokens that were measured.
    pub tokens: u64,
}

impl HeadWeights {
    /// Heads that all weigh 1: of BASE and uni-MAE.
    pub fn ones() -> Self {
        Self::default()
    }

    /// The heads of one expert in all attentions.
    pub fn expert(folder: &Folder, expert: usize) -> Result<Self> {
        let heads = folder.config.encoder_attention_heads;
        let Some(experts) = folder.config.experts() else {
            let system = folder.config.mixture.name(heads);
            return Err(Error::unsupported(
                &folder.path,
                vec![format!("the system {system} has no experts")],
            ));
        };
        if expert >= experts.count() {
            let fault =
                format!("there is no expert {expert}; experts are numbered 0 to {}", experts.count() - 1);
            return Err(Error::unsupported(&folder.path, vec![fault]));
        }
        let row = experts.matrix()[expert * heads..][..heads].to_vec();
        let weights = attentions(&folder.config).into_iter().map(|name| (name, row.clone())).collect();
        Ok(Self { weights })
    }

    /// A model with gates needs weights.
    pub(super) fn check(&self, folder: &Folder) -> Result<()> {
        let system = folder.config.mixture.system;
        if system.is_gated() && self.weights.is_empty() {
            let name = folder.config.mixture.name(folder.config.encoder_attention_heads);
            let fault = format!(
                "the system {name} has gates that depend on the input, which this format cannot hold; choose one \
                 expert, or mean gates on a text"
            );
            return Err(Error::unsupported(&folder.path, vec![fault]));
        }
        Ok(())
    }

    /// Multiplies the weights into the values of an output projection of this many rows; other parameters stay.
    pub(super) fn weigh(&self, name: &str, values: &mut [f32], rows: usize) {
        let Some(weights) = name.strip_suffix(".out_proj.weight").and_then(|name| self.weights.get(name))
        else {
            return;
        };
        let columns = values.len() / rows;
        let width = columns / weights.len();
        for row in values.chunks_exact_mut(columns) {
            row.iter_mut().enumerate().for_each(|(i, value)| *value *= weights[i / width]);
        }
    }

    /// Multiplies the weights into the output projections of a model.
    fn fold(&self, from: &Translator, into: &mut Translator) -> Result<()> {
        let names: Vec<String> = into.params().named().map(|p| p.name.to_owned()).collect();
        for name in names {
            let mut values = from.params().get(&name).map_err(mae_model::Error::from)?;
            self.weigh(&name, &mut values, into.config().encoder_embed_dim);
            into.params_mut().set(&name, &values).map_err(mae_model::Error::from)?;
        }
        Ok(())
    }
}

/// Weights of heads that are the means of the gates over a text, with what they cost on it. `data` must have the
/// dictionaries of the model.
pub fn mean_gates(folder: &Folder, data: &ParallelDataset, device: &Device) -> Result<(HeadWeights, Cost)> {
    let ModelFolder { model, source, target, .. } = ModelFolder::load(&folder.path, device)?;
    if *source != *data.src_vocab || *target != *data.tgt_vocab {
        let fault = "the text was not made with the model's dictionaries".to_owned();
        return Err(Error::unsupported(&folder.path, vec![fault]));
    }
    let config = model.config();
    let positions = config.max_positions as u32;
    let options = SamplerOptions {
        max_tokens: positions.max(4096),
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        ..SamplerOptions::default()
    };
    let sampler = BatchSampler::new(&data.lengths(), options)?;
    let experts = config.experts().map(|experts| experts.matrix());
    let heads = config.encoder_attention_heads;
    let mut sums: BTreeMap<String, (Vec<f64>, u64)> = BTreeMap::new();
    let mut gated = Loss::default();
    for ids in sampler.ordered(Order::Given) {
        let packed = PackedBatch::from_pairs(data, &ids);
        let mut probe = Probe::default();
        gated.add(&model, &packed, Some(&mut probe));
        for record in &probe.gates {
            let columns = record.gates.cols();
            let (sum, rows) = sums.entry(record.name.clone()).or_insert_with(|| (vec![0.0; heads], 0));
            for gate in record.gates.to_host().chunks_exact(columns) {
                *rows += 1;
                for (head, sum) in sum.iter_mut().enumerate() {
                    *sum += match (&experts, record.values) {
                        (Some(matrix), GateValues::Probabilities) => gate
                            .iter()
                            .enumerate()
                            .map(|(e, &g)| f64::from(g * matrix[e * heads + head]))
                            .sum(),
                        _ => f64::from(gate[head]),
                    };
                }
            }
        }
    }
    let mean = |(name, (sum, rows)): (String, (Vec<f64>, u64))| {
        (name, sum.iter().map(|sum| (sum / rows.max(1) as f64) as f32).collect())
    };
    let heads = HeadWeights { weights: sums.into_iter().map(mean).collect() };
    let plain = mae_model::ModelConfig {
        mixture: Mixture { system: System::BASE, ..config.mixture.clone() },
        ..config.clone()
    };
    let mut base = Translator::zeroed(&plain, [source.len(), target.len()], device)?;
    heads.fold(&model, &mut base)?;
    let mut folded = Loss::default();
    for ids in sampler.ordered(Order::Given) {
        folded.add(&base, &PackedBatch::from_pairs(data, &ids), None);
    }
    Ok((heads, Cost { gated: gated.bits(), folded: folded.bits(), tokens: gated.tokens }))
}

/// Sum of losses, in nats.
#[derive(Default)]
struct Loss {
    nats: f64,
    tokens: u64,
}

impl Loss {
    fn add(&mut self, model: &Translator, packed: &PackedBatch, probe: Option<&mut Probe>) {
        let mut tape = Tape::evaluation(model.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe };
        let sums = model.loss(&mut pass, &model.upload(packed), 0.0, 1.0);
        self.nats -= sums.log_probs.to_host().iter().map(|&p| f64::from(p)).sum::<f64>();
        self.tokens += packed.tgt.len() as u64;
    }

    fn bits(&self) -> f64 {
        self.nats / self.tokens.max(1) as f64 / std::f64::consts::LN_2
    }
}
