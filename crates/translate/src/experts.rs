//! Choice of the experts of a mixture that compute.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mae_engine::Tensor;
use mae_model::experts::mean_row;
use mae_model::{Config, Draws, ExpertMode, ModelConfig, System, Translator};

use crate::error::{Error, Result};

/// The experts that compute in every attention of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertChoice {
    /// All, weighted by the gates.
    #[default]
    Mix,
    /// The gates' favourite.
    Argmax,
    /// One drawn per sentence and attention, all equally likely.
    Random,
    /// The one of this number, from 0.
    Number(u32),
}

/// The reason why a model cannot compute with an [`ExpertChoice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpertFault {
    /// The model's system has no experts.
    #[error("has no mixture ({0}): all of it computes")]
    NoMixture(System),
    /// The model has experts, but no gates that prefer one.
    #[error("has no gates ({0}): draw experts at random or choose one by its number")]
    NoGates(System),
    /// There are fewer experts.
    #[error("has {count} experts, numbers 0 to {}; there is no number {number}", count.saturating_sub(1))]
    NoSuchExpert {
        /// The number asked for.
        number: u32,
        /// The number of experts.
        count: usize,
    },
    /// There is no attention of this name.
    #[error("has no attention {0}; the first is encoder.layers.0.self_attn")]
    NoSuchAttention(String),
    /// There are fewer heads.
    #[error("has {count} heads, numbers 0 to {}; there is no number {number}", count.saturating_sub(1))]
    NoSuchHead {
        /// The number asked for.
        number: usize,
        /// The number of heads.
        count: usize,
    },
    /// All experts of an attention are switched off.
    #[error("needs at least one expert in {0}")]
    AllOff(String),
    /// Experts are drawn from gates in training only.
    #[error("cannot sample experts from its gates outside training")]
    TrainingOnly,
}

impl ExpertChoice {
    /// The mode of a pass; `seed` decides random experts.
    pub fn mode(self, seed: u64) -> ExpertMode {
        match self {
            Self::Mix => ExpertMode::Mix,
            Self::Argmax => ExpertMode::Argmax,
            Self::Random => ExpertMode::Random(Draws { seed, places: Vec::new() }),
            Self::Number(number) => ExpertMode::Fixed(number),
        }
    }

    /// Checks that a model of this configuration has such experts.
    pub fn check(self, config: &impl Config) -> std::result::Result<(), ExpertFault> {
        check_mode(&self.mode(0), config)
    }
}

/// Experts and heads of an attention that do not take part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchedOff {
    /// Name of the attention, `encoder.layers.0.self_attn`.
    pub attention: String,
    /// Numbers of experts, from 0; their shares go to the others evenly.
    pub experts: Vec<usize>,
    /// Numbers of heads, from 0.
    pub heads: Vec<usize>,
}

impl SwitchedOff {
    fn check(&self, config: &ModelConfig) -> std::result::Result<(), ExpertFault> {
        let (heads, system) = (config.heads(), config.mixture.system);
        let Some(experts) = config.mixture.experts(heads) else { return Err(ExpertFault::NoMixture(system)) };
        let layers = [("encoder", config.encoder_layers), ("decoder", config.decoder_layers)];
        let exists = layers.iter().any(|&(side, layers)| {
            let name = |part: &str, layer: usize| self.attention == format!("{side}.layers.{layer}.{part}");
            (0..layers).any(|l| name("self_attn", l) || side == "decoder" && name("encoder_attn", l))
        });
        if !exists {
            return Err(ExpertFault::NoSuchAttention(self.attention.clone()));
        }
        let count = experts.count();
        if let Some(&number) = self.experts.iter().find(|number| **number >= count) {
            return Err(ExpertFault::NoSuchExpert { number: number as u32, count });
        }
        if let Some(&number) = self.heads.iter().find(|number| **number >= heads) {
            return Err(ExpertFault::NoSuchHead { number, count: heads });
        }
        match (0..count).all(|expert| self.experts.contains(&expert)) {
            true => Err(ExpertFault::AllOff(self.attention.clone())),
            false => Ok(()),
        }
    }
}

/// The mode of a pass in which all experts compute but for those that are switched off.
pub fn without(model: &Translator, off: &[SwitchedOff]) -> std::result::Result<ExpertMode, ExpertFault> {
    let (config, device) = (model.config(), model.params().device());
    let heads = config.heads();
    let mut matrices = BTreeMap::new();
    for off in off {
        off.check(config)?;
        let Some(experts) = config.mixture.experts(heads) else { continue };
        let mut matrix = experts.matrix_without(&off.experts, &off.heads);
        if !config.mixture.system.is_gated() {
            matrix = mean_row(&matrix, heads, 0..experts.count());
        }
        let tensor = Tensor::from_host(device, [matrix.len() / heads, heads], &matrix);
        matrices.insert(off.attention.clone(), tensor);
    }
    Ok(ExpertMode::Altered(Arc::new(matrices)))
}

/// Checks that a model of this configuration can compute in this mode.
pub(crate) fn check_mode(mode: &ExpertMode, config: &impl Config) -> std::result::Result<(), ExpertFault> {
    let system = config.mixture().system;
    let count = config.mixture().experts(config.heads()).map_or(0, |experts| experts.count());
    match mode {
        ExpertMode::Sample => Err(ExpertFault::TrainingOnly),
        ExpertMode::Mix | ExpertMode::Given(_) | ExpertMode::Weights(_) => Ok(()),
        ExpertMode::InEncoder(inner) => check_mode(inner, config),
        _ if !system.has_experts() => Err(ExpertFault::NoMixture(system)),
        ExpertMode::Argmax if !system.is_gated() => Err(ExpertFault::NoGates(system)),
        &ExpertMode::Fixed(number) if number as usize >= count => {
            Err(ExpertFault::NoSuchExpert { number, count })
        }
        _ => Ok(()),
    }
}

/// The same for several models with the names they have in messages.
pub(crate) fn check_modes<'a, C: Config + 'a>(
    mode: &ExpertMode,
    models: impl IntoIterator<Item = (String, &'a C)>,
) -> Result<()> {
    models.into_iter().try_for_each(|(model, config)| {
        check_mode(mode, config).map_err(|fault| Error::Experts { model, fault })
    })
}

impl FromStr for ExpertChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "mix" => Ok(Self::Mix),
            "argmax" => Ok(Self::Argmax),
            "random" => Ok(Self::Random),
            number => match number.parse() {
                Ok(number) => Ok(Self::Number(number)),
                Err(_) => Err("expected mix, argmax, random or the number of an expert, from 0".into()),
            },
        }
    }
}

impl fmt::Display for ExpertChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mix => f.write_str("mix"),
            Self::Argmax => f.write_str("argmax"),
            Self::Random => f.write_str("random"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for text in ["mix", "argmax", "random", "3"] {
            assert_eq!(text.parse::<ExpertChoice>().unwrap().to_string(), text);
        }
        assert!("best".parse::<ExpertChoice>().unwrap_err().contains("mix, argmax, random"));
    }
}
