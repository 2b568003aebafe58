//! From a line to words.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::BleuError;
use crate::text::{
    is_python_space, rewrite_pairs, space_out, space_out_marks, space_out_symbols, undo_entities,
};
use crate::unicode::{is_number, is_punctuation, is_symbol};

/// Tokenisation of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Tokenizer {
    /// mteval-v13a, WMT's and sacreBLEU's default: entities are undone, punctuation and symbols of ASCII
    /// stand alone, and so do periods and commas outside numbers and dashes after digits.
    #[default]
    #[serde(rename = "13a")]
    V13a,
    /// The line as it is; words are separated by Unicode white space (sacreBLEU's `none`, fairseq).
    #[serde(rename = "none")]
    None,
    /// mteval-v14's international mode: punctuation outside numbers and all symbols of Unicode stand alone.
    #[serde(rename = "intl")]
    Intl,
    /// Every character is a word.
    #[serde(rename = "char")]
    Char,
    /// The line as `multi-bleu.perl` reads it, byte by byte: only ASCII white space separates words,
    /// only ASCII letters have a case.
    #[serde(rename = "multi-bleu")]
    MultiBleu,
}

impl Tokenizer {
    /// Lower-cases and tokenises one line; the result is what [`Tokenizer::words`] splits.
    #[must_use]
    pub fn prepare(self, line: &str, lowercase: bool) -> Cow<'_, str> {
        let cased = match (lowercase, self) {
            (false, _) => Cow::Borrowed(line),
            (true, Self::MultiBleu) => Cow::Owned(line.to_ascii_lowercase()),
            (true, _) => Cow::Owned(line.to_lowercase()),
        };
        match self {
            Self::None | Self::MultiBleu => cased,
            Self::V13a => Cow::Owned(tokenize_13a(&cased)),
            Self::Intl => Cow::Owned(tokenize_intl(&cased)),
            Self::Char => Cow::Owned(space_out(&cased, |_| true)),
        }
    }

    /// The words of a line that [`Tokenizer::prepare`] has been through.
    pub fn words(self, prepared: &str) -> impl Iterator<Item = &str> {
        let is_space = match self {
            Self::MultiBleu => is_perl_space,
            _ => is_python_space,
        };
        prepared.split(is_space).filter(|word| !word.is_empty())
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V13a => "13a",
            Self::None => "none",
            Self::Intl => "intl",
            Self::Char => "char",
            Self::MultiBleu => "multi-bleu",
        })
    }
}

impl FromStr for Tokenizer {
    type Err = BleuError;

    fn from_str(name: &str) -> Result<Self, BleuError> {
        match name {
            "13a" => Ok(Self::V13a),
            "none" => Ok(Self::None),
            "intl" => Ok(Self::Intl),
            "char" => Ok(Self::Char),
            "multi-bleu" => Ok(Self::MultiBleu),
            _ => Err(BleuError::UnknownTokenizer(name.to_owned())),
        }
    }
}

/// White space of Perl's `split ' '` in a string of bytes.
pub(super) fn is_perl_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The mteval-v13a tokenisation of a line; words are separated by any white space.
fn tokenize_13a(line: &str) -> String {
    // The ends are blanked out below, and a final period must see a blank, not the line's own '\n'.
    let line = line.trim_end_matches(is_python_space);
    let line = line.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let line = if line.contains('&') { undo_entities(&line) } else { line };
    space_out_marks(&space_out_symbols(&line))
}

/// mteval-v14's international tokenisation; words are separated by any white space.
fn tokenize_intl(line: &str) -> String {
    // A period after a digit at the very end stays with the number, as in mteval: nothing follows it.
    let line = line.trim_end_matches(is_python_space);
    let line = rewrite_pairs(line, |a, b| !is_number(a) && is_punctuation(b), |a, b| [a, ' ', b, ' ']);
    let line = rewrite_pairs(&line, |a, b| is_punctuation(a) && !is_number(b), |a, b| [' ', a, ' ', b]);
    space_out(&line, is_symbol)
}
