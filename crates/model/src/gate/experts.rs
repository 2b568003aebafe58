//! Gates over experts (the paper's): w = g·M, or the row of M of one expert.
//!
//! With a network, g = softmax(W₂·dropout(tanh(W₁·norm(x) + b₁)) + b₂), where norm is a batch norm. Without one all
//! experts are equally likely.

use std::sync::Arc;

use mae_engine::ops::batch_norm::BatchNorm;
use mae_engine::ops::mixture::{GateNetwork, Pick};
use mae_engine::{Device, ParamsBuilder, Tape, Tensor};

use super::{Gate, Needs, Reading, Weighed};
use crate::attention::AttentionConfig;
use crate::config::SamplingUnit;
use crate::groups::{GATE, STATISTICS};
use crate::limits;
use crate::pass::ExpertMode;

/// Faults of the keys that every gate over experts has.
pub(crate) fn check(config: &AttentionConfig<'_>, require: &mut dyn FnMut(bool, String)) {
    let (heads, dropped) = (config.heads, config.mixture.dropped_heads);
    require(
        dropped > 0 && dropped < heads,
        format!("mixture.dropped_heads = {dropped} must be between 1 and {heads} - 1"),
    );
    limits::check_experts(heads, dropped, require);
}

/// The same, and those of the network.
pub(crate) fn check_network(config: &AttentionConfig<'_>, require: &mut dyn FnMut(bool, String)) {
    check(config, require);
    require(config.mixture.gate_hidden > 0, "mixture.gate_hidden must be above 0".into());
}

/// Experts without a network: no parameters.
pub(crate) fn even(
    _: &mut ParamsBuilder,
    _: &str,
    config: &AttentionConfig<'_>,
    device: &Device,
) -> Arc<dyn Gate> {
    Arc::new(ExpertGate::new(config, None, device))
}

/// Declares the network's parameters `<name>.{norm,fc1,fc2}.*`.
pub(crate) fn with_network(
    params: &mut ParamsBuilder,
    name: &str,
    config: &AttentionConfig<'_>,
    device: &Device,
) -> Arc<dyn Gate> {
    let (width, mixture) = (config.width, config.mixture);
    let experts = config.experts().map_or(0, |experts| experts.count());
    let norm = BatchNorm {
        weight: params.vector(format!("{name}.norm.weight"), width, GATE),
        bias: params.vector(format!("{name}.norm.bias"), width, GATE),
        running_mean: params.vector(format!("{name}.norm.running_mean"), width, STATISTICS),
        running_var: params.vector(format!("{name}.norm.running_var"), width, STATISTICS),
    };
    let mut linear = |part: &str, rows: usize, cols: usize| {
        [
            params.matrix(format!("{name}.{part}.weight"), [rows, cols], GATE),
            params.vector(format!("{name}.{part}.bias"), rows, GATE),
        ]
    };
    let layers = GateNetwork {
        fc1: linear("fc1", mixture.gate_hidden, width),
        fc2: linear("fc2", experts, mixture.gate_hidden),
        dropout: mixture.gate_dropout,
    };
    Arc::new(ExpertGate::new(config, Some(Network { norm, layers }), device))
}

#[derive(Debug)]
struct ExpertGate {
    /// M `[E, H]`.
    experts: Tensor,
    network: Option<Network>,
    unit: SamplingUnit,
}

#[derive(Debug)]
struct Network {
    norm: BatchNorm,
    layers: GateNetwork,
}

impl ExpertGate {
    fn new(config: &AttentionConfig<'_>, network: Option<Network>, device: &Device) -> Self {
        let matrix = config.experts().map(|experts| experts.matrix()).unwrap_or_default();
        let experts = Tensor::from_host(device, [matrix.len() / config.heads, config.heads], &matrix);
        Self { experts, network, unit: config.mixture.sampling_unit }
    }

    /// The expert of each row; `None` for the mixture.
    fn pick(&self, rows: &Reading<'_>, mode: &ExpertMode) -> Option<Pick> {
        match (mode, rows.sentences, self.unit) {
            // Random experts are drawn by the attention; the gate is asked for reports only.
            (ExpertMode::Mix | ExpertMode::Altered(_) | ExpertMode::Random(_), _, _) => None,
            // Attentions see the mode of their kind, and those with given weights do not ask their gates.
            (ExpertMode::InEncoder(_) | ExpertMode::Weights(_), _, _) => None,
            (ExpertMode::Sample, Some(sentences), SamplingUnit::Sentence) => {
                Some(Pick::SamplePerSentence(sentences.clone()))
            }
            (ExpertMode::Sample, _, _) => Some(Pick::Sample),
            (ExpertMode::Argmax, _, _) => Some(Pick::Argmax),
            (ExpertMode::Fixed(expert), _, _) => Some(Pick::Fixed(*expert)),
            (ExpertMode::Given(draws), _, _) => Some(Pick::Given(draws[rows.attention].clone())),
        }
    }
}

impl Gate for ExpertGate {
    fn needs(&self, mode: &ExpertMode) -> Needs {
        match (&self.network, mode) {
            (None, _) => Needs::Nothing,
            (Some(_), ExpertMode::Mix | ExpertMode::Weights(_)) => Needs::Gradient,
            // A drawn expert carries no gradient to its gate, so nothing of the gate need be kept.
            (Some(_), _) => Needs::Values,
        }
    }

    fn weigh(&self, tape: &mut Tape<'_>, rows: &Reading<'_>, mode: &ExpertMode) -> Option<Weighed> {
        let altered = match mode {
            ExpertMode::Altered(matrices) => matrices.get(rows.attention),
            _ => None,
        };
        let mix = match (&self.network, self.pick(rows, mode)) {
            (None, None) => tape.pick_ungated(rows.count, altered?, &Pick::Fixed(0)),
            (None, Some(pick)) => tape.pick_ungated(rows.count, &self.experts, &pick),
            (Some(network), pick) => {
                let normed = tape.batch_norm(rows.input(), network.norm);
                match pick {
                    Some(pick) => tape.pick_by_gate(&normed, &network.layers, &self.experts, &pick),
                    None => tape.mix_by_gate(&normed, &network.layers, altered.unwrap_or(&self.experts)),
                }
            }
        };
        Some(Weighed { weights: mix.weights, values: mix.gates })
    }

    fn network(&self) -> Option<(BatchNorm, GateNetwork)> {
        self.network.as_ref().map(|network| (network.norm, network.layers))
    }

    fn experts(&self) -> Option<&Tensor> {
        Some(&self.experts)
    }
}
