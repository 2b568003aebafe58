//! The error of the library.

/// Shorthand for a result with the library's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Anything that can go wrong; the text says what was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From translating or continuing texts: options, models, sentences.
    #[error(transparent)]
    Translate(#[from] mae_translate::Error),
    /// From training: configuration, checkpoints, losses that are not numbers.
    #[error(transparent)]
    Train(#[from] mae_train::Error),
    /// From evaluation.
    #[error(transparent)]
    Evaluate(#[from] mae_eval::Error),
    /// From reading or writing a model.
    #[error(transparent)]
    Model(#[from] mae_model::Error),
    /// From reading or writing text and data sets.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// From a model of another program.
    #[error(transparent)]
    Exchange(#[from] mae_exchange::Error),
    /// From a device.
    #[error(transparent)]
    Device(#[from] mae_engine::Error),
    /// Lists that must be equally long are not.
    #[error("{what}: {found} were given for {wanted}")]
    Lengths {
        /// Name of the list.
        what: &'static str,
        /// Entries that were given.
        found: usize,
        /// Entries that were needed.
        wanted: usize,
    },
    /// A line is longer than a model can read at once.
    #[error(
        "line {line} has {tokens} tokens, the model has {positions} positions; score the lines as one text"
    )]
    LineTooLong {
        /// Place of the line, from 0.
        line: usize,
        /// Its tokens, end mark counted.
        tokens: usize,
        /// Positions of the model.
        positions: usize,
    },
}

impl From<mae_translate::InvalidOptions> for Error {
    fn from(invalid: mae_translate::InvalidOptions) -> Self {
        Self::Translate(invalid.into())
    }
}
