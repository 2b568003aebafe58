//! Weights of heads that a model without gates can hold.

use mae_data::ParallelDataset;
use mae_engine::Device;
use mae_model::convert::{HeadWeights, mean_weights};
use mae_model::folder::ModelFolder;

use super::Folder;
use crate::{Error, Result};

/// Cost of folding gates to means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bits per target token of the model with its gates.
    pub gated: f64,
    /// Bits per target token of the model with mean gates.
    pub folded: f64,
    /// Target tokens that were measured.
    pub tokens: u64,
}

/// The heads of one expert in all attentions.
pub fn expert(folder: &Folder, expert: usize) -> Result<HeadWeights> {
    let config = &folder.config;
    Ok(HeadWeights::expert(&config.mixture, config.encoder_attention_heads, expert)?)
}

/// Weights of heads that are the means of the gates over a text, with what they cost on it. `data` must have the
/// dictionaries of the model.
pub fn mean_gates(folder: &Folder, data: &ParallelDataset, device: &Device) -> Result<(HeadWeights, Cost)> {
    let ModelFolder { model, source, target, .. } = ModelFolder::load(&folder.path, device)?;
    if *source != *data.src_vocab || *target != *data.tgt_vocab {
        let fault = "the text was not made with the model's dictionaries".to_owned();
        return Err(Error::unsupported(&folder.path, vec![fault]));
    }
    let (heads, [gated, folded]) = mean_weights(&model, data)?;
    Ok((heads, Cost { gated: gated.loss, folded: folded.loss, tokens: gated.tokens }))
}

/// Returns an error for a model whose gates would be lost.
pub(super) fn check(folder: &Folder, heads: &HeadWeights) -> Result<()> {
    if !folder.config.mixture.system.is_gated() || *heads != HeadWeights::Ones {
        return Ok(());
    }
    let name = folder.config.mixture.name(folder.config.encoder_attention_heads);
    let fault = format!(
        "the system {name} has gates that depend on the input, which this format cannot hold; choose one expert, or \
         mean gates on a text"
    );
    Err(Error::unsupported(&folder.path, vec![fault]))
}
