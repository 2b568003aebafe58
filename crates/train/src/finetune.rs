//! A new run that starts with the weights of another model.

use std::path::Path;

use mae_data::{Segmentation, Vocab};
use mae_engine::GroupSet;
use mae_model::{Config, Model, folder, groups, init};

use crate::checkpoint::TextSide;
use crate::dictionaries::{DictionaryMismatch, mismatch, name_in_messages};
use crate::keys::KeyDifference;
use crate::{Error, Result};

/// Reason why a model cannot be fine-tuned in a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FinetuneFault {
    /// A key that decides which parameters there are has another value.
    #[error("{0}")]
    Key(KeyDifference),
    /// The model has gates, and the run's system has none.
    #[error("it has gates, and model.mixture.system = \"{system}\" has none")]
    NoGates {
        /// Key of the run's system.
        system: &'static str,
        /// Name of the model's system, as in `mae7`.
        theirs: String,
    },
    /// The model has gates, and the run's system has gates of another kind.
    #[error("it has gates, and model.mixture.system = \"{system}\" has others")]
    OtherGates {
        /// Key of the run's system.
        system: &'static str,
        /// Name of the model's system, as in `mae7`.
        theirs: String,
    },
    /// A dictionary is not the model's.
    #[error("{0}")]
    Dictionary(DictionaryMismatch),
    /// The data was not segmented as the model's.
    #[error("the data was segmented in another way (BPE codes, tokenizer.json)")]
    Segmentation,
}

impl FinetuneFault {
    /// Returns whether the data must be prepared anew.
    pub fn is_of_data(&self) -> bool {
        matches!(self, Self::Dictionary(_) | Self::Segmentation)
    }
}

/// Source of a fine-tuned model's gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    /// The other model, or neither has gates.
    Loaded,
    /// New: the other model has none. All experts weigh the same at first, so the model computes what it did.
    Uniform,
}

/// Fills `model` with the weights in `path`. The dictionaries and codes of the data, `text`, must be those of the
/// other model; all faults are reported at once.
pub fn load<M: Model>(path: &Path, model: &mut M, text: &TextSide) -> Result<Gates> {
    let config: M::Config = folder::load_config(path)?;
    let mut faults = config_faults(&config, model.config());
    faults.extend(data_faults(path, text)?);
    if !faults.is_empty() {
        return Err(Error::Finetune { path: path.to_owned(), faults });
    }
    let weights = path.join(folder::WEIGHTS);
    let is_new = model.config().mixture().system.is_gated() && !config.mixture().system.is_gated();
    if !is_new {
        folder::load_weights(&weights, model.params_mut())?;
        return Ok(Gates::Loaded);
    }
    let new = GroupSet::of(&[groups::GATE, groups::STATISTICS]);
    folder::load_weights_but(&weights, model.params_mut(), new)?;
    let system = model.config().mixture().system;
    init::make_neutral(model.params_mut(), system)?;
    Ok(Gates::Uniform)
}

/// Keys that decide which parameters there are and what they compute, where they differ.
fn config_faults<C: Config>(theirs: &C, ours: &C) -> Vec<FinetuneFault> {
    let differing = |theirs: Vec<(&'static str, String)>, ours: Vec<(&'static str, String)>| {
        let both = theirs.into_iter().zip(ours).filter(|(theirs, ours)| theirs != ours);
        both.map(|((key, there), (_, here))| {
            FinetuneFault::Key(KeyDifference { key: format!("model.{key}"), there, here })
        })
    };
    let mut faults: Vec<FinetuneFault> = differing(theirs.sizes(), ours.sizes()).collect();
    let (their_mixture, our_mixture) = (theirs.mixture(), ours.mixture());
    let (their_system, our_system) = (their_mixture.system, our_mixture.system);
    if their_system.is_gated() && our_system.is_gated() && their_system.shares_gates_with(our_system) {
        // Also the gates' inputs: gates that were trained on one input say nothing sensible of another.
        faults.extend(differing(their_mixture.gate_keys(), our_mixture.gate_keys()));
    } else if their_system.is_gated() {
        let system = our_system.key();
        faults.push(match our_system.is_gated() {
            true => FinetuneFault::OtherGates { system, theirs: their_mixture.name(theirs.heads()) },
            false => FinetuneFault::NoGates { system, theirs: their_mixture.name(theirs.heads()) },
        });
    }
    faults
}

/// Checks that data with these dictionaries and codes was made for the model in `path`.
pub fn check_data(path: &Path, text: &TextSide) -> Result<()> {
    let faults = data_faults(path, text)?;
    if faults.is_empty() { Ok(()) } else { Err(Error::Finetune { path: path.to_owned(), faults }) }
}

/// Differences between the dictionaries and codes of the data and those of the model in `path`.
fn data_faults(path: &Path, text: &TextSide) -> Result<Vec<FinetuneFault>> {
    let mut faults = Vec::new();
    for (name, ours) in &text.dictionaries {
        let found = mismatch(name_in_messages(name), &Vocab::load(path.join(name))?, ours);
        faults.extend(found.map(FinetuneFault::Dictionary));
    }
    if let (Some(theirs), Some(ours)) = (Segmentation::load(path)?, &text.codes)
        && theirs != *ours
    {
        faults.push(FinetuneFault::Segmentation);
    }
    Ok(faults)
}
