//! A new run that begins with the weights of another model.

use std::path::Path;

use mae_data::{Segmentation, Vocab, segmentation};
use mae_engine::GroupSet;
use mae_model::folder::Task;
use mae_model::lm::folder::DICT;
use mae_model::{Config, Model, folder, groups};

use crate::checkpoint::TextSide;
use crate::{Error, Result};

/// Where the gates of a fine-tuned model come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    /// From the other model, or there are none in either.
    Loaded,
    /// The other model has none: all experts weigh the same at first, so the model computes what it did.
    Uniform,
}

/// Fills `model` with the weights in `path`. The dictionaries and codes of the data, `text`, must be those of the
/// other model; all faults are told at once.
pub fn load<M: Model>(path: &Path, model: &mut M, text: &TextSide) -> Result<Gates> {
    let config: M::Config = folder::load_config(path)?;
    let mut faults = config_faults(&config, model.config());
    faults.extend(data_faults(path, text, M::Config::TASK)?);
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
    let layer = model.config().mixture().system.neutral_layer().unwrap_or_default();
    let last_layers: Vec<(String, usize)> = model
        .params()
        .named()
        .filter(|p| p.name.contains(&format!(".gate.{layer}.")))
        .map(|p| (p.name.to_owned(), p.shape.iter().product()))
        .collect();
    for (name, count) in last_layers {
        model.params_mut().set(&name, &vec![0.0; count])?;
    }
    Ok(Gates::Uniform)
}

/// Keys that decide what parameters there are and what they compute, where they differ.
fn config_faults<C: Config>(theirs: &C, ours: &C) -> Vec<String> {
    let fault = |(key, theirs, ours): (&str, String, String)| {
        format!("model.{key} is {theirs} there and {ours} here: --set model.{key}={theirs}")
    };
    let pairs = |theirs: Vec<(&'static str, String)>, ours: Vec<(&'static str, String)>| {
        let both = theirs.into_iter().zip(ours);
        both.filter(|(theirs, ours)| theirs != ours).map(|((key, theirs), (_, ours))| (key, theirs, ours))
    };
    let mut faults: Vec<String> = pairs(theirs.sizes(), ours.sizes()).map(fault).collect();
    let (their_mixture, our_mixture) = (theirs.mixture(), ours.mixture());
    let (their_system, our_system) = (their_mixture.system, our_mixture.system);
    if their_system.is_gated() && our_system.is_gated() && their_system.shares_gates_with(our_system) {
        // Also what gates read: they were trained on that, and would say nothing sensible of something else.
        faults.extend(pairs(their_mixture.gate_keys(), our_mixture.gate_keys()).map(fault));
    } else if their_system.is_gated() {
        let has = if our_system.is_gated() { "has others" } else { "has none" };
        faults.push(format!(
            "it has gates, and model.mixture.system = \"{}\" {has}: choose --system {}",
            our_system.key(),
            their_mixture.name(theirs.heads())
        ));
    }
    faults
}

/// Whether data with these dictionaries and codes was made for the model in `path`.
pub fn check_data(path: &Path, text: &TextSide, task: Task) -> Result<()> {
    let faults = data_faults(path, text, task)?;
    if faults.is_empty() { Ok(()) } else { Err(Error::Finetune { path: path.to_owned(), faults }) }
}

/// Where the dictionaries and codes of the data are not those of the model in `path`, and how to prepare it.
fn data_faults(path: &Path, text: &TextSide, task: Task) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, ours) in &text.dictionaries {
        faults.extend(dictionary_fault(which_dictionaries(name), &Vocab::load(path.join(name))?, ours));
    }
    if let (Some(theirs), Some(ours)) = (Segmentation::load(path)?, &text.codes)
        && theirs != *ours
    {
        faults.push("the data was segmented in another way (BPE codes, tokenizer.json)".into());
    }
    if !faults.is_empty() {
        let flags = match task {
            Task::Translation => format!(
                "--srcdict {0}/{1} --tgtdict {0}/{2}",
                path.display(),
                folder::SOURCE_DICT,
                folder::TARGET_DICT
            ),
            Task::LanguageModeling => format!("--only-source --srcdict {}/{DICT}", path.display()),
        };
        faults.push(format!(
            "to prepare the data for this model: mae preprocess {flags} --bpe-codes {}/{}",
            path.display(),
            segmentation::CODES
        ));
    }
    Ok(faults)
}

/// What the dictionaries in a file of this name are called in messages.
pub(crate) fn which_dictionaries(name: &str) -> &'static str {
    match name {
        folder::SOURCE_DICT => "source dictionaries",
        folder::TARGET_DICT => "target dictionaries",
        _ => "dictionaries",
    }
}

/// What is wrong if a model's dictionary and that of the data differ.
pub fn dictionary_fault(which: &str, model: &Vocab, data: &Vocab) -> Option<String> {
    let (id, theirs, ours) = model.first_difference(data)?;
    let entry = |symbol: Option<&str>| symbol.map_or("no entry".to_owned(), |symbol| format!("`{symbol}`"));
    Some(format!(
        "the {which} differ: the model has {} types, the data {}; first at id {id}, where the model has {} \
         and the data {}",
        model.len(),
        data.len(),
        entry(theirs),
        entry(ours)
    ))
}
