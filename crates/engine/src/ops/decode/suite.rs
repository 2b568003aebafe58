//! Search: steps over caches while hypotheses move, attention to a memory, the best next tokens.

use super::{
    Continuations, Heads, InputWindow, KvCache, Lineage, LiveRow, Memory, Next, Room, RunningSum, SlotTensor,
    Spans, Symbols, continuations, log_probs,
};
use crate::device::{Device, Numbers};
use crate::ops::batch_norm::BatchNorm;
use crate::params::GroupId;
use crate::suite::{Case, Outcome, Quantity, Tolerance, gradient_of, random};
use crate::{Ids, Params, ParamsBuilder, Tape, Tensor, Var};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, width) in [(3, 5), (2, 16), (8, 64), (1, 128)] {
        let what = format!("{heads} heads, {width} wide");
        cases.push(Case::new("search steps", what, Tolerance::new(1e-2, 3e-5), move |device, numbers| {
            steps(device, numbers, heads, width)
        }));
    }
    for (types, count) in [(11, 3), (101, 10), (6_632, 10), (33_000, 8), (33_000, 70)] {
        let what = format!("{types} types, {count} best");
        cases.push(Case::new("continuations", what, Tolerance::new(1e-2, 3e-5), move |device, numbers| {
            best(device, numbers, types, count)
        }));
    }
    cases
}

/// Before each step: parents of the hypotheses that continue (doubled, swapped, dropped; `None` leaves them as they
/// are), and the number of those that begin.
pub(crate) const MOVES: [(Option<&[u32]>, usize); 12] = [
    (None, 3),
    (Some(&[0, 0, 1, 2, 2]), 0),
    (Some(&[4, 1, 0, 2, 3]), 1),
    (None, 0),
    (Some(&[2, 2, 0]), 2),
    (Some(&[1, 2, 4]), 0),
    (Some(&[1, 2]), 4),
    (Some(&[5, 2, 2]), 0),
    (Some(&[]), 2),
    (Some(&[1, 0]), 1),
    (None, 0),
    (None, 0),
];

/// Steps of self-attention over the cache, attention to a memory, a running gate, and gates over windows that slide and
/// that never fill. Hypotheses come and go, and there are more steps than the ring holds.
fn steps(device: &Device, numbers: Numbers, heads: usize, width: usize) -> Outcome {
    let (d, of_heads) = (heads * width, Heads { count: heads, width });
    let (params, norm) = batch_norm(device, d);
    let mut tape = Tape::evaluation(&params);
    let room = Room { rows: 7, steps: 8 };
    let (mut cache, mut lineage) = (KvCache::new(device, room, d), Lineage::new(device, room));
    let [mut sum, mut sum_of_normed] = [0; 2].map(|_| RunningSum::new(device, room, d));
    let mut windows = [1, 3, 100].map(|window| InputWindow::new(device, window, room, d));
    let (mut memory, spans) = three_sources(&mut tape, numbers, d);
    let mut outcome = Outcome::new();
    for (step, (parents, begin)) in MOVES.iter().enumerate() {
        if let Some(parents) = parents {
            lineage.reorder(parents);
        }
        lineage.begin(*begin);
        lineage.load();
        let (rows, stream) = (lineage.rows(), 10 * (step as u32 + 1));
        let qkv = Var::constant(activations(device, numbers, stream, [rows, 3 * d]));
        let x = Var::constant(activations(device, numbers, stream + 1, [rows, d]));
        let weights = head_weights(device, rows, heads);
        tape.advance(&mut lineage, rows);
        tape.store_kv(&qkv, d, &mut cache, &lineage);
        let own = tape.attention_cached(&qkv, of_heads, &cache, &lineage, Some(&weights));
        let whose = Ids::from_host(device, &(0..rows as u32).map(|row| row % 3).collect::<Vec<_>>());
        let [first, last] = [0, 1].map(|part| {
            let memory = Memory { kv: memory.tensor(), part, spans: &spans, sentences: &whose };
            tape.attention_memory(&x, of_heads, &memory, None)
        });
        let mean = tape.running_step(&x, &mut sum, &lineage, None);
        let normed = tape.running_step(&x, &mut sum_of_normed, &lineage, Some(norm));
        let memories = [("memory", first.tensor()), ("other memory", last.tensor())];
        let results = [("cached", own.tensor()), ("gate", &mean), ("normed gate", &normed)];
        for (name, tensor) in memories.into_iter().chain(results) {
            outcome.push(Quantity::value(format!("{name} {step}"), d, tensor.to_host()));
        }
        for (i, window) in windows.iter_mut().enumerate() {
            let mean = tape.window_step(&x, window, &lineage);
            outcome.push(Quantity::value(format!("window {i} {step}"), d, mean.to_host()));
        }
        // A row of the memory changes hands.
        let new = activations(device, numbers, stream + 2, [1, 4 * d]);
        tape.put(&mut memory, &new, &Ids::from_host(device, &[9 + step as u32]));
        lineage.count_step();
    }
    outcome
}

/// A batch norm of `width` columns that changes every number.
fn batch_norm(device: &Device, width: usize) -> (Params, BatchNorm) {
    let mut builder = ParamsBuilder::default();
    let mut vector = |name: &str| builder.vector(name.into(), width, GroupId(0));
    let norm = BatchNorm {
        weight: vector("weight"),
        bias: vector("bias"),
        running_mean: vector("mean"),
        running_var: vector("variance"),
    };
    let mut params = builder.finish(device);
    for (name, least) in [("weight", 0.5), ("bias", -0.5), ("mean", -0.2), ("variance", 0.3)] {
        let values: Vec<f32> = (0..width).map(|i| least + (i % 5) as f32 / 4.0).collect();
        params.set(name, &values).expect("the block is there");
    }
    (params, norm)
}

/// Keys and values of three sources for two attentions side by side; a source has one token, and there is room between
/// them.
fn three_sources(tape: &mut Tape<'_>, numbers: Numbers, width: usize) -> (SlotTensor, Spans) {
    let device = &tape.device().clone();
    let mut memory = SlotTensor::activations(device, [60, 4 * width]);
    let rows: Vec<u32> = (9..49).chain([50]).chain(51..58).collect();
    let values = activations(device, numbers, 1, [rows.len(), 4 * width]);
    tape.put(&mut memory, &values, &Ids::from_host(device, &rows));
    let mut spans = Spans::new(device, 3);
    spans.set([(0, 9, 49), (1, 50, 51), (2, 51, 58)]);
    (memory, spans)
}

/// Scores of the best continuations of two groups of rows, and of the ends of two more; all rows on the host.
fn best(device: &Device, numbers: Numbers, types: usize, count: usize) -> Outcome {
    let logits = activations(device, numbers, 1, [8, types]);
    let nexts = [Next::Any, Next::Any, Next::Words, Next::Words, Next::Any, Next::End, Next::End];
    let live = |(row, next): (usize, &Next)| LiveRow {
        score: -0.5 * row as f32,
        unknown_penalty: [0.7, -1.5, 0.0][row % 3],
        next: *next,
    };
    let live: Vec<LiveRow> = nexts.iter().enumerate().map(live).collect();
    let symbols = Symbols { pad: 1, end: 2, unknown: 3 };
    let groups = [0..2, 2..5, 5..6, 6..7, 4..7];
    let found = continuations(&logits, &live, &groups, count, symbols).and_then(Continuations::ranked);
    let mut outcome = Outcome::new();
    for (group, candidates) in found.unwrap_or_default().iter().enumerate() {
        let scores: Vec<f32> = candidates.iter().map(|candidate| candidate.score).collect();
        outcome.push(Quantity::value(format!("scores {group}"), 1, scores));
    }
    for temperature in [1.0, 0.7] {
        let rows = log_probs(&logits, 7, temperature);
        outcome.push(Quantity::value(format!("rows at temperature {temperature}"), types, rows));
    }
    outcome
}

/// Every third head of a row weighs nothing.
fn head_weights(device: &Device, rows: usize, heads: usize) -> Tensor {
    let weight = |i: usize| if i.is_multiple_of(3) { 0.0 } else { 0.5 + (i % 5) as f32 / 5.0 };
    Tensor::from_host(device, [rows, heads], &(0..rows * heads).map(weight).collect::<Vec<_>>())
}

pub(crate) fn activations(
    device: &Device,
    numbers: Numbers,
    stream: u32,
    [rows, cols]: [usize; 2],
) -> Tensor {
    let room = Var::constant(Tensor::new([rows, cols], device.scratch(rows * cols)));
    let values = random(numbers, stream, rows * cols);
    Tensor::new([rows, cols], gradient_of(device, &room, &values))
}
