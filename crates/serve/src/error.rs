//! Errors of starting and running the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use mae::data::moses::Lang;

/// Shorthand for a result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the server itself; errors of requests are answers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From loading or running a model.
    #[error(transparent)]
    Mae(#[from] mae::Error),
    /// No model was named.
    #[error("a server needs at least one model")]
    NoModels,
    /// Two models have the same name.
    #[error("two models are named {name}: {first} and {second}; give one another name")]
    SameName {
        /// The name.
        name: String,
        /// Folder of the first.
        first: PathBuf,
        /// Folder of the second.
        second: PathBuf,
    },
    /// The languages of a translation model are not known.
    #[error(
        "the languages of {folder} are not known: it has no text.json, and its name holds no pair of known \
         codes, such as de-en; give it one (de-en=FOLDER)"
    )]
    NoLanguages {
        /// The folder.
        folder: PathBuf,
    },
    /// Moses' rules were asked for languages that have none.
    #[error(
        "there are no rules to tokenise {language}, a language of {name}; there are for {known}",
        known = Lang::codes()
    )]
    NoRules {
        /// The language.
        language: String,
        /// Name of the model.
        name: String,
    },
    /// The address cannot be listened to.
    #[error("cannot listen to {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of API keys cannot be read.
    #[error("{path}: {message}")]
    Keys {
        /// The file.
        path: PathBuf,
        /// The reason, with the line.
        message: String,
    },
    /// A thread or the runtime cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A load test cannot be run.
    #[error("{0}")]
    Load(String),
}
