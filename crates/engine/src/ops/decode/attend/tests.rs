//! Keys and values in bf16 beside those in f32.

use crate::cpu::gemm::streamed::Weight;
use crate::cpu::panels::{Half, Number};
use crate::ops::decode::{Heads, KvCache, Lineage, Memory, Room, SlotTensor, Spans};
use crate::{ComputeType, Device, Ids, ParamsBuilder, Rng, Tape, Tensor, Var};

/// Numbers, and the same rounded to bf16.
fn random(stream: u32, count: usize) -> [Vec<f32>; 2] {
    let stream = Rng::new(3, 0).stream(stream);
    let values: Vec<f32> = (0..count as u32).map(|i| stream.normal(i, 0)).collect();
    let rounded = values.iter().map(|&value| Half::round(value).get()).collect();
    [values, rounded]
}

fn holding(compute: ComputeType) -> Device {
    Device::cpu().holding(compute).unwrap()
}

/// Results of six steps, in which hypotheses change places: attention to what they left behind, and to two sources.
/// `rounded`: keys and values are given as bf16 numbers. `only`: this one of five hypotheses is there alone.
fn steps(compute: ComputeType, heads: Heads, rounded: bool, only: Option<usize>) -> Vec<Vec<f32>> {
    let (device, d) = (holding(compute), heads.count * heads.width);
    let params = ParamsBuilder::default().finish(&device);
    let mut tape = Tape::evaluation(&params);
    let some = |values: Vec<f32>, cols: usize| match only {
        Some(row) => values[row * cols..][..cols].to_vec(),
        None => values,
    };
    let count = if only.is_some() { 1 } else { 5 };
    let tensor = |cols: usize, values: &[f32]| Tensor::from_host(&device, [count, cols], values);
    let mut memory = SlotTensor::activations(&device, [30, 4 * d]);
    // The second source comes later, and the room has to grow.
    for (first, rows) in [(2, 7), (13, 17)] {
        let values = &random(first, rows * 4 * d)[usize::from(rounded)];
        let places: Vec<u32> = (first..first + rows as u32).collect();
        let values = Tensor::from_host(&device, [rows, 4 * d], values);
        tape.put(&mut memory, &values, &Ids::from_host(&device, &places));
    }
    let mut spans = Spans::new(&device, 2);
    spans.set([(0, 2, 9), (1, 13, 30)]);
    let sources: Vec<u32> = (0..5).map(|row| row % 2).collect();
    let sources = Ids::from_host(&device, only.map_or(&sources, |row| &sources[row..=row]));
    // Every third head weighs nothing.
    let weights: Vec<f32> = (0..5 * heads.count).map(|i| (i % 3) as f32).collect();
    let weights = tensor(heads.count, &some(weights, heads.count));
    let room = Room { rows: count, steps: 6 };
    let (mut cache, mut lineage) = (KvCache::new(&device, room, d), Lineage::new(&device, room));
    lineage.begin(count);
    let mut found = Vec::new();
    for step in 0..6 {
        if step == 3 && only.is_none() {
            lineage.reorder(&[0, 2, 2, 1, 1]);
        }
        let [mut qkv, kept] = random(100 + step, 5 * 3 * d);
        if rounded {
            let rows = qkv.chunks_exact_mut(3 * d).zip(kept.chunks_exact(3 * d));
            rows.for_each(|(row, kept)| row[d..].copy_from_slice(&kept[d..]));
        }
        let qkv = Var::constant(tensor(3 * d, &some(qkv, 3 * d)));
        tape.advance(&mut lineage, count);
        tape.store_kv(&qkv, d, &mut cache, &lineage);
        let own = tape.attention_cached(&qkv, heads, &cache, &lineage, Some(&weights));
        found.push(own.tensor().to_host());
        for part in [0, 1] {
            let memory = Memory { kv: memory.tensor(), part, spans: &spans, sentences: &sources };
            let read = tape.attention_memory(&qkv, heads, &memory, None);
            found.push(read.tensor().to_host());
        }
        lineage.count_step();
    }
    found
}

const SIZES: [Heads; 4] = [
    Heads { count: 8, width: 64 },
    Heads { count: 3, width: 5 },
    Heads { count: 2, width: 37 },
    Heads { count: 1, width: 16 },
];

/// What is kept in bf16 gives the bits that f32 gives with the rounded numbers, and nearly those of the others.
#[test]
fn halves_are_rounded_keys_and_values() {
    for (heads, compute) in
        SIZES.iter().flat_map(|heads| [ComputeType::Bf16, ComputeType::Int8].map(|compute| (*heads, compute)))
    {
        let found = steps(compute, heads, false, None);
        assert_eq!(found, steps(ComputeType::F32, heads, true, None), "{heads:?}, {compute}");
        let exact = steps(ComputeType::F32, heads, false, None);
        assert_eq!(exact, steps(ComputeType::Auto, heads, false, None));
        for (found, exact) in found.iter().flatten().zip(exact.iter().flatten()) {
            assert!((found - exact).abs() < 0.04, "{heads:?}, {compute}: {found} for {exact}");
        }
    }
}

/// A hypothesis alone finds the bits that it finds among others.
#[test]
fn halves_do_not_depend_on_neighbours() {
    for heads in SIZES {
        let d = heads.count * heads.width;
        let (all, alone) =
            (steps(ComputeType::Int8, heads, false, None), steps(ComputeType::Int8, heads, false, Some(0)));
        assert!(all.iter().zip(&alone).all(|(all, alone)| all[..d] == alone[..]), "{heads:?}");
    }
}

/// The formula, in f64.
#[test]
fn halves_are_attended_to_by_the_formula() {
    let heads = Heads { count: 2, width: 37 };
    let (d, rows) = (74, 17);
    let found = steps(ComputeType::Int8, heads, false, None);
    let [query, kv] = [random(100, 5 * 3 * d)[0][3 * d..][..d].to_vec(), random(13, rows * 4 * d)[1].clone()];
    for head in 0..heads.count {
        let query = &query[head * heads.width..][..heads.width];
        let of = |j: usize, first: usize| &kv[j * 4 * d + first + head * heads.width..][..heads.width];
        let dot =
            |j: usize| query.iter().zip(of(j, 0)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let chances: Vec<f64> = (0..rows).map(|j| (dot(j) / (heads.width as f64).sqrt()).exp()).collect();
        let total: f64 = chances.iter().sum();
        for i in 0..heads.width {
            let want: f64 = (0..rows).map(|j| chances[j] / total * f64::from(of(j, d)[i])).sum();
            let got = f64::from(found[1][d + head * heads.width + i]);
            assert!((got - want).abs() < 1e-5, "head {head}, value {i}: {got} for {want}");
        }
    }
}
