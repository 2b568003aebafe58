//! Search: steps over caches while hypotheses move, attention to a memory, the best next tokens.

use super::{Constraints, InputWindow, KvCache, Lineage, Room, RunningSum, continuations, log_probs};
use crate::device::{Device, Numbers};
use crate::suite::{Case, Outcome, Quantity, Tolerance, gradient_of, random, starts};
use crate::{Ids, ParamsBuilder, Segments, Tape, Tensor, Var};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, width) in [(3, 5), (2, 16), (8, 64), (1, 128)] {
        let what = format!("{heads} heads, {width} wide");
        cases.push(Case::new("search steps", what, Tolerance::new(1e-2, 3e-5), move |device, numbers| {
            steps(device, numbers, heads, width)
        }));
    }
    for (types, count) in [(11, 3), (101, 10), (6_632, 10), (33_000, 8)] {
        let what = format!("{types} types, {count} best");
        cases.push(Case::new("continuations", what, Tolerance::new(1e-2, 3e-5), move |device, numbers| {
            best(device, numbers, types, count)
        }));
    }
    cases
}

/// Parents of the hypotheses of the next step: doubled, swapped, dropped.
const ORDERS: [&[u32]; 6] = [&[0, 0, 1, 2, 2], &[4, 1, 0, 2, 3], &[0, 1, 2, 3, 4], &[2, 2, 0], &[1, 2], &[1]];

/// Six steps of self-attention over the cache, attention to a memory of three sentences, a running gate, and gates over
/// windows that slide and that never fill.
fn steps(device: &Device, numbers: Numbers, heads: usize, width: usize) -> Outcome {
    let d = heads * width;
    let params = ParamsBuilder::default().finish(device);
    let mut tape = Tape::evaluation(&params);
    let room = Room { rows: 7, steps: ORDERS.len() };
    let (mut cache, mut lineage) = (KvCache::new(device, room, d), Lineage::new(device, room, 3));
    let mut sum = RunningSum::new(device, room, d);
    let mut windows = [1, 3, 100].map(|window| InputWindow::new(device, window, room, d));
    let boundaries = starts(&[40, 1, 7]);
    let keys = Segments::from_host(device, &boundaries);
    let memory = activations(device, numbers, 1, [keys.rows(), 2 * d]);
    let (mut sentences, mut outcome) = (vec![0, 1, 2], Outcome::new());
    for (step, order) in ORDERS.iter().enumerate() {
        let (rows, stream) = (sentences.len(), 10 * (step as u32 + 1));
        let qkv = Var::constant(activations(device, numbers, stream, [rows, 3 * d]));
        let x = Var::constant(activations(device, numbers, stream + 1, [rows, d]));
        let weights = head_weights(device, rows, heads);
        tape.advance(&mut lineage, rows);
        let own = tape.attention_cached(&qkv, heads, &mut cache, &lineage, Some(&weights));
        let whose = Ids::from_host(device, &sentences);
        let other = tape.attention_memory(&x, heads, &memory, &keys, &whose, None);
        let mean = tape.running_step(&x, &mut sum, &lineage);
        for (name, tensor) in [("cached", own.tensor()), ("memory", other.tensor()), ("gate", &mean)] {
            outcome.push(Quantity::value(format!("{name} {step}"), d, tensor.to_host()));
        }
        for (i, window) in windows.iter_mut().enumerate() {
            let mean = tape.window_step(&x, window, &lineage);
            outcome.push(Quantity::value(format!("window {i} {step}"), d, mean.to_host()));
        }
        lineage.count_step();
        lineage.reorder(order);
        sum.reorder(&mut tape, order);
        sentences = order.iter().map(|&parent| sentences[parent as usize]).collect();
    }
    outcome
}

/// Scores of the best continuations of two groups of rows, and of the ends of two more; all rows on the host.
fn best(device: &Device, numbers: Numbers, types: usize, count: usize) -> Outcome {
    let logits = activations(device, numbers, 1, [8, types]);
    let scores: Vec<f32> = (0..7).map(|row| -0.5 * row as f32).collect();
    let constraints = Constraints { forbidden: vec![1, 4], penalties: vec![(3, 0.7), (0, -1.5)] };
    let found = continuations(&logits, &scores, [&[0..2, 2..5], &[5..6, 6..7]], count, &constraints, 2);
    let mut outcome = Outcome::new();
    for (group, candidates) in found.open.iter().chain(&found.closed).enumerate() {
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

fn activations(device: &Device, numbers: Numbers, stream: u32, [rows, cols]: [usize; 2]) -> Tensor {
    let room = Var::constant(Tensor::new([rows, cols], device.scratch(rows * cols)));
    let values = random(numbers, stream, rows * cols);
    Tensor::new([rows, cols], gradient_of(device, &room, &values))
}
