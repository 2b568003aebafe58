//! From a line to words.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::BleuError;

/// How a line becomes words.
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
            (true, Self::None | Self::V13a) => Cow::Owned(line.to_lowercase()),
        };
        match self {
            Self::None | Self::MultiBleu => cased,
            Self::V13a => Cow::Owned(tokenize_13a(&cased)),
        }
    }

    /// The words of a line that [`Tokenizer::prepare`] has been through.
    pub fn words(self, prepared: &str) -> impl Iterator<Item = &str> {
        let is_space = match self {
            Self::None | Self::V13a => is_python_space,
            Self::MultiBleu => is_perl_space,
        };
        prepared.split(is_space).filter(|word| !word.is_empty())
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V13a => "13a",
            Self::None => "none",
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
            "multi-bleu" => Ok(Self::MultiBleu),
            _ => Err(BleuError::UnknownTokenizer(name.to_owned())),
        }
    }
}

/// What Python's `str.split` takes for white space: Unicode's property and four ASCII separators.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// What Perl's `split ' '` takes for white space in a string of bytes.
fn is_perl_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The ASCII symbols that always stand alone: all but `'`, `,`, `-` and `.`.
fn stands_alone(c: char) -> bool {
    matches!(c, ' '..='&' | '('..='+' | '/' | ':'..='@' | '['..='`' | '{'..='~')
}

/// The mteval-v13a tokenisation of a line; words are separated by any white space.
fn tokenize_13a(line: &str) -> String {
    // The ends are blanked out below, and a final period must see a blank, not the line's own '\n'.
    let line = line.trim_end_matches(is_python_space);
    let line = line.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let line = if line.contains('&') { undo_entities(&line) } else { line };

    let mut spaced = String::with_capacity(line.len() * 3 / 2 + 2);
    spaced.push(' ');
    for c in line.chars() {
        if stands_alone(c) {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    spaced.push(' ');

    let is_mark = |c: char| c == '.' || c == ',';
    let is_digit = |c: char| c.is_ascii_digit();
    // Periods and commas stand alone unless a digit comes before them …
    let spaced = rewrite_pairs(&spaced, |a, b| !is_digit(a) && is_mark(b), |a, b| [a, ' ', b, ' ']);
    // … and unless a digit follows them.
    let spaced = rewrite_pairs(&spaced, |a, b| is_mark(a) && !is_digit(b), |a, b| [' ', a, ' ', b]);
    // A dash stands alone after a digit.
    rewrite_pairs(&spaced, |a, b| is_digit(a) && b == '-', |a, b| [a, ' ', b, ' '])
}

/// Replaces, from left to right and without overlap, every pair of neighbours that `hit` accepts.
fn rewrite_pairs(
    text: &str,
    hit: impl Fn(char, char) -> bool,
    replacement: impl Fn(char, char) -> [char; 4],
) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        match chars.next_if(|&second| hit(first, second)) {
            Some(second) => out.extend(replacement(first, second)),
            None => out.push(first),
        }
    }
    out
}

/// The four entities of mteval, undone one after the other: `&amp;lt;` ends up as `<`.
fn undo_entities(line: &str) -> String {
    line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}
