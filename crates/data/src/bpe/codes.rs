//! The merge list and its file: `#version: 0.2`, then one merge per line, the first learned first.

use std::path::Path;

use super::END_OF_WORD;
use crate::error::{Error, Result};
use crate::files;
use crate::lines::{BadUtf8, LineReader};
use crate::vocab::shorten;

/// Mark of the end of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `</w>` is a symbol of its own (files without a version line).
    V0_1,
    /// `</w>` is part of the last character.
    #[default]
    V0_2,
}

/// A list of merges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codes {
    /// Mark of the end of a word.
    pub version: Version,
    /// The merges, first learned first.
    pub merges: Vec<(Box<str>, Box<str>)>,
}

impl Codes {
    /// Reads a codes file of subword-nmt.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut codes = Self { version: Version::V0_1, merges: Vec::new() };
        let mut reader = LineReader::open(path, BadUtf8::Error)?;
        let mut blank = None;
        while let Some(text) = reader.next_line()? {
            let text = text.trim_matches(super::is_margin).to_owned();
            let line = reader.lines_read();
            let fail = |line, what: String| Err(Error::format(path, line, what));
            if line == 1 && text.starts_with("#version:") {
                match parse_version(&text) {
                    Some(version) => codes.version = version,
                    None => return fail(1, format!("`{text}` is not supported; versions 0.1 and 0.2 are")),
                }
                continue;
            }
            if text.is_empty() {
                blank = blank.or(Some(line));
                continue;
            }
            if let Some(blank) = blank {
                return fail(blank, "an empty line between merges; the file is damaged".into());
            }
            let mut parts = text.split(' ');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(left), Some(right), None) if !left.is_empty() && !right.is_empty() => {
                    codes.merges.push((left.into(), right.into()));
                }
                (_, _, Some(third)) if third.bytes().all(|b| b.is_ascii_digit()) => {
                    let what = "three fields: these look like fastBPE codes; keep the first two (`cut -d' ' -f1,2`) \
                                and put `#version: 0.2` on a line before them";
                    return fail(line, what.into());
                }
                _ => {
                    let what = format!(
                        "expected two symbols with one space between, found `{}`; is this a BPE codes file?",
                        shorten(&text)
                    );
                    return fail(line, what);
                }
            }
        }
        // A file of version 0.2 says so; where it says no more, words become characters on purpose.
        if codes.is_empty() && codes.version == Version::V0_1 {
            let what = "there are no merges, not even a line `#version: 0.2`; is this a BPE codes file?";
            return Err(Error::dataset(path, what));
        }
        Ok(codes)
    }

    /// Writes the codes file (aside, then renamed).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write_with(path.as_ref(), |out| self.lines().try_for_each(|line| writeln!(out, "{line}")))
    }

    /// The lines of the codes file.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let version = (self.version == Version::V0_2).then(|| "#version: 0.2".to_owned());
        version.into_iter().chain(self.merges.iter().map(|(left, right)| format!("{left} {right}")))
    }

    /// Number of merges.
    pub fn len(&self) -> usize {
        self.merges.len()
    }

    /// Returns whether there are no merges: words become characters.
    pub fn is_empty(&self) -> bool {
        self.merges.is_empty()
    }
}

/// `#version: 0.2` (or `0.2.0`, …).
fn parse_version(line: &str) -> Option<Version> {
    let mut number = line.split_whitespace().last()?.trim_start_matches("#version:");
    while let Some(shorter) = number.strip_suffix(".0") {
        number = shorter;
    }
    match number {
        "0.1" => Some(Version::V0_1),
        "0.2" => Some(Version::V0_2),
        _ => None,
    }
}

/// A symbol without its end-of-word mark, if it has one.
pub(super) fn without_end(symbol: &str) -> Option<&str> {
    symbol.strip_suffix(END_OF_WORD)
}
