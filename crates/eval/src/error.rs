//! Errors of evaluation.

/// Shorthand for a result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of evaluation; the text says what was wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From translating.
    #[error(transparent)]
    Translate(#[from] mae_translate::Error),
    /// From counting BLEU.
    #[error(transparent)]
    Bleu(#[from] crate::bleu::BleuError),
    /// From counting a metric.
    #[error(transparent)]
    NoReference(#[from] crate::metric::NoReference),
    /// From a significance test.
    #[error(transparent)]
    Significance(#[from] crate::significance::SignificanceError),
    /// From the model.
    #[error(transparent)]
    Model(#[from] mae_model::Error),
    /// From the data.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// Tags that do not belong to the data set.
    #[error("there are {tags} tags for {sentences} sentence pairs; each pair needs a line with its tag")]
    Tags {
        /// Number of tags.
        tags: usize,
        /// Number of sentence pairs.
        sentences: usize,
    },
    /// From the device.
    #[error(transparent)]
    Engine(#[from] mae_engine::Error),
}
