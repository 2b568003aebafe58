//! fairseq's command lines: flags of fairseq 0.12 as flags and keys of this program.
//!
//! `mae fairseq-train …`, or the program under the name `fairseq-train`, is fairseq's command with fairseq's defaults.
//! `mae train …` takes fairseq's flags, too, with defaults of its own. Either is rewritten before it is parsed, so that the
//! commands hold only what they need. A flag is the same, becomes another flag or a key, is left out with a note because
//! nothing depends on it, or is refused with the reason and what to write in its place.
//!
//! | room | contents |
//! |---|---|
//! | `list` | fairseq's flags and their numbers of values, from `tools/fairseq_flags.tsv` |
//! | `rule` | what becomes of a flag |
//! | `common`, `training`, `model`, `others` | the table: a rule for every flag |
//! | `values`, `training_values` | rules that depend on the value |
//! | `line` | a command line taken apart |
//! | `defaults` | fairseq's defaults where ours are others |
//! | `document` | the tables of `docs/fairseq.md` |

mod common;
mod defaults;
#[cfg(test)]
mod document;
mod line;
mod list;
mod model;
mod others;
mod rule;
mod training;
mod training_values;
mod values;

use std::ffi::OsString;
use std::path::Path;

use line::Line;
use list::COMMANDS;

/// A command line in our words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// All words, the program's name first.
    pub words: Vec<OsString>,
    /// Flags that were left out, and why.
    pub left_out: Vec<String>,
}

/// Who a command line was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// fairseq: what it does not say has fairseq's defaults.
    ForFairseq,
    /// This program, perhaps with flags of fairseq.
    ForUs,
}

/// Rewrites a command line. Lines of other commands, and those that are not UTF-8, stay as they are.
pub fn translate(words: Vec<OsString>) -> Result<Translated, String> {
    let Some(text) = words.iter().map(|word| word.to_str()).collect::<Option<Vec<&str>>>() else {
        return Ok(Translated { words, left_out: Vec::new() });
    };
    let Some((at, command, written)) = find_command(&text) else {
        return Ok(Translated { words, left_out: Vec::new() });
    };
    let before = if at == 0 { vec!["mae"] } else { text[..at].to_vec() };
    let mut line = Line::read(command, written, &text[at + 1..])?;
    if written == Written::ForFairseq {
        defaults::add(&mut line)?;
    }
    let (rest, left_out) = line.finish()?;
    let words = before.into_iter().chain([command]).map(OsString::from);
    Ok(Translated { words: words.chain(rest.into_iter().map(OsString::from)).collect(), left_out })
}

/// The place of the command's name, our name for it, and whom the line was written for.
fn find_command(words: &[&str]) -> Option<(usize, &'static str, Written)> {
    let called = Path::new(words.first()?).file_stem()?.to_str()?;
    if let Some(command) = fairseqs(called) {
        return Some((0, command, Written::ForFairseq));
    }
    let mut at = 1;
    while words.get(at)?.starts_with('-') {
        at += if words[at] == "--threads" { 2 } else { 1 };
    }
    let word = *words.get(at)?;
    let name = Path::new(word).file_stem()?.to_str()?;
    match COMMANDS.iter().find(|command| **command == word) {
        Some(command) => Some((at, command, Written::ForUs)),
        None => fairseqs(name).map(|command| (at, command, Written::ForFairseq)),
    }
}

/// Our name for a command of fairseq.
fn fairseqs(name: &str) -> Option<&'static str> {
    let ours = match name {
        "average_checkpoints" => "average",
        "eval_lm" => "eval-lm",
        name => name.strip_prefix("fairseq-")?,
    };
    COMMANDS.into_iter().find(|command| *command == ours)
}

#[cfg(test)]
mod tests;
