//! Golden numbers from the PyTorch oracle (`tools/oracle/golden.py`): logits, losses, every gradient of a G step, an
//! F step with given draws and a joint step, running statistics, and ten training losses in a row.
//!
//! On a machine with a GPU, `MAE_TEST_DEVICE=cuda` (bfloat16) or `cuda-f32` runs them there; `MAE_FIXTURES` names the
//! folder `fixtures` where the tests were built elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::OnceLock;

use mae_data::PackedBatch;
use mae_engine::optim::{Adam, Moments, StepNumbers, sgd};
use mae_engine::{Device, Gradients, GroupSet, Ids, Numbers, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::config::{Mixture, NormOrder, Sharing, System};
use mae_model::{DeviceBatch, ExpertMode, ModelConfig, Translator, groups};
use safetensors::tensor::{Dtype, SafeTensors};

/// Where the tests run, and how far numbers may be off there.
struct Place {
    device: Device,
    /// Of logits and statistics, absolute.
    value: f64,
    /// Of summed losses, absolute.
    loss: f64,
    /// Of gradients, as a share of their norm.
    gradient: f64,
    /// Of the mean losses of ten updates, absolute.
    mean_loss: f64,
    /// Of logits after ten updates, absolute.
    trained: f64,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| match std::env::var("MAE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("cpu") => Place {
            device: Device::cpu(),
            value: 1e-5,
            loss: 1e-4,
            gradient: 1e-4,
            mean_loss: 1e-5,
            trained: 1e-4,
        },
        Ok("cuda-f32") => Place {
            device: Device::cuda(0, Numbers::F32).unwrap(),
            value: 1e-4,
            loss: 1e-4,
            gradient: 1e-4,
            mean_loss: 1e-4,
            trained: 1e-4,
        },
        Ok("cuda") => Place {
            device: Device::cuda(0, Numbers::Bf16).unwrap(),
            value: 5e-2,
            loss: 0.5,
            // Of tiny gradients of a tiny model: rounding is a tenth of some.
            gradient: 0.2,
            mean_loss: 2e-2,
            trained: 0.4,
        },
        Ok(other) => panic!("MAE_TEST_DEVICE={other}: expected cpu, cuda or cuda-f32"),
    })
}

struct Golden {
    values: HashMap<String, Vec<f64>>,
    metadata: HashMap<String, String>,
}

impl Golden {
    fn load(name: &str) -> Self {
        let fixtures = std::env::var_os("MAE_FIXTURES").map(PathBuf::from);
        let fixtures =
            fixtures.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")));
        let path = fixtures.join(format!("oracle/{name}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut values = HashMap::new();
        for (name, tensor) in file.tensors() {
            let data = tensor.data();
            let numbers = match tensor.dtype() {
                Dtype::F32 => data
                    .chunks_exact(4)
                    .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                    .collect(),
                Dtype::F64 => {
                    data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
                }
                Dtype::I32 => data
                    .chunks_exact(4)
                    .map(|b| f64::from(i32::from_le_bytes(b.try_into().unwrap())))
                    .collect(),
                other => panic!("{name}: {other:?}"),
            };
            values.insert(name, numbers);
        }
        Self { values, metadata: header.metadata().clone().unwrap() }
    }

    fn get(&self, key: &str) -> &[f64] {
        self.values.get(key).unwrap_or_else(|| panic!("the golden file has no `{key}`"))
    }

    fn ids(&self, key: &str) -> Vec<u32> {
        self.get(key).iter().map(|&v| v as u32).collect()
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> T {
        self.metadata[key].parse().ok().unwrap_or_else(|| panic!("metadata {key}"))
    }

    fn config(&self) -> ModelConfig {
        let gated = self.metadata["gated"] == "true";
        ModelConfig {
            arch: "golden".into(),
            encoder_layers: self.number("layers"),
            decoder_layers: self.number("layers"),
            encoder_embed_dim: self.number("width"),
            encoder_ffn_embed_dim: self.number("inner"),
            encoder_attention_heads: self.number("heads"),
            dropout: 0.0,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            norm: NormOrder::Post,
            share_embeddings: Sharing::Decoder,
            max_positions: 64,
            mixture: Mixture {
                system: if gated { System::Mae } else { System::Base },
                dropped_heads: self.number("dropped"),
                gate_hidden: self.number("gate_hidden"),
                gate_dropout: 0.0,
                ..Mixture::default()
            },
        }
    }

    fn model(&self) -> Translator {
        let types = [self.number("src_vocab"), self.number("tgt_vocab")];
        let mut model = Translator::zeroed(&self.config(), types, &place().device).unwrap();
        let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
        let stored = self.values.keys().filter(|key| key.starts_with("model.")).count();
        assert_eq!(names.len(), stored, "parameter names differ from the oracle's");
        for name in names {
            let values: Vec<f32> = self.get(&format!("model.{name}")).iter().map(|&v| v as f32).collect();
            model.params_mut().set(&name, &values).unwrap();
        }
        model
    }

    fn batch(&self) -> DeviceBatch {
        let batch = PackedBatch {
            src: self.ids("src.ids"),
            src_starts: self.ids("src.starts"),
            prev: self.ids("prev.ids"),
            tgt: self.ids("tgt.ids"),
            tgt_starts: self.ids("tgt.starts"),
            ids: (0..self.get("tgt.starts").len() as u32 - 1).collect(),
        };
        DeviceBatch::new(&place().device, &batch)
    }

    fn draws(&self, prefix: &str) -> ExpertMode {
        let draws: BTreeMap<String, Ids> = self
            .values
            .keys()
            .filter_map(|key| key.strip_prefix(prefix))
            .map(|name| {
                (name.to_owned(), Ids::from_host(&place().device, &self.ids(&format!("{prefix}{name}"))))
            })
            .collect();
        ExpertMode::Given(draws)
    }
}

fn assert_close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= tolerance, "{what}[{i}] is {got}, the oracle says {want}");
    }
}

/// ‖a − b‖ ≤ share·‖b‖, or tiny: gradients that are mathematically zero (key biases) have only rounding to compare.
fn assert_near(what: &str, got: &[f32], want: &[f64], share: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(want).map(|(g, w)| f64::from(*g) - w));
    let size = norm(&mut want.iter().copied());
    assert!(error <= share * size || error < 1e-3 * share, "{what}: off by {error:.2e} of {size:.2e}");
}

/// One training pass; returns (smoothed loss, nll) sums.
fn step(
    model: &mut Translator,
    gradients: &mut Gradients,
    batch: &DeviceBatch,
    mode: &ExpertMode,
    free: GroupSet,
) -> (f64, f64) {
    gradients.clear();
    let updates;
    let sums = {
        let mut tape = Tape::training(model.params(), gradients, free, Rng::new(1, 1));
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let sums = model.loss(&mut pass, batch, 0.1, 1.0 / batch.target.len() as f32);
        updates = tape.backward();
        (sums.smoothed(), sums.nll())
    };
    gradients.check_complete(free).unwrap();
    model.params_mut().apply(updates);
    sums
}

fn check_logits_and_steps(name: &str) {
    let golden = Golden::load(name);
    let gated = golden.config().mixture.system.is_gated();
    let batch = golden.batch();
    {
        let model = golden.model();
        let mut tape = Tape::evaluation(model.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        let features = model.features(&mut pass, &batch);
        let logits = model.logits(&mut tape, &features).to_host();
        place().device.check().unwrap();
        assert_close(&format!("{name}: eval.logits"), &logits, golden.get("eval.logits"), place().value);
    }
    let steps: &[(&str, ExpertMode, GroupSet)] = &[
        ("g", ExpertMode::Mix, groups::gates()),
        ("f", golden.draws("f.draws."), groups::all_but_gates()),
        ("joint", ExpertMode::Mix, groups::trained()),
    ];
    for (kind, mode, free) in steps.iter().filter(|(kind, _, _)| gated || *kind == "f") {
        let mut model = golden.model();
        let mut gradients = model.params().gradients();
        let (loss, nll) = step(&mut model, &mut gradients, &batch, mode, *free);
        for (what, got) in [("loss", loss), ("nll", nll)] {
            let want = golden.get(&format!("{kind}.{what}"))[0];
            assert!(
                (got - want).abs() < place().loss,
                "{name}: {kind}.{what} is {got}, the oracle says {want}"
            );
        }
        let params = model.params();
        for parameter in params.named().filter(|p| free.contains(p.group)) {
            let got = gradients.get(params, parameter.name).unwrap().unwrap();
            let key = format!("{kind}.grad.{}", parameter.name);
            assert_near(&format!("{name}: {key}"), &got, golden.get(&key), place().gradient);
        }
        for parameter in params.named().filter(|p| p.group == groups::STATISTICS) {
            let key = format!("{kind}.stats.{}", parameter.name.replace(".gate.norm.", "."));
            assert_close(&key, &params.get(parameter.name).unwrap(), golden.get(&key), place().value);
        }
    }
}

fn check_ten_updates(name: &str) {
    let golden = Golden::load(name);
    let gated = golden.config().mixture.system.is_gated();
    let batch = golden.batch();
    let mut model = golden.model();
    let mut gradients = model.params().gradients();
    let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: golden.number("weight_decay") };
    let rate: f32 = golden.number("lr");
    let mut moments: Vec<Moments> =
        [groups::ATTENTION_OUTPUT, groups::REST].map(|group| Moments::new(model.params(), group)).into();
    let numbers = StepNumbers::new(&place().device);
    let tokens = batch.target.len() as f64;
    for update in 0..10 {
        if gated {
            let (loss, _) = step(&mut model, &mut gradients, &batch, &ExpertMode::Mix, groups::gates());
            let want = golden.get("train.g_losses")[update];
            assert!(
                (loss / tokens - want).abs() < place().mean_loss,
                "{name}: G loss {update}: {} {want}",
                loss / tokens
            );
            sgd(model.params_mut(), &gradients, groups::GATE, 1.0, &numbers);
        }
        let mode = if gated { golden.draws(&format!("train.draws.{update}.")) } else { ExpertMode::Mix };
        let (loss, _) = step(&mut model, &mut gradients, &batch, &mode, groups::all_but_gates());
        let want = golden.get("train.f_losses")[update];
        assert!(
            (loss / tokens - want).abs() < place().mean_loss,
            "{name}: F loss {update}: {} {want}",
            loss / tokens
        );
        for moments in &mut moments {
            adam.step(model.params_mut(), &gradients, moments, rate, update as u64 + 1, &numbers);
        }
    }
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
    let features = model.features(&mut pass, &batch);
    let logits = model.logits(&mut tape, &features).to_host();
    assert_close(
        &format!("{name}: logits after ten updates"),
        &logits,
        golden.get("train.end.eval.logits"),
        place().trained,
    );
}

#[test]
fn base_agrees_with_the_oracle() {
    check_logits_and_steps("base");
}

#[test]
fn mae7_agrees_with_the_oracle() {
    check_logits_and_steps("mae7");
}

#[test]
fn mae6_agrees_with_the_oracle() {
    check_logits_and_steps("mae6");
}

#[test]
fn ten_training_losses_agree_with_the_oracle() {
    ["base", "mae7", "mae6"].into_iter().for_each(check_ten_updates);
}
