//! Projections and attention with gates on the CPU.

use super::*;
use crate::ops::decode::{Memory, SlotTensor, Spans};
use crate::params::{ComputeType, GroupId};
use crate::{Device, Ids, ParamsBuilder, Rng};

const SIZES: [usize; 3] = [64, 256, 4];

/// A projection to queries, keys and values with a gate, in this number type; `shift` changes the norm.
fn gated(compute: ComputeType, shift: f32) -> (Params, Gated) {
    let [width, hidden, experts] = SIZES;
    let (mut builder, group) = (ParamsBuilder::default(), GroupId(0));
    let mut sizes = Vec::new();
    let mut block = |name: &str, rows: usize, cols: usize| {
        sizes.push((name.to_owned(), rows * cols));
        match cols {
            1 => builder.vector(name.into(), rows, group),
            _ => builder.matrix(name.into(), [rows, cols], group),
        }
    };
    let gated = Gated {
        projection: [block("w", 3 * width * 2, width), block("b", 3 * width * 2, 1)],
        norm: BatchNorm {
            weight: block("gamma", width, 1),
            bias: block("beta", width, 1),
            running_mean: block("mean", width, 1),
            running_var: block("variance", width, 1),
        },
        network: GateNetwork {
            fc1: [block("w1", hidden, width), block("b1", hidden, 1)],
            fc2: [block("w2", experts, hidden), block("b2", experts, 1)],
            dropout: 0.1,
        },
    };
    let mut params = builder.finish(&Device::cpu().holding(compute).unwrap());
    for (i, (name, len)) in sizes.iter().enumerate() {
        let stream = Rng::new(5, 0).stream(i as u32);
        let value = |j: u32| match name.as_str() {
            "variance" => 0.5 + stream.uniform(j, 0),
            "mean" => shift * stream.normal(j, 0),
            _ => 0.2 * stream.normal(j, 0),
        };
        params.set(name, &(0..*len as u32).map(value).collect::<Vec<_>>()).unwrap();
    }
    (params, gated)
}

/// Head weights and projections of five steps in which hypotheses change places; `rows` of them.
fn steps(params: &Params, state: &mut GatedProjection, rows: usize) -> Vec<Vec<f32>> {
    let device = params.device();
    let matrix: Vec<f32> = (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { 4.0 / 3.0 }).collect();
    let experts = Tensor::from_host(device, [4, 4], &matrix);
    let mut lineage = Lineage::new(device, Room { rows, steps: 5 });
    let (mut tape, mut found) = (Tape::evaluation(params), Vec::new());
    lineage.begin(rows);
    state.refresh(params);
    for step in 0..5 {
        if step == 2 {
            lineage.reorder(&(0..rows as u32).map(|row| row / 2).rev().collect::<Vec<_>>());
        }
        let stream = Rng::new(6, 0).stream(step);
        let values: Vec<f32> = (0..(rows * SIZES[0]) as u32).map(|i| stream.normal(i, 0)).collect();
        let x = Var::constant(Tensor::from_host(device, [rows, SIZES[0]], &values));
        tape.advance(&mut lineage, rows);
        let (projected, weights) = tape.project_gated(&x, state, &experts, &lineage, None);
        lineage.count_step();
        found.extend([projected.tensor().to_host(), weights.to_host()]);
    }
    found
}

#[test]
fn products_at_once_are_those_one_after_the_other() {
    // Beside 8 bits the first layer of a gate has 4; these gates are small and sharp, which makes the most of it.
    let cases = [(ComputeType::F32, 1e-5), (ComputeType::Bf16, 2e-2), (ComputeType::Int8, 0.15)];
    for ((compute, tolerance), rows) in cases.into_iter().flat_map(|case| [(case, 3), (case, 40)]) {
        let room = Room { rows, steps: 5 };
        let (params, gated) = gated(compute, 0.3);
        let mut folded = GatedProjection::new(&params, gated, room);
        assert!(matches!(folded.folded, Folded::Cpu(_)));
        let sum = RunningSum::new(params.device(), room, SIZES[0]);
        let mut plain = GatedProjection { gated, folded: Folded::Not(sum) };
        let (found, wanted) = (steps(&params, &mut folded, rows), steps(&params, &mut plain, rows));
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let far = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // Projections are the same to the bit.
            let allowed = if i % 2 == 0 { 0.0 } else { tolerance };
            assert!(far <= allowed, "{compute}, {rows} rows, {i}: {far}");
        }
    }
}

/// Attention to the steps and to two sources, of `rows` hypotheses that change places.
fn attended(params: &Params, gated: Gated, rows: usize) -> Vec<Vec<f32>> {
    let (device, heads) = (params.device(), Heads { count: 4, width: 2 * SIZES[0] / 4 });
    let (d, room) = (heads.count * heads.width, Room { rows, steps: 4 });
    let normal = |seed: u64, len: usize| -> Vec<f32> {
        (0..len as u32).map(|i| Rng::new(seed, 0).stream(0).normal(i, 0)).collect()
    };
    let matrix: Vec<f32> = (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { 4.0 / 3.0 }).collect();
    let experts = Tensor::from_host(device, [4, 4], &matrix);
    let mut sources = SlotTensor::floats(device, [7, 2 * d]);
    let (mut tape, mut spans) = (Tape::evaluation(params), Spans::new(device, 2));
    let values = Tensor::from_host(device, [7, 2 * d], &normal(1, 7 * 2 * d));
    tape.put(&mut sources, &values, &Ids::from_host(device, &[0, 1, 2, 3, 4, 5, 6]));
    spans.set([(0, 0, 3), (1, 3, 7)]);
    let sentences: Vec<u32> = (0..rows as u32).map(|row| row % 2).collect();
    let sentences = Ids::from_host(device, &sentences);
    let mut states = [0; 2].map(|_| GatedProjection::new(params, gated, room));
    let (mut cache, mut lineage) = (KvCache::new(device, room, d), Lineage::new(device, room));
    let mut found = Vec::new();
    lineage.begin(rows);
    for step in 0..4 {
        if step == 2 {
            lineage.reorder(&(0..rows as u32).map(|row| row / 2).rev().collect::<Vec<_>>());
        }
        let values = normal(2 + step, rows * SIZES[0]);
        let x = Var::constant(Tensor::from_host(device, [rows, SIZES[0]], &values));
        tape.advance(&mut lineage, rows);
        let memory = Memory { kv: sources.tensor(), part: 0, spans: &spans, sentences: &sentences };
        for (state, keys) in states.iter_mut().zip([Keys::Steps(&mut cache), Keys::Memory(memory)]) {
            let context = tape.attend_gated(&x, state, &experts, &lineage, (heads, keys));
            found.push(context.tensor().to_host());
        }
        lineage.count_step();
    }
    found
}

#[test]
fn a_gate_beside_attention_weighs_heads_as_one_before_it() {
    let pool = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for compute in [ComputeType::F32, ComputeType::Bf16, ComputeType::Int8] {
        let (params, gated) = gated(compute, 0.3);
        // One thread computes one after the other; so do several, for many rows.
        let [one, three] = [1, 3]
            .map(|threads| pool(threads).install(|| [1, 5, 40].map(|rows| attended(&params, gated, rows))));
        assert!(one.iter().flatten().flatten().all(|value| value.is_finite()));
        assert_eq!(one, three, "{compute}");
    }
}

#[test]
fn changed_parameters_are_taken_over_by_the_next_search() {
    let (mut params, gated_by) = gated(ComputeType::F32, 0.3);
    let mut state = GatedProjection::new(&params, gated_by, Room { rows: 3, steps: 5 });
    let before = steps(&params, &mut state, 3);
    let (other, _) = gated(ComputeType::F32, -2.0);
    params.set("mean", &other.get("mean").unwrap()).unwrap();
    let after = steps(&params, &mut state, 3);
    let mut fresh = GatedProjection::new(&other, gated_by, Room { rows: 3, steps: 5 });
    assert_ne!(before[1], after[1]);
    assert_eq!(steps(&other, &mut fresh, 3), after);
}
