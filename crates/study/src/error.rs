//! Errors of studies.
//!
//! Faults carry names, keys and paths. A program that has flags for them names the flags itself.

use std::path::{Path, PathBuf};

use mae_model::folder::Task;
use mae_train::config::suggestion;
use mae_train::dictionaries::DictionaryMismatch;

/// Shorthand for a result with the error of studies.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a study; the text says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A part of a study has a fault: a file, a system, a method.
    #[error("{part}: {source}")]
    In {
        /// Name of the part.
        part: String,
        /// The fault.
        source: Box<Error>,
    },
    /// A plan does not make sense.
    #[error(transparent)]
    Plan(#[from] PlanFault),
    /// A quickstart cannot be made.
    #[error(transparent)]
    Quickstart(#[from] QuickstartFault),
    /// A plan is not TOML, or has other keys.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// No study has this name.
    #[error("no study is called `{name}`{} (there are {}; or give a .toml file)", suggestion(name, .known.iter()), .known.join(", "))]
    UnknownStudy {
        /// The name that was given.
        name: String,
        /// Names of the studies.
        known: Vec<&'static str>,
    },
    /// The study has no system, or the plan no method, of this name.
    #[error("there is no {what} `{name}`{} (there are {})", suggestion(name, .known.iter()), .known.join(", "))]
    Unknown {
        /// `system` or `method`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The references as plain text cannot be found.
    #[error(
        "the study scores against the plain text {name}, which is neither in {} nor in {}",
        .searched[0].display(), .searched[1].display()
    )]
    NoReference {
        /// Name of the file.
        name: String,
        /// Folders that were searched.
        searched: [PathBuf; 2],
    },
    /// The study scores another language than the one that the data translate into.
    #[error(
        "the study scores {language}, but {} translates {source_language} into {target}",
        .data.display()
    )]
    OtherLanguage {
        /// Language of the study.
        language: String,
        /// Folder of the data.
        data: PathBuf,
        /// Source language of the data.
        source_language: String,
        /// Target language of the data.
        target: String,
    },
    /// The references are the source side of the test set.
    #[error(
        "the reference {reference} is the source side of the test set of {}: its lines are those of {source_language}, not of \
         {target}",
        .data.display()
    )]
    SourceAsReference {
        /// Name of the file.
        reference: String,
        /// Folder of the data.
        data: PathBuf,
        /// Source language of the data.
        source_language: String,
        /// Target language of the data.
        target: String,
    },
    /// The references do not belong to the test set.
    #[error("the reference {reference} has {lines} lines, the split `{split}` of {} has {sentences} sentences", .data.display())]
    ReferenceLength {
        /// Name of the file.
        reference: String,
        /// Its lines.
        lines: usize,
        /// Name of the test set.
        split: String,
        /// Sentences of the test set.
        sentences: usize,
        /// Folder of the data.
        data: PathBuf,
    },
    /// The study's folder has references of another test set.
    #[error("{} has other references than this data: results in one folder are of one test set", .path.display())]
    OtherReferences {
        /// The file.
        path: PathBuf,
    },
    /// A set that is measured is empty.
    #[error("{}: the split `{split}` is empty", .data.display())]
    EmptySplit {
        /// Folder of the data.
        data: PathBuf,
        /// Name of the set.
        split: String,
    },
    /// Runs of the study's folder were made from something else.
    #[error(
        "{} was made from another {}: results in one folder are of one data set and one parent; remove the runs that were \
         made from the other", .run.display(), .parts.join(" and another ")
    )]
    OtherOrigins {
        /// Folder of a run.
        run: PathBuf,
        /// The parts that differ.
        parts: Vec<String>,
    },
    /// A run that is not finished was started with other choices.
    #[error("{0} was started with {1}: resume it as it was started, or remove {0} to start anew", .run.display(), .changes.join(", "))]
    OtherChoices {
        /// Folder of the run.
        run: PathBuf,
        /// The keys that differ.
        changes: Vec<String>,
    },
    /// The data was not made for the model.
    #[error("{} was not made for {}: {fault}; prepare it with the model's dictionaries and codes", .data.display(), .model.display())]
    OtherDictionary {
        /// Folder of the data.
        data: PathBuf,
        /// Folder of the model.
        model: PathBuf,
        /// First difference.
        fault: Box<DictionaryMismatch>,
    },
    /// Blocks of a text are longer than the model's positions.
    #[error("language_model.tokens_per_sample = {tokens}: the model has {positions} positions")]
    Positions {
        /// Tokens of a block.
        tokens: usize,
        /// Positions of the model.
        positions: usize,
    },
    /// A file that a run or a study left cannot be read.
    #[error("{} is damaged; {advice} ({source})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Advice to the user.
        advice: &'static str,
        /// The fault.
        source: serde_json::Error,
    },
    /// A path cannot be written into a configuration.
    #[error("{}: not UTF-8", .path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// The file system reports a fault.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// Action that failed, as in `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// From training.
    #[error(transparent)]
    Train(#[from] mae_train::Error),
    /// From evaluation.
    #[error(transparent)]
    Eval(#[from] mae_eval::Error),
    /// From translating.
    #[error(transparent)]
    Translate(#[from] mae_translate::Error),
    /// From BLEU.
    #[error(transparent)]
    Bleu(#[from] mae_eval::bleu::BleuError),
    /// From a significance test.
    #[error(transparent)]
    Significance(#[from] mae_eval::significance::SignificanceError),
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

impl Error {
    /// Wraps an input/output error with what was tried and the file.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Wraps a fault with the part of the study that has it.
    pub(crate) fn within(self, part: impl Into<String>) -> Self {
        Self::In { part: part.into(), source: Box::new(self) }
    }
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Reason why a plan does not make sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// A table that must be there at least once is missing.
    #[error("there is no [[{0}]]; at least one is needed")]
    Missing(&'static str),
    /// A list is empty.
    #[error("`{key}` is empty; at least one is needed, as in {example}")]
    Empty {
        /// The key.
        key: &'static str,
        /// A value that it could have.
        example: &'static str,
    },
    /// A list has a value twice.
    #[error("`{key}` has {value} twice; once is enough")]
    Twice {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// Two systems or methods have the same name.
    #[error("two {what}s are called `{name}`")]
    SameName {
        /// `system` or `method`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name cannot be that of a folder.
    #[error("`{0}`: names become folders and have letters, digits and . _ + - only")]
    Name(String),
    /// A key of `[train]` that the plan decides itself.
    #[error("train.{key} is the study's to decide: use {instead} instead")]
    Owned {
        /// The key.
        key: &'static str,
        /// The setting that decides it.
        instead: &'static str,
    },
    /// The baseline is not a system of the study.
    #[error("baseline = \"{name}\" is no system{}", suggestion(name, .known.iter()))]
    Baseline {
        /// The name that was given.
        name: String,
        /// Names of the systems.
        known: Vec<String>,
    },
    /// The plan does not say how models are measured.
    #[error("say how models are measured: either [translation] or [language_model]")]
    Test,
    /// A beam of 0.
    #[error("translation.beam = 0 finds nothing; it must be at least 1")]
    Beam,
    /// A language without rules.
    #[error("translation.language: {0}")]
    Language(String),
    /// A language without a reference, or the other way round.
    #[error(
        "translation.language and translation.reference go together: sacreBLEU needs plain text on both sides"
    )]
    Reference,
    /// A part of the training set that is none.
    #[error("fraction {0}: parts are in per cent, above 0 and at most 100")]
    Fraction(f64),
    /// A method that neither starts with a model nor trains one.
    #[error("with nothing to begin with, something must be trained: give it `free`")]
    NothingTrained,
    /// A method without updates.
    #[error("max_update must be above 0")]
    Updates,
    /// A recipe for another task.
    #[error("the recipe {recipe} is for a {found}, the study for a {wanted}")]
    Task {
        /// Name of the recipe.
        recipe: String,
        /// Its task.
        found: Task,
        /// The study's task.
        wanted: Task,
    },
    /// A run without an end.
    #[error("nothing ends this run: give the study max_epoch or max_update")]
    NoEnd,
    /// A number that TOML cannot hold.
    #[error("{0} is too large")]
    TooLarge(u64),
}

/// Reason why a quickstart cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuickstartFault {
    /// No pairs, or more than the grammar has.
    #[error("{pairs} pairs: between 1 and {most} are possible, besides {held_out} that are held out")]
    Pairs {
        /// Pairs that were asked for.
        pairs: usize,
        /// Pairs that are possible.
        most: u64,
        /// Pairs that are held out.
        held_out: usize,
    },
    /// No updates.
    #[error("the number of updates must be above 0")]
    Updates,
    /// A text in the folder was not written by quickstart.
    #[error("{} is there already and no quickstart wrote it; move it away", .0.display())]
    OtherText(PathBuf),
    /// A run in the folder was not made by quickstart.
    #[error("{} is there already and is no run of quickstart; move it away", .0.display())]
    OtherRun(PathBuf),
}
