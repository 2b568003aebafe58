//! The mean of several checkpoints of one run (or of several runs from the same start): usually better than the last.

use std::path::{Path, PathBuf};

use mae_engine::Device;

use crate::folder::{self, ModelFolder};
use crate::{Error, Result};

/// A model whose parameters, running statistics included, are the means over the models in `folders`, summed in f64.
/// They must have the same configuration and dictionaries.
pub fn average(folders: &[PathBuf]) -> Result<ModelFolder> {
    let [first, rest @ ..] = folders else {
        return Err(Error::Config(vec!["there is no model to average".into()]));
    };
    let mut mean = ModelFolder::load(first, &Device::cpu())?;
    let mut sums: Vec<(String, Vec<f64>)> = mean
        .model
        .params()
        .snapshot()
        .into_iter()
        .map(|(name, _, values)| (name, values.into_iter().map(f64::from).collect()))
        .collect();
    for path in rest {
        let other = ModelFolder::load(path, &Device::cpu())?;
        check_alike(first, &mean, path, &other)?;
        // The same configuration declares the same parameters in the same order.
        for ((_, sum), (_, _, values)) in sums.iter_mut().zip(other.model.params().snapshot()) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
        }
    }
    let count = folders.len() as f64;
    for (name, sum) in sums {
        let values: Vec<f32> = sum.into_iter().map(|sum| (sum / count) as f32).collect();
        mean.model.params_mut().set(&name, &values)?;
    }
    Ok(mean)
}

fn check_alike(first: &Path, mean: &ModelFolder, path: &Path, other: &ModelFolder) -> Result<()> {
    let differs = |file: &str, what: &str| {
        let message =
            format!("{what} differs from that of {}; such models cannot be averaged", first.display());
        Err(Error::Parse { path: path.join(file), message })
    };
    if mean.model.config() != other.model.config() {
        return differs(folder::CONFIG, "the model");
    }
    if mean.source != other.source {
        return differs(folder::SOURCE_DICT, "the source dictionary");
    }
    if mean.target != other.target {
        return differs(folder::TARGET_DICT, "the target dictionary");
    }
    Ok(())
}
