//! The CPU's implementation.

use super::{Pick, Results};
use crate::cpu::{for_rows, math, vectorised};
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
                w.fill(0.0);
                for (e, g) in gates[(first + i) * count..][..count].iter().enumerate() {
                    w.iter_mut().zip(experts.row(e)).for_each(|(w, m)| *w = g.mul_add(*m, *w));
                }
            }
        },
    );
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
    let (heads, count) = (experts.cols(), experts.rows());
    match logits {
        Some(logits) => softmax(logits, count, &mut results.gates),
        None => results.gates.fill(1.0 / count as f32),
    }
    let rows = results.shapes[0][0];
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
