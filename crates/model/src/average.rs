//! The mean of several checkpoints of one run (or of several runs from the same start): usually better than the last.

use std::path::{Path, PathBuf};

use mae_data::Vocab;
use mae_data::files::{self, FolderLock};
use mae_engine::Device;

use crate::folder::{self, ModelFolder, SOURCE_DICT, TARGET_DICT, Task};
use crate::lm::folder::DICT;
use crate::lm::{LanguageModel, LmFolder};
use crate::{Error, Model, Result, Translator};

/// Writes to `output` a model whose parameters, running statistics included, are the means over the models in `folders`,
/// summed in f64. They must be of one kind and have the same configuration and dictionaries. A folder that is there is
/// replaced as a whole.
pub fn average(folders: &[PathBuf], output: &Path) -> Result<()> {
    let [first, ..] = folders else {
        return Err(Error::Config(vec!["there is no model to average".into()]));
    };
    for path in folders {
        folder::check_full(path)?;
    }
    let _lock = FolderLock::take_beside(output)?;
    match folder::task(first)? {
        Task::Translation => {
            let mean = mean::<ModelFolder>(folders)?;
            files::replace_folder(output, |aside| mean.save(aside))
        }
        Task::LanguageModeling => {
            let mean = mean::<LmFolder>(folders)?;
            files::replace_folder(output, |aside| mean.save(aside))
        }
    }
}

/// A folder of either kind of model.
trait Averaged: Sized {
    type Model: Model;

    fn load(path: &Path) -> Result<Self>;
    fn model(&mut self) -> &mut Self::Model;
    /// File names, what they are, and the dictionaries.
    fn dictionaries(&self) -> Vec<(&'static str, &'static str, &Vocab)>;
}

impl Averaged for ModelFolder {
    type Model = Translator;

    fn load(path: &Path) -> Result<Self> {
        Self::load(path, &Device::cpu())
    }

    fn model(&mut self) -> &mut Self::Model {
        &mut self.model
    }

    fn dictionaries(&self) -> Vec<(&'static str, &'static str, &Vocab)> {
        vec![
            (SOURCE_DICT, "the source dictionary", &self.source),
            (TARGET_DICT, "the target dictionary", &self.target),
        ]
    }
}

impl Averaged for LmFolder {
    type Model = LanguageModel;

    fn load(path: &Path) -> Result<Self> {
        Self::load(path, &Device::cpu())
    }

    fn model(&mut self) -> &mut Self::Model {
        &mut self.model
    }

    fn dictionaries(&self) -> Vec<(&'static str, &'static str, &Vocab)> {
        vec![(DICT, "the dictionary", &self.dictionary)]
    }
}

fn mean<F: Averaged>(folders: &[PathBuf]) -> Result<F> {
    let mut mean = F::load(&folders[0])?;
    let first = mean.model().params().snapshot()?;
    let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect();
    let mut sums: Vec<(String, Vec<f64>)> =
        first.tensors()?.into_iter().map(|(name, _, values)| (name.to_owned(), wide(values))).collect();
    for path in &folders[1..] {
        let mut other = F::load(path)?;
        check_alike(&folders[0], &mut mean, path, &mut other)?;
        // The same configuration declares the same parameters in the same order.
        let other = other.model().params().snapshot()?;
        for ((_, sum), (_, _, values)) in sums.iter_mut().zip(other.tensors()?) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
        }
    }
    let count = folders.len() as f64;
    for (name, sum) in sums {
        let values: Vec<f32> = sum.into_iter().map(|sum| (sum / count) as f32).collect();
        mean.model().params_mut().set(&name, &values)?;
    }
    Ok(mean)
}

fn check_alike<F: Averaged>(first: &Path, mean: &mut F, path: &Path, other: &mut F) -> Result<()> {
    let differs = |file: &str, what: &str| {
        let message =
            format!("{what} differs from that of {}; such models cannot be averaged", first.display());
        Err(Error::Parse { path: path.join(file), message })
    };
    if mean.model().config() != other.model().config() {
        let text = |folder: &mut F| {
            toml::to_string(folder.model().config()).expect("configurations can be written as TOML")
        };
        let (ours, theirs) = (text(mean), text(other));
        let keys: Vec<&str> = theirs.lines().filter(|line| !ours.lines().any(|our| our == *line)).collect();
        return differs(folder::CONFIG, &format!("the model ({})", keys.join(", ")));
    }
    for ((name, what, ours), (.., theirs)) in mean.dictionaries().into_iter().zip(other.dictionaries()) {
        if ours != theirs {
            return differs(name, what);
        }
    }
    Ok(())
}
