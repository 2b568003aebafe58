//! Errors of translating and of continuing texts.

use std::path::PathBuf;

use mae_data::Vocab;

use crate::experts::ExpertFault;
use crate::options::InvalidOptions;

/// Shorthand for a result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of translating; the text says what was wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Search options contradict each other.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// No model was named.
    #[error("translating needs at least one model")]
    NoModels,
    /// A model folder holds a language model.
    #[error("{path} is a language model, which does not translate")]
    LanguageModel {
        /// The folder.
        path: PathBuf,
    },
    /// A model folder holds a translation model where a language model is needed.
    #[error("{path} is a translation model; a language model is needed here")]
    TranslationModel {
        /// The folder.
        path: PathBuf,
    },
    /// A model folder cannot be read.
    #[error("cannot load the model {path}: {source}")]
    Load {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: mae_model::Error,
    },
    /// The models of an ensemble have different dictionaries.
    #[error(
        "{path} and {first} cannot translate together: their {side} dictionaries ({file}) differ: {difference}"
    )]
    Ensemble {
        /// The first model's folder.
        first: PathBuf,
        /// The folder that differs from it.
        path: PathBuf,
        /// `source` or `target`.
        side: &'static str,
        /// File name of the dictionary.
        file: &'static str,
        /// The first difference.
        difference: String,
    },
    /// A model does not have the experts asked for.
    #[error("{model} {fault}")]
    Experts {
        /// The model's folder, or "the model".
        model: String,
        /// The reason.
        fault: ExpertFault,
    },
    /// Forced beginnings of translations do not fit the sentences or the dictionary.
    #[error("{0}")]
    Prefixes(String),
    /// A shortlist cannot be read.
    #[error("{path}, line {line}: {fault}")]
    Shortlist {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what is expected.
        fault: String,
    },
    /// A shortlist has no words of the model.
    #[error(
        "{path} names {pairs} pairs of words, none of which the dictionaries have: it was made for another model, or for \
         text that is segmented in another way"
    )]
    ForeignShortlist {
        /// The file.
        path: PathBuf,
        /// Pairs of the file.
        pairs: u64,
    },
    /// Shortlists are for CPUs.
    #[error("shortlists are for CPUs: a GPU computes all logits faster than it picks some of them")]
    ShortlistOnGpu,
    /// A source sentence is empty or longer than the model's positions.
    #[error("a source sentence has {tokens} tokens; the model takes 1 to {positions}")]
    Source {
        /// Tokens of the sentence.
        tokens: usize,
        /// Positions of the model.
        positions: usize,
    },
    /// A prompt leaves no position for a new token.
    #[error("a prompt of {tokens} tokens leaves no room for new ones: the model has {positions} positions")]
    Prompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the model.
        positions: usize,
    },
    /// A model's outputs are not numbers (NaN).
    #[error(
        "the model gives no numbers for {unit} {number}; its training has probably diverged: use an earlier checkpoint"
    )]
    NotFinite {
        /// `sentence`, `prompt` or `block`.
        unit: &'static str,
        /// Its place in the input, from 0.
        number: usize,
    },
    /// The system gives no more threads.
    #[error("cannot start threads for translating: {0}; ask for fewer threads")]
    Threads(String),
    /// From the model.
    #[error(transparent)]
    Model(#[from] mae_model::Error),
    /// From the data.
    #[error(transparent)]
    Data(#[from] mae_data::Error),
    /// From the device.
    #[error(transparent)]
    Engine(#[from] mae_engine::Error),
}

/// Describes the first id at which two dictionaries differ; `None` where they are the same.
pub fn dictionary_difference(found: &Vocab, wanted: &Vocab) -> Option<String> {
    let (id, found, wanted) = found.first_difference(wanted)?;
    let quoted = |token: Option<&str>| token.map_or("nothing".into(), |token| format!("`{token}`"));
    Some(format!("id {id} is {} in the one, {} in the other", quoted(found), quoted(wanted)))
}
