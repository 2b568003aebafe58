//! Patterns whose matches stay one token: addresses, tags, or patterns of the user.

use std::cmp::Reverse;

use regex::{Regex, RegexBuilder};

use crate::error::Result;
use crate::options::OptionFault;

/// More matches than this in one line are refused, as sacremoses does: the stand-ins have three digits.
pub const MAX_MATCHES: usize = 1000;

/// Times that stand-ins may lengthen a line. Matches as short as a letter are found in stand-ins, too.
const MOST_GROWTH: usize = 64;

const MARKER: &str = "THISISPROTECTED";

/// XML tags, e-mail addresses and addresses of web pages (sacremoses' `BASIC_PROTECTED_PATTERNS`).
const BASIC: [&str; 5] = [
    r"</?\S+/?>",
    r#"<\S+( [a-zA-Z0-9]+="?[^"]")+ ?/?>"#,
    r"<\S+( [a-zA-Z0-9]+='?[^']')+ ?/?>",
    r"[\p{L}\p{N}_.-]+@([\p{L}\p{N}_-]+\.)+[a-zA-Z]{2,}",
    r"(http[s]?|ftp)://[^:/\s]+(/[\p{L}\p{N}_]+)*/[\p{L}\p{N}_.-]+",
];
/// Addresses of web pages, e-mail addresses, `@names` and `#topics` (sacremoses' `WEB_PROTECTED_PATTERNS`).
const WEB: [&str; 4] = [
    r"((https?|ftp|rsync)://|www\.)[^ ]*",
    r"[\p{L}\p{N}_.-]+@([\p{L}\p{N}_-]+\.)+[a-zA-Z]{2,}",
    r"@[a-zA-Z0-9_]+",
    r"#[a-zA-Z0-9_]+",
];

/// A list of patterns, matched without regard to case, in the syntax of the `regex` crate: no look-around and no
/// back-references. Its `\w` also takes combining marks, which Python's does not; else the two agree.
#[derive(Clone, Debug, Default)]
pub struct Protected(Vec<Regex>);

/// Text that was taken out of a line, and its stand-ins.
#[derive(Debug)]
pub(super) struct Spans {
    marker: String,
    tokens: Vec<String>,
}

impl Protected {
    /// Adds a pattern; the error shows where it is wrong.
    pub fn add(&mut self, pattern: &str) -> Result<()> {
        let regex = RegexBuilder::new(pattern).case_insensitive(true).build();
        let fault =
            |e: regex::Error| OptionFault::Pattern { pattern: pattern.to_owned(), fault: e.to_string() };
        self.0.push(regex.map_err(fault)?);
        Ok(())
    }

    /// Adds the tags and addresses of sacremoses' basic set.
    pub fn add_basic(&mut self) {
        self.add_known(&BASIC);
    }

    /// Adds the addresses, `@names` and `#topics` of sacremoses' web set.
    pub fn add_web(&mut self) {
        self.add_known(&WEB);
    }

    fn add_known(&mut self, patterns: &[&str]) {
        for pattern in patterns {
            self.add(pattern).expect("our own patterns are right");
        }
    }

    /// Returns whether nothing is protected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a stand-in made of letters and digits in place of each match, longest first. Empty matches are none.
    pub(super) fn take_out(&self, text: &mut String) -> Result<Spans> {
        let matches = self.0.iter().flat_map(|regex| regex.find_iter(text));
        let tokens: Vec<String> =
            matches.map(|found| found.as_str().to_owned()).filter(|token| !token.is_empty()).collect();
        if tokens.len() > MAX_MATCHES {
            return Err(OptionFault::TooManyMatches { found: tokens.len(), most: MAX_MATCHES }.into());
        }
        let marker = unused_marker(text);
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        order.sort_by_key(|&i| Reverse(tokens[i].chars().count()));
        let most = text.len().saturating_mul(MOST_GROWTH).saturating_add(1 << 16);
        for i in order {
            *text = text.replace(&tokens[i], &stand_in(&marker, i));
            if text.len() > most {
                return Err(OptionFault::ShortMatches.into());
            }
        }
        Ok(Spans { marker, tokens })
    }
}

impl Spans {
    pub(super) fn put_back(&self, text: &mut String) {
        for (i, token) in self.tokens.iter().enumerate() {
            *text = text.replace(&stand_in(&self.marker, i), token);
        }
    }
}

fn stand_in(marker: &str, i: usize) -> String {
    format!("{marker}{i:03}")
}

/// A stem that the text does not have: one `X` more than follow the marker anywhere in it.
fn unused_marker(text: &str) -> String {
    let longest = text
        .match_indices(MARKER)
        .map(|(at, _)| text[at + MARKER.len()..].bytes().take_while(|&b| b == b'X').count() + 1)
        .max();
    format!("{MARKER}{}", "X".repeat(longest.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_comes_back() {
        let mut protected = Protected::default();
        protected.add_web();
        protected.add(r"\d+/\d+").unwrap();
        let original = "see www.a.de/x, 3/4 of THISISPROTECTEDX000 @you and a@b.org or @you2";
        let mut text = original.to_owned();
        let spans = protected.take_out(&mut text).unwrap();
        assert!(!text.contains("www") && !text.contains('@') && !text.contains('/'), "{text}");
        spans.put_back(&mut text);
        assert_eq!(text, original);
    }

    #[test]
    fn wrong_patterns_and_floods_are_refused() {
        let mut protected = Protected::default();
        let error = protected.add("(a").unwrap_err().to_string();
        assert!(error.contains("`(a`") && error.contains("unclosed"), "{error}");
        protected.add("a|").unwrap();
        assert!(protected.take_out(&mut "a ".repeat(1000)).is_ok());
        let error = protected.take_out(&mut "a ".repeat(1001)).unwrap_err().to_string();
        assert!(error.contains("1001 times"), "{error}");
    }
}
