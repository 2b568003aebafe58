//! Conversion of trained models: gates into a plain model, gates out of a model, and heads out of it.
//!
//! A conversion has three steps, each of which may have nothing to do:
//!
//! 1. Head weights are folded into the output projections ([`Fold`]): the columns of head j times w_j. What is left is a
//!    plain transformer.
//! 2. Heads are removed ([`Removal`]): matrices become smaller, by the same number of heads in every attention.
//! 3. Gates of the new system are added, with zeros in the layer that makes every head weigh 1. The model computes what it
//!    did before, and can be trained from there.
//!
//! In f32 on a CPU the third step changes no bit if the weights of uniform gates, a sum over experts, are 1 without any
//! rounding: [`uniform_weight`] says so. They are for 4, 8 and 16 heads with one to three left out, but not for all numbers
//! (12 heads with one left out: 1 + 2⁻²³).

mod fold;
mod gates;
mod heads;

use mae_data::Corpus;
use serde::Serialize;

pub use self::fold::{HeadWeights, mean_weights};
pub use self::gates::uniform_weight;
use crate::batches::{self, TextLoss};
use crate::config::Mixture;
use crate::importance::{self, TextStatistics};
use crate::kind::{Config, Model};
use crate::lm::LanguageModel;
use crate::system::System;
use crate::translator::Translator;
use crate::{Error, Result};

/// Changes to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// Name of the new system, such as `mae7` or `base`; a number counts the heads that are left.
    pub system: String,
    /// Weights of the heads of a model with experts or gates.
    pub fold: Fold,
    /// Heads to remove.
    pub removal: Option<Removal>,
    /// Hidden width of new gates over experts, if it is to change.
    pub gate_hidden: Option<usize>,
    /// Seed of the layers of new gates that are not zero.
    pub seed: u64,
}

/// Weights that heads get for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// 1: what models without gates have, and gates that have not been trained.
    Uniform,
    /// Those of one expert, h/(h−t) or 0.
    Expert(usize),
    /// The mean over a text of what gates give.
    Mean,
}

/// Heads that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Number of heads of each attention.
    pub heads: usize,
    /// Order of the heads; the first ones are removed.
    pub by: Ranking,
}

/// Order in which heads are removed, by statistics of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// The least important first ([`crate::importance`]).
    Importance,
    /// Those with the smallest mean weight first.
    Weight,
}

/// Heads that were removed from an attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Name of the attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Numbers of the heads, rising.
    pub heads: Vec<usize>,
}

/// A converted model, and what became of it.
pub struct Converted<M> {
    /// The new model.
    pub model: M,
    /// Heads that were removed, by attention.
    pub removed: Vec<Removed>,
    /// Loss on the text before and after, if there was one.
    pub losses: Option<[TextLoss; 2]>,
    /// Weight that new gates over experts give to every head at first; 1 if no bit changes.
    pub uniform_weight: Option<f32>,
}

/// Reason why a model cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionFault {
    /// Statistics of heads need a text.
    #[error("mean weights and rankings of heads are those on a text, and there is none")]
    NoText,
    /// Gates are trained, so that no single weight is right for a head.
    #[error(
        "the gates of this {system} model have been trained: choose one of its experts for all sentences, or the mean \
         of its gates on a text"
    )]
    TrainedGates {
        /// Title of the system.
        system: &'static str,
    },
    /// There is no such expert.
    #[error("there is no expert {expert}: this {system} model has {}", numbered(*experts))]
    NoExpert {
        /// Title of the system.
        system: &'static str,
        /// The expert.
        expert: usize,
        /// Number of experts.
        experts: usize,
    },
    /// Every attention keeps at least one head.
    #[error("{removed} of {heads} heads cannot be removed: an attention needs one")]
    TooManyHeads {
        /// Heads to remove.
        removed: usize,
        /// Heads of each attention.
        heads: usize,
    },
}

fn numbered(experts: usize) -> String {
    match experts {
        0 => "no experts".to_owned(),
        _ => format!("{experts} experts, with the numbers 0 to {}", experts - 1),
    }
}

impl From<ConversionFault> for Error {
    fn from(fault: ConversionFault) -> Self {
        Self::Conversion(fault)
    }
}

/// A model whose mixture and heads can be others.
pub trait Convertible: Model + Sized {
    /// A model of the same sizes and dictionaries with this mixture and these heads, all parameters zero.
    fn rebuilt(&self, mixture: Mixture, heads: usize, head_dim: usize) -> Result<Self>;
    /// Value of `head_dim` in the configuration.
    fn head_dim(&self) -> usize;
}

impl Convertible for Translator {
    fn rebuilt(&self, mixture: Mixture, heads: usize, head_dim: usize) -> Result<Self> {
        let mut config = self.config().clone();
        (config.mixture, config.encoder_attention_heads, config.head_dim) = (mixture, heads, head_dim);
        let source_types = self.params().find("encoder.embed_tokens.weight")?.shape[0];
        Self::zeroed(&config, [source_types, self.target_types()], self.params().device())
    }

    fn head_dim(&self) -> usize {
        self.config().head_dim
    }
}

impl Convertible for LanguageModel {
    fn rebuilt(&self, mixture: Mixture, heads: usize, head_dim: usize) -> Result<Self> {
        let mut config = self.config().clone();
        (config.mixture, config.decoder_attention_heads, config.head_dim) = (mixture, heads, head_dim);
        Self::zeroed(&config, self.target_types(), self.params().device())
    }

    fn head_dim(&self) -> usize {
        self.config().head_dim
    }
}

/// Converts a model. `text` is needed for [`Fold::Mean`] and for a [`Removal`]; where there is one, the losses before and
/// after are measured on it.
pub fn convert<M: Convertible>(
    model: &M,
    conversion: &Conversion,
    text: Option<&dyn Corpus>,
) -> Result<Converted<M>> {
    let (heads, old) = (model.config().heads(), model.config().mixture());
    let removed = conversion.removal.map_or(0, |removal| removal.heads);
    if removed >= heads {
        return Err(ConversionFault::TooManyHeads { removed, heads }.into());
    }
    let named = System::named(&conversion.system, heads - removed)?;
    let mixture = Mixture {
        system: named.system,
        dropped_heads: named.dropped_heads.unwrap_or(old.dropped_heads),
        gate_input: named.gate_input,
        gate_hidden: conversion.gate_hidden.unwrap_or(old.gate_hidden),
        ..old.clone()
    };
    let statistics = statistics(model, conversion, text)?;
    let weights = fold::weights(model, conversion.fold, statistics.as_ref())?;
    let mut plain = fold::plain(model, &weights)?;
    let mut report = Vec::new();
    if let (Some(removal), Some(statistics)) = (conversion.removal, &statistics) {
        report = heads::weakest(statistics, removal);
        plain = heads::without(&plain, &report)?;
    }
    let model = gates::with(&plain, mixture, conversion.seed)?;
    let uniform_weight = match (named.system.is_gated(), model.config().mixture().experts(heads - removed)) {
        (true, Some(experts)) => Some(uniform_weight(experts)),
        _ => None,
    };
    let losses = match (statistics, text) {
        (Some(before), Some(text)) => Some([before.loss, batches::loss(&model, text)?]),
        _ => None,
    };
    Ok(Converted { model, removed: report, losses, uniform_weight })
}

/// Statistics of the heads on the text, if there is one.
fn statistics<M: Model>(
    model: &M,
    conversion: &Conversion,
    text: Option<&dyn Corpus>,
) -> Result<Option<TextStatistics>> {
    match text {
        Some(text) => Ok(Some(importance::of_text(model, text)?)),
        None if conversion.fold == Fold::Mean || conversion.removal.is_some() => {
            Err(ConversionFault::NoText.into())
        }
        None => Ok(None),
    }
}
