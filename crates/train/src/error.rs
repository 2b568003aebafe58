//! Errors of training.
//!
//! Faults carry keys, values and paths. A program that has flags for them names the flags itself.

use std::path::PathBuf;

use crate::diagnosis::{Diagnosis, Divergence};
use crate::dictionaries::DictionaryMismatch;
use crate::finetune::FinetuneFault;
use crate::history::HistoryError;
use crate::keys::KeyDifference;
use crate::memory;
use crate::recipe::RecipeError;
use crate::validate::ValidatorError;

/// Shorthand for a result with the trainer's error.
pub type Result<T> = std::result::Result<T, Error>;

/// A training error; the text says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is not valid; all faults, one per line.
    #[error("the configuration is not valid:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// A recipe cannot be used.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A run's folder cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A checkpoint cannot be used.
    #[error("{path}: {fault}")]
    Checkpoint {
        /// The folder or file.
        path: PathBuf,
        /// The fault.
        fault: CheckpointFault,
    },
    /// The loss or the gradient is not finite.
    #[error("{0}")]
    NotFinite(Box<Diagnosis>),
    /// The validation loss or a parameter is not finite.
    #[error("{0}")]
    Diverged(Divergence),
    /// A model cannot be fine-tuned with this data or as this model; all faults, one per line.
    #[error("{path} cannot be fine-tuned as this run asks:\n  {}", one_per_line(.faults))]
    Finetune {
        /// The model folder.
        path: PathBuf,
        /// The faults.
        faults: Vec<FinetuneFault>,
    },
    /// The largest batch does not fit into the memory.
    #[error(
        "the largest batch ({}) needs {needed}; lower train.max_tokens (it is {max_tokens}), \
         and raise train.update_freq to keep as many tokens in an update", memory::tokens_of(*tokens)
    )]
    Memory {
        /// Source and target tokens.
        tokens: (u32, u32),
        /// Memory that is needed and memory that is there.
        needed: String,
        /// The key's value.
        max_tokens: u32,
    },
    /// A rank cannot take part in the run of the others; all faults, one per line.
    #[error(
        "rank {rank} cannot take part: all ranks need the same program, configuration and data:\n  {}",
        .faults.join("\n  ")
    )]
    Ranks {
        /// The rank.
        rank: usize,
        /// The faults.
        faults: Vec<String>,
    },
    /// The data is for the other direction of translation.
    #[error("{} is for {target}-{source_language}, not {source_language}-{target}", .folder.display())]
    OtherDirection {
        /// Folder of the data.
        folder: PathBuf,
        /// Source language that was asked for.
        source_language: String,
        /// Target language that was asked for.
        target: String,
    },
    /// There is nothing to train on.
    #[error(
        "the training set has no usable sentence pairs or blocks of text: they are missing, or longer than train.max_tokens or \
         model.max_positions"
    )]
    NoData,
    /// The file system reports a fault.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// The system starts no more threads.
    #[error("cannot start another thread: {0}; raise the limit of processes, or end others")]
    Threads(#[source] std::io::Error),
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
    Validator(#[source] ValidatorError),
}

/// Reason why a checkpoint cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFault {
    /// It holds another model.
    #[error("holds another model than this run asks for ({})", comma_separated(.0))]
    OtherModel(Vec<KeyDifference>),
    /// The run was started with other dictionaries.
    #[error("{0}; continue with the data that the run was started with")]
    OtherDictionary(DictionaryMismatch),
    /// The state cannot be read.
    #[error("{0}: the file is damaged; continue from another checkpoint")]
    DamagedState(String),
    /// The layout of the state is not known.
    #[error("format {found} is not known; this program reads {known}")]
    UnknownFormat {
        /// The file's format.
        found: u32,
        /// The format of this version.
        known: u32,
    },
    /// The memory of the optimiser cannot be read.
    #[error("{0}")]
    DamagedMoments(String),
    /// The memory of the optimiser lacks a part.
    #[error(
        "`{name}` is missing: the run did not train these parameters before (train.free), or with another \
         train.optimizer"
    )]
    MissingMoments {
        /// Name of the part.
        name: String,
    },
    /// A part of the optimiser's memory has the wrong size.
    #[error("`{name}` has the wrong size")]
    WrongSize {
        /// Name of the part.
        name: String,
    },
}

fn one_per_line(faults: &[FinetuneFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

fn comma_separated(differences: &[KeyDifference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// Wraps an input/output error with the file it concerns.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
