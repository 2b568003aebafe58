//! Errors of import and export.

use std::path::{Path, PathBuf};

/// Shorthand for a result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of import or export; the text names the file and the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// A file is damaged, or is not of the format it should have.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// A model has parts that cannot be translated; all of them, one per line.
    #[error("{}: this model cannot be converted:\n  {}", path.display(), faults.join("\n  "))]
    Unsupported {
        /// The file or folder.
        path: PathBuf,
        /// What is not supported, by key.
        faults: Vec<String>,
    },
    /// A file of this program's own formats.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// A model folder or a configuration.
    #[error(transparent)]
    Model(#[from] mae_model::Error),
}

impl Error {
    pub(crate) fn format(path: &Path, what: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn unsupported(path: &Path, faults: Vec<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), faults }
    }
}
