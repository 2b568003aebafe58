//! The CPU's implementation.

use rayon::prelude::*;

use super::{GateNetwork, Pick, Results};
use crate::cpu::gemm::{Into, Mat, Precision, gemm};
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

/// Rows of a gate that one task takes: the same for any number of rows and threads, as products of few rows and of many
/// round otherwise.
const ROWS_PER_TASK: usize = 16;

/// True if [`weigh_by_gate`] can compute this network: its second layer is small, as that of most gates.
pub(crate) fn fits(params: &Params, network: &GateNetwork) -> bool {
    params.matrix(network.fc2[0]).plain().is_some()
}

/// A gate in an evaluation pass: a product, and then all the rest for some rows at a time.
pub(super) fn weigh_by_gate(
    params: &Params,
    x: &Var,
    network: &GateNetwork,
    experts: &Tensor,
    picked: Option<&Pick>,
    results: &mut Results,
) {
    let [fc1, b1] = network.fc1;
    let b1 = params.values(b1);
    let mut units = params.device().scratch_floats(x.rows() * b1.len());
    params.matrix(fc1).product(x.rows(), x.values(), &mut units, Precision::Full);
    weigh_units(params, (&mut units, b1, math::tanh), network, experts, results);
    if let Some(pick) = picked {
        put_picked(experts, pick, None, results);
    }
}

/// A gate from the sums of its hidden units on, to which `b1` is still to be added; mixes all experts.
pub(crate) fn weigh_units(
    params: &Params,
    (units, b1, tanh): (&mut [f32], &[f32], impl Fn(f32) -> f32 + Sync),
    network: &GateNetwork,
    experts: &Tensor,
    results: &mut Results,
) {
    let [fc2, b2] = network.fc2;
    let (second, b2) = (params.matrix(fc2).plain().expect("`fits` has looked"), params.values(b2));
    let (hidden, (heads, count)) = (b1.len(), (experts.cols(), experts.rows()));
    let weigh = |units: &mut [f32], gates: &mut [f32], weights: &mut [f32]| {
        let rows = units.len() / hidden;
        vectorised(
            #[inline(always)]
            || {
                for units in units.chunks_exact_mut(hidden) {
                    units.iter_mut().zip(b1).for_each(|(unit, b)| *unit = tanh(*unit + b));
                }
            },
        );
        let (units, second) = (Mat::new(units, hidden), Mat::new(second, hidden).t());
        gemm([rows, count, hidden], units, second, gates, Into::Overwrite, Precision::Full);
        vectorised(
            #[inline(always)]
            || {
                for (gates, weights) in gates.chunks_exact_mut(count).zip(weights.chunks_exact_mut(heads)) {
                    gates.iter_mut().zip(b2).for_each(|(gate, b)| *gate += b);
                    math::softmax(gates);
                    mix_row(gates, experts, weights);
                }
            },
        );
    };
    let rows = units.len() / hidden;
    let Results { gates, weights, .. } = results;
    let [of_units, of_gates, of_weights] = [hidden, count, heads].map(|width| ROWS_PER_TASK * width);
    if rows <= 2 * ROWS_PER_TASK {
        let tasks = units.chunks_mut(of_units).zip(gates.chunks_mut(of_gates));
        tasks.zip(weights.chunks_mut(of_weights)).for_each(|((units, gates), w)| weigh(units, gates, w));
    } else {
        let tasks = units.par_chunks_mut(of_units).zip(gates.par_chunks_mut(of_gates));
        tasks.zip(weights.par_chunks_mut(of_weights)).for_each(|((units, gates), w)| weigh(units, gates, w));
    }
}

/// w = g·M.
#[inline(always)]
fn mix_row(gates: &[f32], experts: &Tensor, weights: &mut [f32]) {
    weights.fill(0.0);
    for (e, g) in gates.iter().enumerate() {
        weights.iter_mut().zip(experts.row(e)).for_each(|(w, m)| *w = g.mul_add(*m, *w));
    }
}

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
