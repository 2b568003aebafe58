use super::*;
use crate::gradcheck::Check;
use crate::{Device, GroupId, GroupSet, Params, ParamsBuilder, Rng};

fn segments(starts: &[u32]) -> Segments {
    Segments::from_host(&Device::cpu(), starts)
}

fn random(seed: u64, rows: usize, cols: usize) -> Tensor {
    let stream = Rng::new(seed, 0).stream(0);
    let values: Vec<f32> = (0..rows * cols).map(|i| stream.normal(i as u32, 0)).collect();
    Tensor::from_host(&Device::cpu(), [rows, cols], &values)
}

fn no_params() -> Params {
    ParamsBuilder::default().finish(&Device::cpu())
}

#[test]
fn gradients_match_finite_differences_packed() {
    for causal in [false, true] {
        for dropout in [0.0, 0.3] {
            for (weighting, starts) in [(0, &[0u32, 3, 4, 4, 9][..]), (1, &[0, 5, 7]), (2, &[0, 1, 6])] {
                let (heads, width, sentences) = (2, 6, segments(starts));
                let rows = sentences.rows();
                let mut check = Check::new();
                let qkv = check.param("qkv", [rows, 3 * width]);
                let w = (weighting > 0).then(|| {
                    check.param("weights", [if weighting == 1 { sentences.count() } else { rows }, heads])
                });
                check.run(move |tape| {
                    let weights = match (weighting, w) {
                        (1, Some(w)) => HeadWeights::PerSentence(tape.parameter(w)),
                        (2, Some(w)) => HeadWeights::PerRow(tape.parameter(w)),
                        _ => HeadWeights::One,
                    };
                    let inputs = Inputs::Packed(tape.parameter(qkv));
                    let (queries, keys) = (sentences.clone(), sentences.clone());
                    tape.attention(&inputs, Attention { heads, causal, dropout, queries, keys, weights })
                });
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences_apart() {
    let (queries, keys) = (segments(&[0, 2, 3, 7]), segments(&[0, 5, 6, 19]));
    let mut check = Check::new();
    let (q, kv) = (check.param("q", [7, 10]), check.param("kv", [19, 20]));
    let w = check.param("weights", [7, 5]);
    check.run(move |tape| {
        let inputs = Inputs::Apart(tape.parameter(q), tape.parameter(kv));
        let weights = HeadWeights::PerRow(tape.parameter(w));
        let (queries, keys) = (queries.clone(), keys.clone());
        tape.attention(&inputs, Attention { heads: 5, causal: false, dropout: 0.0, queries, keys, weights })
    });
}

/// Three attentions whose keys and values one product makes.
#[test]
fn gradients_match_finite_differences_where_keys_are_made_together() {
    let (queries, keys) = (segments(&[0, 2, 3, 7]), segments(&[0, 5, 6, 19]));
    let mut check = Check::new();
    let (q, memory) = (check.param("q", [7, 10]), check.param("memory", [19, 4]));
    let (weight, bias) = (check.param("weight", [60, 4]), check.param("bias", [60, 1]));
    check.run(move |tape| {
        let memory = tape.parameter(memory);
        let parts = tape.linear_parts(&memory, weight, bias, 3);
        (0..3).fold(tape.parameter(q), |q, part| {
            let inputs = Inputs::Shared(q, parts.part(part));
            let (queries, keys, weights) = (queries.clone(), keys.clone(), HeadWeights::One);
            tape.attention(
                &inputs,
                Attention { heads: 5, causal: false, dropout: 0.0, queries, keys, weights },
            )
        })
    });
}

/// Keys and values that are made together are those that are made alone, to the bit.
#[test]
fn a_part_is_what_it_would_be_alone() {
    let (queries, keys) = (segments(&[0, 2, 3, 7]), segments(&[0, 5, 6, 19]));
    let device = Device::cpu();
    let mut builder = ParamsBuilder::default();
    let weight = builder.matrix("weight".into(), [40, 6], GroupId(0));
    let bias = builder.vector("bias".into(), 40, GroupId(0));
    let mut params = builder.finish(&device);
    params.set("weight", &random(7, 40, 6).to_host()).unwrap();
    params.set("bias", &random(8, 1, 40).to_host()).unwrap();
    let mut tape = Tape::evaluation(&params);
    let parts = tape.linear_parts(&Var::constant(random(9, 19, 6)), weight, bias, 2);
    let q = Var::constant(random(10, 7, 10));
    for part in 0..2 {
        let whole = parts.whole();
        let columns: Vec<f32> = (0..19).flat_map(|row| whole.row(row)[20 * part..][..20].to_vec()).collect();
        let alone = Inputs::Apart(q.clone(), Var::constant(Tensor::from_host(&device, [19, 20], &columns)));
        let shared = Inputs::Shared(q.clone(), parts.part(part));
        let [alone, shared] = [alone, shared].map(|inputs| {
            let (queries, keys, weights) = (queries.clone(), keys.clone(), HeadWeights::One);
            let attention = Attention { heads: 2, causal: false, dropout: 0.0, queries, keys, weights };
            tape.attention(&inputs, attention).tensor().to_host()
        });
        assert_eq!(alone, shared, "part {part}");
    }
}

/// What is read twice would lose a gradient, and what is not read at all has none.
#[test]
fn parts_are_read_once_each() {
    let device = Device::cpu();
    let mut builder = ParamsBuilder::default();
    let weight = builder.matrix("weight".into(), [40, 6], GroupId(0));
    let bias = builder.vector("bias".into(), 40, GroupId(0));
    let params = builder.finish(&device);
    for read in [&[0, 0, 1][..], &[1]] {
        let walk_back = || {
            let mut gradients = params.gradients();
            let free = GroupSet::of(&[GroupId(0)]);
            let mut tape = Tape::training(&params, &mut gradients, free, Rng::new(1, 1));
            let parts = tape.linear_parts(&Var::constant(random(9, 19, 6)), weight, bias, 2);
            for &part in read {
                let inputs = Inputs::Shared(Var::constant(random(10, 7, 10)), parts.part(part));
                let (queries, keys) = (segments(&[0, 2, 3, 7]), segments(&[0, 5, 6, 19]));
                let weights = HeadWeights::One;
                let attention = Attention { heads: 2, causal: false, dropout: 0.0, queries, keys, weights };
                let out = tape.attention(&inputs, attention);
                tape.seed_from_host(&out, &[1.0; 70]);
            }
            tape.backward();
        };
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk_back)).is_err();
        assert!(panics, "{read:?}");
    }
}

/// The formula of the module's head, written out with loops in f64.
#[test]
fn values_match_the_formula() {
    let (heads, k, rows) = (3, 17, 21);
    let width = heads * k;
    let qkv = random(4, rows, 3 * width);
    let w = random(5, rows, heads);
    let params = no_params();
    let starts = segments(&[0, 1, 21]);
    let weights = HeadWeights::PerRow(Var::constant(w.clone()));
    let attention = Attention {
        heads,
        causal: true,
        dropout: 0.0,
        queries: starts.clone(),
        keys: starts.clone(),
        weights,
    };
    let got = Tape::evaluation(&params).attention(&Inputs::Packed(Var::constant(qkv.clone())), attention);
    for range in starts.ranges() {
        for i in range.clone() {
            for head in 0..heads {
                let at =
                    |row: usize, part: usize, c: usize| f64::from(qkv.row(row)[part * width + head * k + c]);
                let score =
                    |j: usize| (0..k).map(|c| at(i, 0, c) * at(j, 1, c)).sum::<f64>() / (k as f64).sqrt();
                let p: Vec<f64> = (range.start..=i).map(|j| score(j).exp()).collect();
                let sum: f64 = p.iter().sum();
                for c in 0..k {
                    let o: f64 = (range.start..=i).map(|j| p[j - range.start] / sum * at(j, 2, c)).sum();
                    let want = o * f64::from(w.row(i)[head]);
                    let value = f64::from(got.tensor().row(i)[head * k + c]);
                    assert!((want - value).abs() < 1e-5, "row {i} head {head}: {value} for {want}");
                }
            }
        }
    }
}

/// A head of weight 0 gives zeros and its inputs no gradient, as if it were not there.
#[test]
fn a_dropped_head_takes_no_part() {
    let (heads, width, rows, group) = (2, 8, 5, GroupId(0));
    let device = Device::cpu();
    let mut builder = ParamsBuilder::default();
    let id = builder.matrix("qkv".into(), [rows, 3 * width], group);
    let mut params = builder.finish(&device);
    params.set("qkv", &random(6, rows, 3 * width).to_host()).unwrap();
    let mut gradients = params.gradients();
    let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[group]), Rng::new(1, 1));
    let inputs = Inputs::Packed(tape.parameter(id));
    let weights = HeadWeights::PerSentence(Var::constant(Tensor::from_host(&device, [1, 2], &[0.0, 2.0])));
    let all = segments(&[0, 5]);
    let out = tape.attention(
        &inputs,
        Attention { heads, causal: true, dropout: 0.2, queries: all.clone(), keys: all, weights },
    );
    assert!((0..rows).all(|row| out.tensor().row(row)[..4].iter().all(|&v| v == 0.0)));
    let mut gradient = device.scratch(rows * width);
    gradient.write(0, &random(7, rows, width).to_host());
    tape.seed(&out, gradient);
    tape.backward();
    let gradient = gradients.get(&params, "qkv").unwrap().unwrap();
    for row in gradient.chunks_exact(width) {
        assert!(row[..4].iter().all(|&g| g == 0.0));
    }
    assert!(gradient.iter().any(|&g| g != 0.0));
}

/// The output is linear in the weights, so their gradient does not depend on them: not even where one is 0.
#[test]
fn a_weight_of_zero_has_its_gradient() {
    let (heads, width, rows, group) = (2, 8, 5, GroupId(0));
    let gradient_at = |weight: f32| {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let qkv = builder.matrix("qkv".into(), [rows, 3 * width], group);
        let w = builder.matrix("w".into(), [1, heads], group);
        let mut params = builder.finish(&device);
        params.set("qkv", &random(6, rows, 3 * width).to_host()).unwrap();
        params.set("w", &[weight, 2.0]).unwrap();
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[group]), Rng::new(1, 1));
        let (inputs, weights) =
            (Inputs::Packed(tape.parameter(qkv)), HeadWeights::PerSentence(tape.parameter(w)));
        let (queries, keys) = (segments(&[0, 5]), segments(&[0, 5]));
        let attention = Attention { heads, causal: true, dropout: 0.2, queries, keys, weights };
        let out = tape.attention(&inputs, attention);
        let mut gradient = device.scratch(rows * width);
        gradient.write(0, &random(7, rows, width).to_host());
        tape.seed(&out, gradient);
        tape.backward();
        gradients.get(&params, "w").unwrap().unwrap()
    };
    for (zero, half) in gradient_at(0.0).iter().zip(gradient_at(0.5)) {
        assert!((zero - half).abs() < 1e-5, "{zero} at 0, {half} at 0.5");
    }
}
