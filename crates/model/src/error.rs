//! Errors of models and their files.

use std::path::PathBuf;

use crate::convert::ConversionFault;

/// Shorthand for a result with the model's error.
pub type Result<T> = std::result::Result<T, Error>;

/// A model error; the text names the file and key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration contradicts itself; all faults, one per line.
    #[error("the model configuration is not valid:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// Data holds ids that the model has no embedding for.
    #[error(
        "a {sample} holds id {id}, the dictionary has {types} types; the data was not made with the model's dictionaries"
    )]
    ForeignIds {
        /// What holds it: a source sentence, a target sentence or a block.
        sample: &'static str,
        /// The id.
        id: u32,
        /// Types of the model's dictionary.
        types: usize,
    },
    /// No system has this name.
    #[error("no system is called `{name}`; there are {}", .known.join(", "))]
    NoSystem {
        /// The name.
        name: String,
        /// Names that there are.
        known: Vec<String>,
    },
    /// A system's name lacks the number of heads that an expert keeps.
    #[error("system `{name}`: after `mae` comes the number of heads that an expert keeps, as in mae7")]
    KeptHeadsMissing {
        /// The name.
        name: String,
    },
    /// An expert cannot keep that many heads.
    #[error("system `{name}`: an expert keeps between 1 and {} of {heads} heads", .heads.saturating_sub(1))]
    KeptHeads {
        /// The name.
        name: String,
        /// Heads of each attention.
        heads: usize,
    },
    /// All embeddings are shared, and the two sides have different dictionaries.
    #[error(
        "share_embeddings = \"all\" needs one dictionary for both sides; the two differ ({source_types} source and \
         {target_types} target types)"
    )]
    TwoDictionaries {
        /// Types of the source dictionary.
        source_types: usize,
        /// Types of the target dictionary.
        target_types: usize,
    },
    /// A model's loss on a text is not a number.
    #[error("the loss of the model on this text is not a number; its training may have diverged")]
    NotFinite,
    /// A text holds nothing that the model can read.
    #[error("the text has no sentence pair or block that fits the positions of the model")]
    EmptyText,
    /// A model cannot be converted as asked.
    #[error("{0}")]
    Conversion(ConversionFault),
    /// A configuration file does not say what it should.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser found, with line and key.
        message: String,
    },
    /// A folder holds no model; says where one may be.
    #[error("{folder} is not a model folder: there is no {folder}/config.toml. {hint}")]
    NoModel {
        /// The folder.
        folder: PathBuf,
        /// What to do.
        hint: String,
    },
    /// A weight file does not fit the configuration; all faults, one per line.
    #[error("{path} does not fit this model:\n  {}", .faults.join("\n  "))]
    Weights {
        /// The file.
        path: PathBuf,
        /// One fault per parameter.
        faults: Vec<String>,
    },
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A dictionary could not be read.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] mae_engine::Error),
}

impl Error {
    /// An error if one of `ids` has no row in a table of `types` rows.
    pub(crate) fn check_ids<'a>(
        sample: &'static str,
        ids: impl IntoIterator<Item = &'a u32>,
        types: usize,
    ) -> Result<()> {
        match ids.into_iter().copied().max() {
            Some(id) if id as usize >= types => Err(Self::ForeignIds { sample, id, types }),
            _ => Ok(()),
        }
    }

    /// Wraps an input/output error with the file it concerns.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
