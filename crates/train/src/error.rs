//! What can go wrong in training.

use std::path::PathBuf;

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
    #[error(
        "update {update} (epoch {epoch}): the {what} is {value}; sentences of the batch: {sentences:?}. \
         The last checkpoint is as it was; lower the learning rate, clip gradients, or look at these sentences"
    )]
    NotFinite {
        /// The update, counted from 1.
        update: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Numbers of the sentences in the training set, from 0; the first few.
        sentences: Vec<u32>,
    },
    /// There is nothing to train on.
    #[error("the training set has no usable sentence pairs")]
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
    Validator(String),
}

impl Error {
    /// Wraps an input/output error with the file it concerns.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
