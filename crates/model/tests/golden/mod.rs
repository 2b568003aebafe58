//! Files with golden numbers, where the tests run, and comparisons.
//!
//! On a machine with a GPU, `MAE_TEST_DEVICE=cuda` (bfloat16) or `cuda-f32` runs them there; `MAE_FIXTURES` names the
//! folder `fixtures` where the tests were built elsewhere.
//! A GPU has one stream of work, so there the tests must take turns: `--test-threads=1`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::OnceLock;

use mae_engine::{Device, Ids, Numbers, Params};
use mae_model::ExpertMode;
use safetensors::tensor::{Dtype, SafeTensors};

/// Where the tests run, and how far numbers may be off there.
pub struct Place {
    pub device: Device,
    /// Of logits and statistics, absolute.
    pub value: f64,
    /// Of summed losses, absolute.
    pub loss: f64,
    /// Of gradients, as a share of their norm.
    pub gradient: f64,
    /// Of the mean losses of ten updates, absolute.
    pub mean_loss: f64,
    /// Of logits after ten updates, absolute.
    pub trained: f64,
}

pub fn place() -> &'static Place {
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

pub struct Golden {
    pub values: HashMap<String, Vec<f64>>,
    pub metadata: HashMap<String, String>,
}

impl Golden {
    pub fn load(name: &str) -> Self {
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

    pub fn get(&self, key: &str) -> &[f64] {
        self.values.get(key).unwrap_or_else(|| panic!("the golden file has no `{key}`"))
    }

    pub fn ids(&self, key: &str) -> Vec<u32> {
        self.get(key).iter().map(|&v| v as u32).collect()
    }

    pub fn number<T: std::str::FromStr>(&self, key: &str) -> T {
        self.metadata[key].parse().ok().unwrap_or_else(|| panic!("metadata {key}"))
    }

    /// Fills all parameters; the golden file must hold these and no others.
    pub fn fill(&self, params: &mut Params) {
        let names: Vec<String> = params.named().map(|p| p.name.to_owned()).collect();
        let stored = self.values.keys().filter(|key| key.starts_with("model.")).count();
        assert_eq!(names.len(), stored, "parameter names differ from the oracle's");
        for name in names {
            let values: Vec<f32> = self.get(&format!("model.{name}")).iter().map(|&v| v as f32).collect();
            params.set(&name, &values).unwrap();
        }
    }

    pub fn draws(&self, prefix: &str) -> ExpertMode {
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

    /// The gradient stored as `key`: ‖got − want‖ ≤ share·‖want‖, or tiny. The gradient of a key bias is mathematically
    /// zero and has only rounding to compare: it is held against the size of the query bias' instead.
    pub fn assert_gradient(&self, name: &str, key: &str, got: &[f32]) {
        let share = place().gradient;
        let want = self.get(key);
        assert_eq!(got.len(), want.len(), "{name}: {key}: lengths differ");
        let error = norm(got.iter().zip(want).map(|(g, w)| f64::from(*g) - w));
        let size = norm(self.get(&key.replace("k_proj.bias", "q_proj.bias")).iter().copied());
        assert!(
            error <= share * size || error < 1e-3 * share,
            "{name}: {key}: off by {error:.2e} of {size:.2e}"
        );
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

pub fn assert_close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= tolerance, "{what}[{i}] is {got}, the oracle says {want}");
    }
}
