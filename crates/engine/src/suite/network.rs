//! Whole passes: a small network with every op, run op by op, and captured and replayed.

use super::Case;
use super::slices::Taker;
use super::{Outcome, Quantity, Tolerance};
use super::{fit, random, starts};
use crate::collective::Transport;
use crate::cuda::graph::Replays;
use crate::device::{Device, Numbers};
use crate::ops::attention::{Attention, HeadWeights, Inputs};
use crate::ops::batch_norm::BatchNorm;
use crate::ops::cross_entropy::{CrossEntropy, LossSums};
use crate::ops::embed::suite::tokens;
use crate::ops::embed::{Embedding, Positions, sinusoids};
use crate::ops::linear::Activation;
use crate::ops::mixture::Pick;
use crate::ops::residual_norm::{LayerNorm, Normed};
use crate::optim::{Adam, Moments, StepNumbers};
use crate::params::{GroupId, GroupSet, ParamId, Params, ParamsBuilder};
use crate::{Ids, Result, Rng, Segments, Tape, Tensor};

const REST: GroupId = GroupId(0);
const STATISTICS: GroupId = GroupId(1);

const TYPES: usize = 131;
const WIDTH: usize = 128;
const HEADS: usize = 2;
const DROPOUT: f32 = 0.2;

pub(super) fn cases() -> Vec<Case> {
    // Roundings of ten ops in a row, and of the updates between the passes.
    let tolerance = Tolerance::new(8e-2, 2e-4);
    vec![
        Case::new("network", "three updates, op by op", tolerance, |d, n| passes(d, n, How::OpByOp)),
        Case::new("network", "three updates, captured and replayed", tolerance, |d, n| {
            passes(d, n, How::Replayed)
        }),
        Case::new(
            "network",
            "three updates, slices of gradients taken during the pass",
            tolerance,
            |d, n| passes(d, n, How::Sliced(Transport::F32)),
        ),
        Case::new(
            "network",
            "three updates, slices of gradients rounded during the pass",
            // Values next to the middle of two bf16 numbers are rounded either way: 3.1e-4 was seen in f32.
            Tolerance::new(8e-2, 2e-3),
            |d, n| passes(d, n, How::Sliced(Transport::Bf16)),
        ),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    OpByOp,
    Replayed,
    Sliced(Transport),
}

/// An encoder layer with a gate for each sentence, and a decoder layer whose tokens draw an expert each.
struct Network {
    table: ParamId,
    qkv: [[ParamId; 2]; 2],
    gate_norm: BatchNorm,
    gate: [ParamId; 2],
    norm: LayerNorm,
    positions: Tensor,
    experts: Tensor,
}

impl Network {
    fn declare(device: &Device, numbers: Numbers) -> (Self, Params) {
        let mut builder = ParamsBuilder::default();
        let mut matrix = |name: &str, shape, group| builder.matrix(name.into(), shape, group);
        let mut layer = |name: &str, [rows, cols]: [usize; 2]| {
            [
                matrix(&format!("{name}.weight"), [rows, cols], REST),
                matrix(&format!("{name}.bias"), [1, rows], REST),
            ]
        };
        let qkv = [layer("first.qkv", [3 * WIDTH, WIDTH]), layer("second.qkv", [3 * WIDTH, WIDTH])];
        let gate = layer("gate", [HEADS, WIDTH]);
        let mut vector = |name: &str, group| matrix(name, [1, WIDTH], group);
        let norm = LayerNorm { weight: vector("norm.weight", REST), bias: vector("norm.bias", REST) };
        let gate_norm = BatchNorm {
            weight: vector("gate_norm.weight", REST),
            bias: vector("gate_norm.bias", REST),
            running_mean: vector("gate_norm.mean", STATISTICS),
            running_var: vector("gate_norm.var", STATISTICS),
        };
        let table = matrix("table", [TYPES, WIDTH], REST);
        let mut params = builder.finish(device);
        let names: Vec<(String, usize)> =
            params.named().map(|p| (p.name.to_owned(), p.shape.iter().product())).collect();
        for (i, (name, count)) in names.into_iter().enumerate() {
            let fill = |random: f32| match name.rsplit('.').next() {
                Some("bias" | "mean") => 0.1 * random,
                Some("var") => 1.0 + random.abs(),
                _ if name.contains("norm") => 1.0 + 0.1 * random,
                _ => random / (WIDTH as f32).sqrt(),
            };
            let values =
                random(numbers, i as u32, count).into_iter().map(|random| fit(numbers, fill(random)));
            params.set(&name, &values.collect::<Vec<_>>()).expect("declared above with this size");
        }
        let positions = sinusoids(device, 64, WIDTH);
        let experts = Tensor::from_host(device, [HEADS, HEADS], &[0.0, 2.0, 2.0, 0.0]);
        (Self { table, qkv, gate_norm, gate, norm, positions, experts }, params)
    }

    fn loss(&self, tape: &mut Tape<'_>, feed: &Feed, weight: f32) -> LossSums {
        let Feed { ids, targets, segments } = feed;
        let scale = (WIDTH as f32).sqrt();
        let positions = Positions::Fixed(&self.positions);
        let embedding = Embedding { table: self.table, positions, scale, dropout: DROPOUT };
        let mut x = tape.embed(embedding, ids, segments, None);
        for (layer, [weights, bias]) in self.qkv.into_iter().enumerate() {
            let causal = layer == 1;
            let head_weights = if causal {
                // No gates: draws must not hang on a rounding.
                let pick = Pick::SamplePerSentence(segments.clone());
                HeadWeights::PerRow(tape.pick_ungated(x.rows(), &self.experts, &pick).weights)
            } else {
                let means = tape.segment_mean(&x, segments);
                let normed = tape.batch_norm(&means, self.gate_norm);
                let logits = tape.linear(&normed, self.gate[0], self.gate[1], Activation::Tanh, 0.0);
                HeadWeights::PerSentence(tape.mix_experts(&logits, &self.experts).weights)
            };
            let qkv = Inputs::Packed(tape.linear(&x, weights, bias, Activation::Identity, DROPOUT));
            let (queries, keys) = (segments.clone(), segments.clone());
            let attention =
                Attention { heads: HEADS, causal, dropout: DROPOUT, queries, keys, weights: head_weights };
            let z = tape.attention(&qkv, attention);
            let Normed { normed, .. } = tape.residual_norm(&x, &z, DROPOUT, self.norm);
            x = normed;
        }
        let means = tape.running_mean(&x, segments, Some(5));
        x = tape.residual(&x, &means, DROPOUT);
        tape.cross_entropy(
            &x,
            CrossEntropy { vocabulary: self.table, bias: None, targets, smoothing: 0.1, weight },
        )
    }
}

/// A batch on a device.
struct Feed {
    ids: Ids,
    targets: Ids,
    segments: Segments,
}

/// Sentence lengths of the three batches; one feed has room for each of them.
const LENGTHS: [&[u32]; 3] =
    [&[13, 1, 30, 7, 11, 5, 23, 2], &[2, 64, 5, 17, 3, 8], &[9, 0, 21, 17, 40, 1, 6, 12, 3, 30, 4]];

impl Feed {
    fn with_room(device: &Device) -> Self {
        let room = || Ids::with_room(device, 192);
        Self { ids: room(), targets: room(), segments: Segments::with_room(device, 16, 192, 64) }
    }

    fn load(&mut self, pass: u32) {
        let starts = starts(LENGTHS[pass as usize]);
        let count = starts[starts.len() - 1] as usize;
        self.ids.load(&tokens(count, TYPES, 10 + pass));
        self.targets.load(&tokens(count, TYPES, 20 + pass));
        self.segments.load(&starts);
    }
}

fn passes(device: &Device, numbers: Numbers, how: How) -> Outcome {
    try_passes(device, numbers, how).unwrap_or_else(|error| panic!("{error}"))
}

/// Three updates with different batches, random numbers and weights of the loss.
fn try_passes(device: &Device, numbers: Numbers, how: How) -> Result<Outcome> {
    let (network, mut params) = Network::declare(device, numbers);
    let (mut gradients, mut step) = (params.gradients(), StepNumbers::new(device));
    let mut moments = Moments::new(&params, REST);
    let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.0 };
    let (free, mut outcome) = (GroupSet::of(&[REST]), Outcome::new());
    let mut feed = Feed::with_room(device);
    let mut replays = Replays::default();
    let mut taker = match how {
        How::OpByOp | How::Replayed => None,
        How::Sliced(transport) => Some(Taker::new(device, &params, free, transport)?),
    };
    let slices = taker.as_ref().map_or_else(Vec::new, |taker| taker.slices().to_vec());
    for pass in 0..3 {
        feed.load(pass);
        let (rng, weight) = (Rng::new(7, 20 + pass), 1.0 / (30 + pass) as f32);
        let key = if how == How::OpByOp { pass } else { 0 };
        taker.iter().for_each(Taker::begin);
        step.begin();
        device.load_numbers(rng, weight, 1.0);
        gradients.clear();
        let (sums, written) = replays.run(device, key, || {
            let mut tape = Tape::training(&params, &mut gradients, free, rng);
            let sums = network.loss(&mut tape, &feed, weight);
            let updates = tape.backward_in_slices(&slices, &mut |gradients, number| {
                taker.iter_mut().for_each(|taker| taker.complete(gradients, number));
            });
            step.add(&sums);
            params.apply(updates);
            Ok((sums, gradients.written()))
        })?;
        gradients.set_written(&written);
        gradients.check_complete(free)?;
        if let Some(copies) = taker.as_ref().map(|taker| taker.finish(&gradients)).transpose()?.flatten() {
            outcome.push(Quantity::gradient(&format!("slices {pass}"), false, WIDTH, copies));
        }
        step.norm(&params, &gradients, free, 1.0);
        let read = step.read()?.wait()?;
        let summed = [read.loss, read.nll, read.norm].map(|v| v as f32).to_vec();
        outcome.push(Quantity::value(format!("loss, nll and norm {pass}"), 1, summed));
        outcome.push(Quantity::value(format!("log-probabilities {pass}"), 1, sums.log_probs.to_host()));
        let names: Vec<(String, GroupId)> = params.named().map(|p| (p.name.to_owned(), p.group)).collect();
        for (name, group) in names {
            let title = format!("{name} {pass}");
            outcome.push(match group {
                REST => Quantity::gradient(
                    &title,
                    false,
                    WIDTH,
                    gradients.get(&params, &name)?.unwrap_or_default(),
                ),
                _ => Quantity::value(title, WIDTH, params.get(&name)?),
            });
        }
        adam.step(&mut params, &gradients, &mut moments, 1e-3, u64::from(pass) + 1, &step);
    }
    Ok(outcome)
}
