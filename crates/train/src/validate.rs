//! Validation: development loss and gate entropy here; other scores plug in as [`Validator`]s.

mod gates;

use std::sync::Arc;

use mae_data::sampler::{Order, TooLong};
use mae_data::{BatchSampler, Corpus, SamplerOptions};
use mae_engine::collective::{Alone, Collective, Place};
use mae_engine::{Params, Tape};
use mae_model::attention::Pass;
use mae_model::pass::GateValues;
use mae_model::{Config, ExpertMode, Model, Probe, Translator, init};
use serde::{Deserialize, Serialize};

pub use self::gates::{AttentionGates, HeadWeights, entropy};
use self::gates::{EntropyMean, WeightMean};
use crate::config::{GateInit, TrainConfig};
use crate::log::{nan, or_nan};
use crate::{Error, Result};

/// Error of a validator that was plugged in.
pub type ValidatorError = Box<dyn std::error::Error + Send + Sync>;

/// A score of the development set that needs more than the model's loss.
pub trait Validator<M = Translator> {
    /// Returns BLEU, 0 to 100.
    fn bleu(&mut self, model: &M) -> std::result::Result<f64, ValidatorError>;
}

/// One validation. Losses are in bits per target token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The epoch, from 1.
    #[serde(default)]
    pub epoch: u64,
    /// Updates so far.
    pub num_updates: u64,
    /// Smoothed loss, bits per token.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub loss: f64,
    /// Plain loss, bits per token.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub nll_loss: f64,
    /// 2^nll_loss.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub ppl: f64,
    /// Target tokens, end marks counted.
    #[serde(default)]
    pub tokens: u64,
    /// Sentence pairs, or blocks of a text.
    #[serde(default)]
    pub sentences: u64,
    /// Those left out because they are longer than the model's positions.
    #[serde(default)]
    pub skipped: u64,
    /// BLEU, 0 to 100, where it was asked for.
    #[serde(default)]
    pub bleu: Option<f64>,
    /// Mean entropy of all gates, in nats, where gates are over experts.
    #[serde(default)]
    pub gate_entropy: Option<f64>,
    /// Gates of each attention, in the order of the model, where gates are over experts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<AttentionGates>,
    /// Updates of the gates so far, of systems with gates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_updates: Option<u64>,
    /// Norm of the gates' gradient in the newest G step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_gnorm: Option<f64>,
    /// Weights that gates give to heads, where gates weigh heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_weights: Option<HeadWeights>,
    /// The best value of the checkpoint metric so far.
    #[serde(default = "nan", deserialize_with = "or_nan")]
    pub best: f64,
    /// True if it was reached just now.
    #[serde(default)]
    pub is_best: bool,
}

/// The gates of a model as they were before the training of a run with this configuration, behind the norms' statistics of
/// the model: for [`Probe::untrained`].
pub fn untrained_gates<M: Model>(model: &M, config: &TrainConfig) -> Result<Arc<Params>> {
    let system = model.config().mixture().system;
    let mut gates = init::untrained_gates(model.params(), system, config.seed)?;
    if config.gate_init == GateInit::Zero {
        init::make_neutral(&mut gates, system)?;
    }
    Ok(Arc::new(gates))
}

/// Loss and gate entropy of a development set, in its own order.
pub fn development_loss<M: Model>(model: &M, data: &dyn Corpus, config: &TrainConfig) -> Result<Validation> {
    development_loss_among(&Alone, model, data, config)
}

/// The same over all ranks: each takes a part of the batches, and all get the result. Losses are added in the order of the
/// batches, statistics of gates in that of the ranks.
pub fn development_loss_among<M: Model>(
    ranks: &dyn Collective,
    model: &M,
    data: &dyn Corpus,
    config: &TrainConfig,
) -> Result<Validation> {
    let Place { rank, size, .. } = ranks.place();
    let positions = model.config().max_positions() as u32;
    let lengths = data.lengths();
    let longest = lengths.iter().map(|&(src, tgt)| src.max(tgt)).max().unwrap_or(0);
    let options = SamplerOptions {
        // A pair longer than the budget is a batch of its own.
        max_tokens: config.max_tokens.max(longest.min(positions)),
        max_sentences: None,
        max_positions: Some((positions, positions)),
        too_long: TooLong::Skip,
        seed: 0,
    };
    let sampler = BatchSampler::new(&lengths, options)?;
    let mut part = Part::default();
    for ids in sampler.ordered(Order::Given).iter().skip(rank).step_by(size) {
        let packed = data.pack(ids);
        let batch = model.upload(&packed);
        let mut tape = Tape::evaluation(model.params());
        let mut probe = Probe::default();
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) };
        let sums = model.loss(&mut pass, &batch, config.label_smoothing, 1.0);
        part.losses.push([sums.smoothed(), sums.nll()]);
        part.tokens += packed.tgt_tokens();
        for record in &probe.gates {
            match record.values {
                GateValues::Probabilities => part.entropy.add(record),
                GateValues::Weights => part.weights.add(record),
            }
        }
    }
    let Part { losses, tokens, entropy, weights } = part.of_all(ranks)?;
    let [loss, nll] = losses.iter().fold([0.0; 2], |sum, batch| [sum[0] + batch[0], sum[1] + batch[1]]);
    if tokens == 0 {
        return Err(Error::Config(vec![
            "the development set has no usable sentence pairs or blocks of text".into(),
        ]));
    }
    let bits = |sum: f64| sum / tokens as f64 / std::f64::consts::LN_2;
    let nll_loss = bits(nll);
    Ok(Validation {
        loss: bits(loss),
        nll_loss,
        ppl: nll_loss.exp2(),
        tokens: tokens as u64,
        sentences: sampler.sentences() as u64,
        skipped: sampler.skipped().count,
        gate_entropy: entropy.mean(),
        gates: entropy.attentions(),
        head_weights: weights.found(),
        ..Validation::default()
    })
}

/// What a rank has measured on its batches.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    /// Smoothed and plain loss of each batch.
    losses: Vec<[f64; 2]>,
    tokens: usize,
    entropy: EntropyMean,
    weights: WeightMean,
}

impl Part {
    /// The parts of all ranks together.
    fn of_all(self, ranks: &dyn Collective) -> Result<Self> {
        let size = ranks.place().size;
        if size == 1 {
            return Ok(self);
        }
        // As bits: JSON has no numbers for what is not finite.
        let losses: Vec<u64> = self.losses.iter().flatten().map(|loss| loss.to_bits()).collect();
        let own = serde_json::to_vec(&(losses, Self { losses: Vec::new(), ..self }));
        let all = ranks.gather(&own.expect("sums can be written as JSON"))?;
        let mut together = Self::default();
        let mut by_rank: Vec<Vec<u64>> = Vec::new();
        for (rank, bytes) in all.iter().enumerate() {
            let fault = |error: serde_json::Error| mae_engine::Error::Peer {
                rank,
                name: String::new(),
                why: format!("it sent no validation: {error}"),
            };
            let (losses, part): (Vec<u64>, Self) = serde_json::from_slice(bytes).map_err(fault)?;
            by_rank.push(losses);
            together.tokens += part.tokens;
            together.entropy.join(part.entropy);
            together.weights.join(&part.weights);
        }
        let batches: usize = by_rank.iter().map(|losses| losses.len() / 2).sum();
        let loss = |batch: usize, which: usize| {
            by_rank[batch % size]
                .get(2 * (batch / size) + which)
                .map_or(f64::NAN, |&bits| f64::from_bits(bits))
        };
        together.losses = (0..batches).map(|batch| [loss(batch, 0), loss(batch, 1)]).collect();
        Ok(together)
    }
}
