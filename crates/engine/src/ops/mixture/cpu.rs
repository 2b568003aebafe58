//! The CPU's implementation.

use rayon::prelude::*;

use super::{GateNetwork, Pick, Results};
use crate::cpu::gemm::Precision;
use crate::cpu::gemm::streamed::{self, Weight};
use crate::cpu::{for_rows, math, vectorised};
use crate::params::Params;
use crate::rng::Stream;
use crate::tape::Backward;
use crate::{Tensor, Var};

pub(super) fn mix(logits: &Var, experts: &Tensor, results: &mut Results) {
    let (heads, count) = (experts.cols(), experts.rows());
    softmax(logits, count, &mut results.gates);
    let gates = &results.gates[..];
    for_rows(
        &mut results.weights,
        heads,
        #[inline(always)]
        |first, rows| {
            for (i, w) in rows.chunks_exact_mut(heads).enumerate() {
                mix_row(&gates[(first + i) * count..][..count], experts, w);
            }
        },
    );
}

/// Rows of a gate that one task takes.
const ROWS_PER_TASK: usize = 32;

/// True if [`weigh_by_gate`] can compute this network: its second layer is small, as that of most gates.
pub(crate) fn fits(params: &Params, network: &GateNetwork) -> bool {
    params.matrix(network.fc2[0]).plain().is_some()
}

/// A gate in an evaluation pass: a product, and then all the rest row by row.
pub(super) fn weigh_by_gate(
    params: &Params,
    x: &Var,
    network: &GateNetwork,
    experts: &Tensor,
    picked: Option<&Pick>,
    results: &mut Results,
) {
    let [fc1, b1] = network.fc1;
    let (second, b2) = second_layer(params, network);
    let (b1, tail) = (params.values(b1), Tail { second, b2, experts });
    let mut units = params.device().scratch_floats(x.rows() * b1.len());
    params.matrix(fc1).product(x.rows(), x.values(), &mut units, Precision::Full);
    let Results { gates, weights, .. } = &mut *results;
    let [of_units, of_gates, of_weights] =
        [b1.len(), experts.rows(), experts.cols()].map(|width| ROWS_PER_TASK * width);
    let tasks = units.par_chunks_mut(of_units).zip(gates.par_chunks_mut(of_gates));
    tasks.zip(weights.par_chunks_mut(of_weights)).for_each(|((units, gates), weights)| {
        vectorised(
            #[inline(always)]
            || {
                for units in units.chunks_exact_mut(b1.len()) {
                    units.iter_mut().zip(b1).for_each(|(unit, b)| *unit = math::tanh(*unit + b));
                }
                tail.weigh(units, gates, weights);
            },
        );
    });
    if let Some(pick) = picked {
        put_picked(experts, pick, None, results);
    }
}

/// W₂ and b₂ of a network that [`fits`].
pub(crate) fn second_layer<'a>(params: &'a Params, network: &GateNetwork) -> (&'a [f32], &'a [f32]) {
    let [fc2, b2] = network.fc2;
    (params.matrix(fc2).plain().expect("`fits` has looked"), params.values(b2))
}

/// A gate from its hidden units on.
pub(crate) struct Tail<'a, W> {
    /// W₂ `[E, hidden]`.
    pub(crate) second: &'a [W],
    pub(crate) b2: &'a [f32],
    /// M.
    pub(crate) experts: &'a Tensor,
}

impl<W: Weight> Tail<'_, W> {
    /// Gates and head weights of some rows.
    #[inline(always)]
    pub(crate) fn weigh(&self, units: &[f32], gates: &mut [f32], weights: &mut [f32]) {
        let Self { second, b2, experts } = *self;
        let (count, hidden) = (b2.len(), second.len() / b2.len());
        streamed::product([gates.len() / count, count, hidden], units, second, gates);
        for gates in gates.chunks_exact_mut(count) {
            gates.iter_mut().zip(b2).for_each(|(gate, b)| *gate += b);
            let highest = math::max(gates);
            gates.iter_mut().for_each(|gate| *gate -= highest);
        }
        // Of all rows at once, as most rows are shorter than a vector.
        gates.iter_mut().for_each(|gate| *gate = math::exp(*gate));
        for (gates, weights) in gates.chunks_exact_mut(count).zip(weights.chunks_exact_mut(experts.cols())) {
            let inverse = 1.0 / math::sum_by(gates, |gate| gate);
            gates.iter_mut().for_each(|gate| *gate *= inverse);
            mix_row(gates, experts, weights);
        }
    }
}

/// w = g·M.
#[inline(always)]
fn mix_row(gates: &[f32], experts: &Tensor, weights: &mut [f32]) {
    let (heads, experts) = (weights.len(), experts.values());
    let (blocks, rest) = weights.as_chunks_mut::<HEADS_AT_A_TIME>();
    let first_of_rest = blocks.len() * HEADS_AT_A_TIME;
    for (block, weights) in blocks.iter_mut().enumerate() {
        // A loop of a known length: its sums stay in a register.
        let mut sums = [0.0; HEADS_AT_A_TIME];
        for (g, experts) in gates.iter().zip(experts.chunks_exact(heads)) {
            let experts = &experts.as_chunks::<HEADS_AT_A_TIME>().0[block];
            sums.iter_mut().zip(experts).for_each(|(sum, m)| *sum = g.mul_add(*m, *sum));
        }
        *weights = sums;
    }
    for (head, w) in rest.iter_mut().enumerate() {
        let of_expert =
            gates.iter().zip(experts.chunks_exact(heads).map(|expert| expert[first_of_rest + head]));
        *w = of_expert.fold(0.0, |sum, (g, m)| g.mul_add(m, sum));
    }
}

/// Heads whose weights are mixed side by side.
const HEADS_AT_A_TIME: usize = 8;

pub(super) fn mix_backward(
    backward: &mut Backward<'_>,
    logits: &Var,
    experts: &Tensor,
    gates: &Tensor,
    dw: &[f32],
) {
    let (heads, count) = (experts.cols(), experts.rows());
    backward.input(logits, |dl, held| {
        for_rows(
            dl,
            count,
            #[inline(always)]
            |first, rows| {
                let mut dg = vec![0.0; count];
                for (i, dl) in rows.chunks_exact_mut(count).enumerate() {
                    let (g, dw) = (gates.row(first + i), &dw[(first + i) * heads..][..heads]);
                    for (e, dg) in dg.iter_mut().enumerate() {
                        *dg = math::dot(dw, experts.row(e));
                    }
                    let mean = math::dot(g, &dg);
                    for ((dl, g), dg) in dl.iter_mut().zip(g).zip(&dg) {
                        let value = g * (dg - mean);
                        *dl = if held { *dl + value } else { value };
                    }
                }
            },
        );
    });
}

/// `logits` `None`: all experts are equally likely.
pub(super) fn pick(
    logits: Option<&Var>,
    experts: &Tensor,
    pick: &Pick,
    stream: Option<Stream>,
    results: &mut Results,
) {
    let count = experts.rows();
    match logits {
        Some(logits) => softmax(logits, count, &mut results.gates),
        None => results.gates.fill(1.0 / count as f32),
    }
    put_picked(experts, pick, stream, results);
}

/// The rows of M that a pick chooses by the gates.
fn put_picked(experts: &Tensor, pick: &Pick, stream: Option<Stream>, results: &mut Results) {
    let (heads, [rows, count]) = (experts.cols(), results.shapes[0]);
    let chosen = choose(&results.gates, [rows, count], pick, stream);
    for (w, &expert) in results.weights.chunks_exact_mut(heads).zip(&chosen) {
        w.copy_from_slice(experts.row(expert as usize));
    }
}

fn softmax(logits: &Var, count: usize, gates: &mut [f32]) {
    gates.copy_from_slice(logits.values());
    for_rows(
        gates,
        count,
        #[inline(always)]
        |_, rows| {
            rows.chunks_exact_mut(count).for_each(|row| {
                math::softmax(row);
            });
        },
    );
}

/// The expert of each row; `stream` is there in training passes.
fn choose(gates: &[f32], [rows, count]: [usize; 2], pick: &Pick, stream: Option<Stream>) -> Vec<u32> {
    let gate = |row: usize| &gates[row * count..][..count];
    let draw = |row: usize| stream.expect("experts are drawn in training passes").uniform(row as u32, 0);
    match pick {
        Pick::Sample => (0..rows).map(|row| inverse_cdf(gate(row), draw(row))).collect(),
        Pick::SamplePerSentence(segments) => segments
            .ranges()
            .enumerate()
            .flat_map(|(sentence, range)| range.map(move |row| (sentence, row)))
            .map(|(sentence, row)| inverse_cdf(gate(row), draw(sentence)))
            .collect(),
        Pick::Argmax => (0..rows).map(|row| argmax(gate(row))).collect(),
        Pick::Fixed(expert) => vec![*expert; rows],
        Pick::Given(ids) => ids.values().to_vec(),
    }
}

/// The first index whose cumulative probability exceeds `u`.
fn inverse_cdf(gate: &[f32], u: f32) -> u32 {
    let mut sum = 0.0;
    let found = gate.iter().position(|g| {
        sum += g;
        u < sum
    });
    // Rounding can leave the sum a little below 1: then the last expert with any probability.
    found.unwrap_or_else(|| gate.iter().rposition(|&g| g > 0.0).unwrap_or(0)) as u32
}

/// The first index of the largest value.
fn argmax(gate: &[f32]) -> u32 {
    vectorised(
        #[inline(always)]
        || {
            let highest = math::max(gate);
            gate.iter().position(|&g| g == highest).unwrap_or(0) as u32
        },
    )
}
