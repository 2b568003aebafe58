//! Training in bf16 on a CPU: factors of products are rounded in training passes, and nowhere else.

use mae_engine::cpu::gemm::has_bf16;
use mae_engine::ops::linear::Activation;
use mae_engine::{Device, GroupId, GroupSet, Numbers, ParamsBuilder, Rng, Tape, Tensor, Var};

fn random(seed: u64, len: usize) -> Vec<f32> {
    let stream = Rng::new(seed, 0).stream(0);
    (0..len as u32).map(|i| stream.normal(i, 0)).collect()
}

/// Output of a layer in a training pass and in evaluation, and the gradient of its weight.
fn pass(device: &Device) -> [Vec<f32>; 3] {
    let (rows, width, group) = (96, 256, GroupId(0));
    let mut builder = ParamsBuilder::default();
    let weight = builder.matrix("weight".into(), [width, width], group);
    let bias = builder.vector("bias".into(), width, group);
    let mut params = builder.finish(device);
    params.set("weight", &random(1, width * width)).unwrap();
    let x = Var::constant(Tensor::from_host(device, [rows, width], &random(2, rows * width)));
    let layer = |tape: &mut Tape<'_>| tape.linear(&x, weight, bias, Activation::Identity, 0.0);
    let evaluated = layer(&mut Tape::evaluation(&params)).tensor().to_host();
    let mut gradients = params.gradients();
    let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[group]), Rng::new(1, 1));
    let y = layer(&mut tape);
    let trained = y.tensor().to_host();
    tape.seed_from_host(&y, &random(3, rows * width));
    tape.backward();
    [trained, evaluated, gradients.get(&params, "weight").unwrap().unwrap()]
}

#[test]
fn factors_are_rounded_in_training_passes_only() {
    let bf16 = match Device::cpu_with(Numbers::Bf16) {
        Ok(device) => device,
        Err(error) => {
            let text = error.to_string();
            assert!(!has_bf16() && text.contains("AMX or AVX-512 BF16") && text.contains("f32"), "{text}");
            return;
        }
    };
    assert!(bf16.describe().ends_with("training in bf16"), "{}", bf16.describe());
    let plain = Device::cpu_with(Numbers::F32).unwrap();
    let ([trained, evaluated, gradient], [exact, by_f32, wanted]) = (pass(&bf16), pass(&plain));
    assert_eq!(evaluated, by_f32);
    for (what, found, wanted) in [("output", trained, exact), ("gradient", gradient, wanted)] {
        assert_ne!(found, wanted, "{what}");
        let size = (wanted.iter().map(|v| v * v).sum::<f32>() / wanted.len() as f32).sqrt();
        let error = found.iter().zip(&wanted).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        let error = (error / wanted.len() as f32).sqrt() / size;
        // The rounding of each factor is 2⁻⁹ or so.
        assert!((5e-4..1e-2).contains(&error), "{what}: {error}");
    }
}
