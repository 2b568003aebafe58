//! Mixtures and gates on a CPU.

use super::*;
use crate::gradcheck::Check;
use crate::{Device, GroupSet, ParamsBuilder, Rng};

fn experts(device: &Device) -> Tensor {
    // Four heads, experts that leave one out.
    let scale = 4.0 / 3.0;
    let rows: Vec<f32> = (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { scale }).collect();
    Tensor::from_host(device, [4, 4], &rows)
}

#[test]
fn gradients_match_finite_differences() {
    for rows in [1, 7] {
        let experts = experts(&Device::cpu());
        let mut check = Check::new();
        let logits = check.param("logits", [rows, 4]);
        check.run(move |tape| {
            let logits = tape.parameter(logits);
            tape.mix_experts(&logits, &experts).weights
        });
    }
}

#[test]
fn uniform_gates_weigh_every_head_one_and_weights_sum_to_the_heads() {
    let device = Device::cpu();
    let params = ParamsBuilder::default().finish(&device);
    let mut tape = Tape::evaluation(&params);
    let logits =
        Var::constant(Tensor::from_host(&device, [2, 4], &[0.3, 0.3, 0.3, 0.3, 2.0, -1.0, 0.0, 0.5]));
    let mix = tape.mix_experts(&logits, &experts(&device));
    let w = mix.weights.tensor().to_host();
    w[..4].iter().for_each(|w| assert!((w - 1.0).abs() < 1e-6));
    assert!((w[4..].iter().sum::<f32>() - 4.0).abs() < 1e-5);
    let argmax = tape.pick_experts(&logits, &experts(&device), &Pick::Argmax);
    assert_eq!(argmax.weights.tensor().to_host()[4], 0.0);
}

#[test]
fn weights_are_sums_over_experts_for_any_number_of_heads() {
    let device = Device::cpu();
    let params = ParamsBuilder::default().finish(&device);
    for heads in [1, 7, 8, 13, 16] {
        let experts: Vec<f32> = (0..3 * heads).map(|i| (i % 11) as f32 - 4.0).collect();
        let experts = Tensor::from_host(&device, [3, heads], &experts);
        let logits = Var::constant(Tensor::from_host(&device, [2, 3], &[0.3, -1.0, 2.0, 0.0, 1.5, -0.5]));
        let mix = Tape::evaluation(&params).mix_experts(&logits, &experts);
        for row in 0..2 {
            for head in 0..heads {
                let of_expert = |e: usize| mix.gates.row(row)[e] * experts.row(e)[head];
                let (got, want) = (mix.weights.tensor().row(row)[head], (0..3).map(of_expert).sum::<f32>());
                assert!((got - want).abs() < 1e-5, "head {head} of {heads}: {got} for {want}");
            }
        }
    }
}

#[test]
fn a_gate_in_one_go_is_that_of_its_ops_row_by_row() {
    let (width, hidden) = (24, 10);
    let random = |seed: u64, len: usize| {
        let stream = Rng::new(seed, 0).stream(0);
        (0..len as u32).map(|i| stream.normal(i, 0)).collect::<Vec<f32>>()
    };
    let device = Device::cpu();
    let mut builder = ParamsBuilder::default();
    let group = crate::GroupId(0);
    let network = GateNetwork {
        fc1: [
            builder.matrix("w1".into(), [hidden, width], group),
            builder.vector("b1".into(), hidden, group),
        ],
        fc2: [builder.matrix("w2".into(), [4, hidden], group), builder.vector("b2".into(), 4, group)],
        dropout: 0.5,
    };
    let mut params = builder.finish(&device);
    for (seed, (name, len)) in
        [("w1", hidden * width), ("b1", hidden), ("w2", 4 * hidden), ("b2", 4)].into_iter().enumerate()
    {
        params.set(name, &random(seed as u64, len)).unwrap();
    }
    let experts = experts(&device);
    let mut single = Vec::new();
    for rows in [1, 3, 33, 70] {
        let x = Var::constant(Tensor::from_host(&device, [rows, width], &random(9, rows * width)));
        let mut tape = Tape::evaluation(&params);
        let logits = tape.gate_logits(&x, &network);
        let plain = tape.mix_experts(&logits, &experts);
        let whole = tape.mix_by_gate(&x, &network, &experts);
        let close = |a: &Tensor, b: &Tensor| {
            let (a, b) = (a.to_host(), b.to_host());
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{rows} rows: {a:?} {b:?}");
        };
        close(&whole.gates, &plain.gates);
        close(whole.weights.tensor(), plain.weights.tensor());
        let (picked, by_ops) = (
            tape.pick_by_gate(&x, &network, &experts, &Pick::Argmax),
            tape.pick_experts(&logits, &experts, &Pick::Argmax),
        );
        close(picked.weights.tensor(), by_ops.weights.tensor());
        let weights = whole.weights.tensor().to_host();
        if rows == 1 {
            single.clone_from(&weights);
        }
        // Up to rounding: processors with AMX add up products of many rows in another order than those of few.
        let alike = weights[..4].iter().zip(&single).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(alike, "a row depends on itself only: {:?} {single:?}", &weights[..4]);
    }
}

#[test]
fn draws_follow_the_gate() {
    let device = Device::cpu();
    let params = ParamsBuilder::default().finish(&device);
    let rows = 20_000;
    let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln).repeat(rows);
    let logits = Var::constant(Tensor::from_host(&device, [rows, 4], &logits));
    let mut gradients = params.gradients();
    let mut tape = Tape::training(&params, &mut gradients, GroupSet::NONE, Rng::new(9, 4));
    let picked = tape.pick_experts(&logits, &experts(&device), &Pick::Sample).weights.tensor().to_host();
    for (e, want) in [0.1, 0.2, 0.3, 0.4].into_iter().enumerate() {
        let share = picked.chunks_exact(4).filter(|w| w[e] == 0.0).count() as f64 / rows as f64;
        assert!((share - want).abs() < 0.015, "expert {e}: {share} of the draws, gate {want}");
    }
    let halves = Segments::from_host(&device, &[0, rows as u32 / 2, rows as u32]);
    let pick = Pick::SamplePerSentence(halves);
    let picked = tape.pick_experts(&logits, &experts(&device), &pick).weights.tensor().to_host();
    assert!(
        picked.chunks_exact(4).take(rows / 2).all(|w| *w == picked[..4]),
        "equal gates agree in a sentence"
    );
}
