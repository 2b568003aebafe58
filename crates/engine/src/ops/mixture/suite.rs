//! From gate logits to head weights.

use super::{GateNetwork, Pick};
use crate::Tensor;
use crate::ops::embed::suite::tokens;
use crate::suite::{Case, OpCase, Per, Scene, starts};

/// Experts and heads: as in the paper (one of 8 heads left out, two of 8), and sizes that fill no warp.
const SIZES: [[usize; 2]; 5] = [[8, 8], [28, 8], [3, 5], [37, 2], [10, 40]];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in SIZES {
        for rows in [1, 7, 131] {
            cases.push(mix(rows, size, std::convert::identity));
        }
        for how in [How::Sample, How::SamplePerSentence, How::Argmax, How::Fixed, How::Given] {
            cases.push(pick(&[4, 0, 1, 30], size, how, Gated::Yes, std::convert::identity));
        }
    }
    cases.push(mix(50, [8, 8], OpCase::with_room));
    cases.push(pick(&[4, 0, 1, 30], [28, 8], How::Given, Gated::No, std::convert::identity));
    for how in [How::Sample, How::SamplePerSentence] {
        cases.push(pick(&[4, 0, 1, 30], [8, 8], how, Gated::Yes, OpCase::with_room));
        cases.push(pick(&[4, 0, 1, 30], [8, 8], how, Gated::No, std::convert::identity));
        cases.push(pick(&[1_000, 2_300], [8, 8], how, Gated::Yes, OpCase::large));
        cases.push(pick_by_gate([24, 64, 8], 0.1, how, OpCase::with_room));
    }
    for how in [How::Sample, How::SamplePerSentence, How::Argmax, How::Fixed, How::Given] {
        for dropout in [0.0, 0.3] {
            for size in [[7, 5, 3], [40, 67, 8], [512, 256, 8]] {
                cases.push(pick_by_gate(size, dropout, how, std::convert::identity));
            }
        }
    }
    for size in [[7, 5, 3], [40, 67, 8], [512, 256, 8], [64, 300, 28]] {
        for heads in [size[2], 40] {
            cases.push(mix_by_gate(size, heads));
        }
    }
    cases
}

/// M: expert e leaves head e (modulo the heads) out.
fn experts(s: &Scene<'_>, [experts, heads]: [usize; 2]) -> Tensor {
    let kept = heads as f32 / (heads - 1) as f32;
    s.constant(Per::Nothing, [experts, heads], |i| if i / heads % heads == i % heads { 0.0 } else { kept })
}

fn mix(rows: usize, [count, heads]: [usize; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("mix_experts", format!("{rows} rows, {count} experts, {heads} heads"));
    adapt(case.input("logits", Per::Row, [rows, count])).body(move |s| {
        let (logits, experts) = (s.input("logits"), experts(s, [count, heads]));
        let mix = s.tape.mix_experts(&logits, &experts);
        s.output("weights", Per::Row, &mix.weights);
        s.value("gates", &mix.gates);
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Sample,
    SamplePerSentence,
    Argmax,
    Fixed,
    Given,
}

impl How {
    fn pick(self, s: &Scene<'_>, starts: &[u32], experts: usize) -> Pick {
        match self {
            Self::Sample => Pick::Sample,
            Self::SamplePerSentence => Pick::SamplePerSentence(s.segments(starts)),
            Self::Argmax => Pick::Argmax,
            Self::Fixed => Pick::Fixed(experts as u32 - 1),
            Self::Given => Pick::Given(s.ids(&given(starts, experts))),
        }
    }
}

/// An expert for each row.
fn given(starts: &[u32], experts: usize) -> Vec<u32> {
    tokens(starts[starts.len() - 1] as usize, experts, 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gated {
    Yes,
    No,
}

fn pick(
    lengths: &[u32],
    [count, heads]: [usize; 2],
    how: How,
    gated: Gated,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let starts = starts(lengths);
    let rows = starts[lengths.len()] as usize;
    let gates = if gated == Gated::Yes { "" } else { ", no gates" };
    let case =
        OpCase::new("pick_experts", format!("{how:?}, {rows} rows, {count} experts, {heads} heads{gates}"));
    adapt(case.input("logits", Per::Row, [rows, count]).fixed()).body(move |s| {
        let (pick, experts) = (how.pick(s, &starts, count), experts(s, [count, heads]));
        let mix = match gated {
            Gated::Yes => {
                let logits = s.input("logits");
                s.tape.pick_experts(&logits, &experts, &pick)
            }
            Gated::No => s.tape.pick_ungated(s.rows(Per::Row, rows), &experts, &pick),
        };
        s.value("weights", mix.weights.tensor());
        s.value("gates", &mix.gates);
    })
}

/// A gate's network and a pick in one op; sizes: width, hidden units, experts (and heads). Where gates are rounded, a
/// draw may fall to another expert: each device is held to its own gates.
fn pick_by_gate(
    [width, hidden, count]: [usize; 3],
    dropout: f32,
    how: How,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let starts = starts(&[4, 0, 1, 30]);
    let rows = starts[4] as usize;
    let what =
        format!("{how:?}, {rows} rows of {width}, {hidden} hidden units, {count} experts, dropout {dropout}");
    let fan_in = |inputs: usize| move |_, random: f32| random / (inputs as f32).sqrt();
    let case = OpCase::new("pick_by_gate", what).input("x", Per::Row, [rows, width]).fixed();
    let case =
        case.param("fc1", [hidden, width]).fill(fan_in(width)).fixed().param("b1", [1, hidden]).fixed();
    let case =
        case.param("fc2", [count, hidden]).fill(fan_in(hidden)).fixed().param("b2", [1, count]).fixed();
    adapt(case).body(move |s| {
        let (x, pick, experts) = (s.input("x"), how.pick(s, &starts, count), experts(s, [count, count]));
        let [fc1, fc2] = [["fc1", "b1"], ["fc2", "b2"]].map(|layer| layer.map(|name| s.param(name)));
        let mix = s.tape.pick_by_gate(&x, &GateNetwork { fc1, fc2, dropout }, &experts, &pick);
        s.value("gates", &mix.gates);
        let (gates, weights) = (mix.gates.to_host(), mix.weights.tensor().to_host());
        let wrong = (0..rows).filter(|&row| {
            let expert = how.expert(s, row, &gates[row * count..][..count], &starts);
            // The heads of an expert are all but its own.
            weights[row * count..][..count]
                .iter()
                .enumerate()
                .any(|(head, w)| (*w == 0.0) != (head == expert))
        });
        s.numbers("wrong picks", &[wrong.count() as f64]);
    })
}

/// A gate's network and the mixture in one op, without a gradient; sizes: width, hidden units, experts.
fn mix_by_gate([width, hidden, count]: [usize; 3], heads: usize) -> Case {
    let rows = 35;
    let what = format!("{rows} rows of {width}, {hidden} hidden units, {count} experts, {heads} heads");
    let fan_in = |inputs: usize| move |_, random: f32| random / (inputs as f32).sqrt();
    let case = OpCase::new("mix_by_gate", what).input("x", Per::Row, [rows, width]).fixed();
    let case =
        case.param("fc1", [hidden, width]).fill(fan_in(width)).fixed().param("b1", [1, hidden]).fixed();
    let case =
        case.param("fc2", [count, hidden]).fill(fan_in(hidden)).fixed().param("b2", [1, count]).fixed();
    case.body(move |s| {
        let (x, experts) = (s.input("x"), experts(s, [count, heads]));
        let [fc1, fc2] = [["fc1", "b1"], ["fc2", "b2"]].map(|layer| layer.map(|name| s.param(name)));
        let mix = s.tape.mix_by_gate(&x, &GateNetwork { fc1, fc2, dropout: 0.2 }, &experts);
        s.value("gates", &mix.gates);
        s.value("weights", mix.weights.tensor());
    })
}

impl How {
    /// The expert that a row with these gates must take.
    fn expert(self, s: &Scene<'_>, row: usize, gates: &[f32], starts: &[u32]) -> usize {
        // The third random op: two layers come before.
        let draw = |place: usize| s.rng.stream(2).uniform(place as u32, 0);
        let first_above = |draw: f32| {
            let mut sum = 0.0;
            let found = gates.iter().position(|gate| {
                sum += gate;
                draw < sum
            });
            found.unwrap_or(gates.len() - 1)
        };
        match self {
            Self::Sample => first_above(draw(row)),
            Self::SamplePerSentence => {
                first_above(draw(starts.partition_point(|&start| start as usize <= row) - 1))
            }
            Self::Argmax => {
                (0..gates.len()).rev().max_by(|&a, &b| gates[a].total_cmp(&gates[b])).unwrap_or(0)
            }
            Self::Fixed => gates.len() - 1,
            Self::Given => given(starts, gates.len())[row] as usize,
        }
    }
}
