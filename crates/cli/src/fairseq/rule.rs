//! What becomes of a flag.

use super::line::Line;
use super::{common, model, others, training};

/// Rule for a flag.
#[derive(Clone, Copy)]
pub enum Rule {
    /// The command has the flag, with the same meaning.
    Same,
    /// The value of the flag becomes that of a key.
    Key(&'static str),
    /// Keys with values in place of a flag without one, separated by blanks.
    Keys(&'static str),
    /// Other words of ours, before the value if there is one.
    Words(&'static str),
    /// Only this value, which says nothing new here; the text says why.
    Only(&'static str, &'static str),
    /// Nothing depends on it here: it is left out, with this reason.
    Unneeded(&'static str),
    /// There is nothing like it: what to write in its place.
    Unsupported(&'static str),
    /// It depends on the flag, its value and the line; the text says how.
    By(fn(&str, &str, &mut Line) -> Answer, &'static str),
}

/// What becomes of a flag with a value.
pub enum Answer {
    /// These words.
    Words(Vec<String>),
    /// It is left out, with this reason.
    LeftOut(String),
    /// The line is refused, with this reason.
    Refused(String),
    /// The line is refused: only what the table says is possible.
    Otherwise,
}

impl Answer {
    /// A key with its value.
    pub fn key(key: &str, value: &str) -> Self {
        Self::Words(vec!["--set".to_owned(), format!("{key}={value}")])
    }

    /// A flag with its value.
    pub fn flag(flag: &str, value: &str) -> Self {
        Self::Words(vec![format!("{flag}={value}")])
    }

    /// Nothing, without a note.
    pub fn nothing() -> Self {
        Self::Words(Vec::new())
    }
}

/// A row of the table: flags of fairseq separated by blanks, and their rule.
pub type Row = (&'static str, Rule);

/// Rows of a command alone, and those of all commands.
pub fn tables(command: &str) -> Vec<&'static [Row]> {
    let own: &[&[Row]] = match command {
        "preprocess" => &[others::PREPROCESS],
        "train" => &[training::TRAIN, training::CHECKPOINTS, model::MODEL],
        "generate" => &[others::GENERATE, others::SEARCH],
        "interactive" => &[others::INTERACTIVE, others::SEARCH],
        "eval-lm" => &[others::EVAL_LM],
        "validate" => &[others::VALIDATE],
        "score" => &[others::SCORE],
        "average" => &[others::AVERAGE],
        _ => &[],
    };
    let shared: &[&[Row]] = match command {
        "score" | "average" => &[],
        "preprocess" => &[common::COMMON],
        _ => &[common::COMMON, common::DATA, common::PROCESSES],
    };
    own.iter().chain(shared).copied().collect()
}

/// The rule for a flag of a command.
pub fn find(command: &str, flag: &str) -> Option<Rule> {
    let rows = tables(command).into_iter().flatten();
    rows.into_iter().find(|(names, _)| names.split(' ').any(|name| name == flag)).map(|(_, rule)| *rule)
}
