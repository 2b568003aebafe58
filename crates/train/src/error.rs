//! What can go wrong in training.

use std::path::PathBuf;

use crate::diagnosis::Diagnosis;
use crate::memory;

/// Shorthand for a result with the trainer's error.
pub type Result<T> = std::result::Result<T, Error>;

/// A training error; the text says what, where and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is not valid; all faults, one per line.
    #[error("the configuration is not valid:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// A checkpoint cannot be used.
    #[error("{path}: {message}")]
    Checkpoint {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The loss or the gradient is not a number any more.
    #[error("{0}")]
    NotFinite(Box<Diagnosis>),
    /// A model cannot be trained on with this data or as this model; all faults, one per line.
    #[error("{path} cannot be fine-tuned as this run asks:\n  {}", .faults.join("\n  "))]
    Finetune {
        /// The model folder.
        path: PathBuf,
        /// What does not fit.
        faults: Vec<String>,
    },
    /// The largest batch does not fit into the memory.
    #[error(
        "the largest batch ({}) needs {needed}; lower train.max_tokens (it is {max_tokens}), \
         and raise train.update_freq to keep as many tokens in an update", memory::tokens_of(*tokens)
    )]
    Memory {
        /// Source and target tokens.
        tokens: (u32, u32),
        /// What is needed and what is there.
        needed: String,
        /// The key's value.
        max_tokens: u32,
    },
    /// There is nothing to train on.
    #[error("the training set has no usable sentence pairs or blocks of text")]
    NoData,
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// From the model.
    #[error(transparent)]
    Model(#[from] mae_model::Error),
    /// From the data.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] mae_engine::Error),
    /// From a validator that was plugged in.
    #[error("validation: {0}")]
    Validator(#[source] crate::validate::ValidatorError),
}

impl Error {
    /// Wraps an input/output error with the file it concerns.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
