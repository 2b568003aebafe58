//! Choice of the experts of a mixture that compute.

use std::fmt;
use std::str::FromStr;

use mae_model::{Config, Draws, ExpertMode, System};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
