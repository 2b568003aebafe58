//! Projections with gates beside them, step by step.

use super::{Gated, GatedProjection};
use crate::device::{Device, Numbers};
use crate::ops::batch_norm::BatchNorm;
use crate::ops::decode::suite::{MOVES, activations};
use crate::ops::decode::{Heads, KvCache, Lineage, Room};
use crate::ops::mixture::GateNetwork;
use crate::params::GroupId;
use crate::suite::{Case, Outcome, Quantity, Tolerance, random};
use crate::{Params, ParamsBuilder, Tape, Tensor, Var};

pub(crate) fn cases() -> Vec<Case> {
    // Heads, their width, hidden units, experts: as in the paper, several runs of a lane, and sizes that the kernels
    // cannot take.
    let sizes =
        [[8, 64, 256, 8], [2, 16, 24, 2], [8, 8, 600, 28], [8, 16, 1_016, 8], [3, 5, 8, 3], [2, 8, 13, 2]];
    let case = |[heads, width, hidden, experts]: [usize; 4]| {
        let what = format!("{heads} heads, {width} wide, {hidden} hidden units, {experts} experts");
        Case::new("gated projection", what, Tolerance::new(2e-2, 3e-5), move |device, numbers| {
            steps(device, numbers, [heads, width, hidden, experts])
        })
    };
    sizes.map(case).into()
}

/// Steps of self-attention with a gate, and of a query with one. Hypotheses come and go.
fn steps(device: &Device, numbers: Numbers, [heads, width, hidden, experts]: [usize; 4]) -> Outcome {
    let d = heads * width;
    let (params, [with_keys, alone]) = gates(device, numbers, d, [hidden, experts]);
    let matrix = |i: usize| if i / heads % heads == i % heads { 0.0 } else { 1.25 };
    let values: Vec<f32> = (0..experts * heads).map(matrix).collect();
    let matrix = Tensor::from_host(device, [experts, heads], &values);
    let mut tape = Tape::evaluation(&params);
    let room = Room { rows: 7, steps: 8 };
    let (mut cache, mut lineage) = (KvCache::new(device, room, d), Lineage::new(device, room));
    let [mut own, mut query] = [with_keys, alone].map(|gated| GatedProjection::new(&params, gated, room));
    let mut outcome = Outcome::new();
    for (step, (parents, begin)) in MOVES.iter().enumerate() {
        if let Some(parents) = parents {
            lineage.reorder(parents);
        }
        lineage.begin(*begin);
        lineage.load();
        if lineage.steps() == 0 {
            own.refresh(&params);
            query.refresh(&params);
        }
        let rows = lineage.rows();
        let x = Var::constant(activations(device, numbers, 10 * (step as u32 + 1), [rows, d]));
        tape.advance(&mut lineage, rows);
        let (qkv, weights) = tape.project_gated(&x, &mut own, &matrix, &lineage, Some((&mut cache, d)));
        let heads_of = Heads { count: heads, width };
        let context = tape.attention_cached(&qkv, heads_of, &cache, &lineage, Some(&weights));
        let (q, weights_of_query) = tape.project_gated(&x, &mut query, &matrix, &lineage, None);
        lineage.count_step();
        for (name, weights) in [("weights", &weights), ("weights of a query", &weights_of_query)] {
            outcome.push(Quantity::value(format!("{name} {step}"), heads, weights.to_host()));
        }
        outcome.push(Quantity::value(format!("context {step}"), d, context.tensor().to_host()));
        let first = |row: &[f32]| row[..d].to_vec();
        let queries = q.tensor().to_host().chunks_exact(q.cols()).flat_map(first).collect();
        outcome.push(Quantity::value(format!("query {step}"), d, queries));
    }
    outcome
}

/// A projection to queries, keys and values and one to queries, with a gate each.
fn gates(device: &Device, numbers: Numbers, d: usize, [hidden, experts]: [usize; 2]) -> (Params, [Gated; 2]) {
    let (mut builder, group) = (ParamsBuilder::default(), GroupId(0));
    let mut names = Vec::new();
    let gated = ["own", "query"].map(|name| {
        let projected = if name == "own" { 3 * d } else { d };
        let mut linear = |part: &str, [rows, cols]: [usize; 2]| {
            names.push((format!("{name}.{part}.weight"), rows * cols, 0.5 / (cols as f32).sqrt(), 0.0));
            names.push((format!("{name}.{part}.bias"), rows, 0.2, 0.0));
            [
                builder.matrix(format!("{name}.{part}.weight"), [rows, cols], group),
                builder.vector(format!("{name}.{part}.bias"), rows, group),
            ]
        };
        let (projection, fc1) = (linear("projection", [projected, d]), linear("fc1", [hidden, d]));
        let network = GateNetwork { fc1, fc2: linear("fc2", [experts, hidden]), dropout: 0.1 };
        let mut vector = |part: &str, scale: f32, least: f32| {
            names.push((format!("{name}.{part}"), d, scale, least));
            builder.vector(format!("{name}.{part}"), d, group)
        };
        let norm = BatchNorm {
            weight: vector("norm.weight", 0.2, 1.0),
            bias: vector("norm.bias", 0.2, 0.0),
            running_mean: vector("norm.mean", 0.3, 0.0),
            running_var: vector("norm.variance", 0.1, 0.8),
        };
        Gated { projection, norm, network }
    });
    let mut params = builder.finish(device);
    for (stream, (name, len, scale, least)) in names.into_iter().enumerate() {
        let values: Vec<f32> =
            random(numbers, 100 + stream as u32, len).iter().map(|v| least + scale * v).collect();
        let values: Vec<f32> = match name.ends_with("variance") {
            true => values.iter().map(|v| v.abs() + 0.1).collect(),
            false => values,
        };
        params.set(&name, &values).expect("the block is there");
    }
    (params, gated)
}
