//! Normalisers and pre-tokenisers: a line to the words that merges work on.

use std::sync::LazyLock;

use regex::Regex;

use super::bytes;

/// A change of the text before it is split.
pub(super) enum Normalizer {
    /// Lower case.
    Lowercase,
    /// This before the text, unless there is none.
    Prepend(String),
    /// One string for another.
    Replace(String, String),
    /// No white space at the left, at the right.
    Strip(bool, bool),
}

impl Normalizer {
    /// Times that a text can become longer, at most; what comes before it is not counted.
    pub(super) fn growth(&self) -> f64 {
        match self {
            // An empty pattern is found beside every byte.
            Self::Replace(from, to) if from.is_empty() => 1.0 + 2.0 * to.len() as f64,
            Self::Replace(from, to) => (to.len() as f64 / from.len() as f64).max(1.0),
            // Few letters have a longer lower case.
            Self::Lowercase => 1.5,
            Self::Prepend(_) | Self::Strip(..) => 1.0,
        }
    }

    pub(super) fn apply(&self, text: String) -> String {
        match self {
            // Letter by letter: no final sigma.
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::Prepend(_) if text.is_empty() => text,
            Self::Prepend(before) => before.clone() + &text,
            Self::Replace(from, to) => text.replace(from, to),
            Self::Strip(left, right) => {
                let text = if *left { text.trim_start() } else { &text };
                if *right { text.trim_end().to_owned() } else { text.to_owned() }
            }
        }
    }
}

/// Condition for a blank before a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Always,
    First,
    Never,
}

/// A way to split text into words.
pub(super) enum PreTokenizer {
    /// Words, numbers and punctuation apart, each with the blank before it; then bytes as printable characters.
    ByteLevel { prefix_space: bool, split: bool },
    /// Words and punctuation apart, white space gone.
    Whitespace,
    /// At white space, which is gone.
    WhitespaceSplit,
    /// A mark for each blank, and a word begins at each mark.
    Metaspace { mark: char, prefix: Prefix, split: bool },
}

impl PreTokenizer {
    /// The words of a text; `first`: the text begins the line.
    pub(super) fn split(&self, text: &str, first: bool) -> Vec<String> {
        match self {
            Self::ByteLevel { prefix_space, split } => {
                let spaced;
                let text = if *prefix_space && !text.starts_with(' ') {
                    spaced = format!(" {text}");
                    &spaced
                } else {
                    text
                };
                let words = if *split { byte_level_words(text) } else { vec![text] };
                words.into_iter().map(|word| word.bytes().map(bytes::char_of).collect()).collect()
            }
            Self::Whitespace => {
                static WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"\w+|[^\w\s]+"));
                WORD.find_iter(text).map(|word| word.as_str().to_owned()).collect()
            }
            Self::WhitespaceSplit => text.split_whitespace().map(str::to_owned).collect(),
            Self::Metaspace { mark, prefix, split } => {
                let mut text = text.replace(' ', mark.encode_utf8(&mut [0; 4]));
                let wanted = *prefix == Prefix::Always || (*prefix == Prefix::First && first);
                if wanted && !text.starts_with(*mark) {
                    text.insert(0, *mark);
                }
                if !split {
                    return vec![text];
                }
                let starts = text.match_indices(*mark).map(|(at, _)| at).filter(|&at| at > 0);
                let ends: Vec<_> = starts.chain([text.len()]).collect();
                let begins = [0].into_iter().chain(ends.iter().copied());
                begins.zip(&ends).map(|(begin, &end)| text[begin..end].to_owned()).collect()
            }
        }
    }
}

/// GPT-2's words: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, where the look
/// ahead means that a run of white space leaves its last character to the word after it.
fn byte_level_words(text: &str) -> Vec<&str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+"));
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(found) = WORD.find_at(text, at) {
        let word = found.as_str();
        let last = word.chars().next_back().map_or(0, char::len_utf8);
        let is_blank = word.chars().all(char::is_whitespace);
        let end = if is_blank && found.end() < text.len() && word.len() > last {
            found.end() - last
        } else {
            found.end()
        };
        words.push(&text[found.start()..end]);
        at = end;
    }
    words
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is valid")
}

#[cfg(test)]
mod tests {
    use super::{PreTokenizer, Prefix, byte_level_words};

    #[test]
    fn words_keep_the_blank_before_them() {
        let words = byte_level_words("it's  a\t\n 12x?! ü  ");
        assert_eq!(words, ["it", "'s", " ", " a", "\t\n", " 12", "x", "?!", " ü", "  "]);
    }

    #[test]
    fn marks_begin_words() {
        let metaspace = PreTokenizer::Metaspace { mark: '▁', prefix: Prefix::Always, split: true };
        assert_eq!(metaspace.split("a  bc", true), ["▁a", "▁", "▁bc"]);
        assert_eq!(metaspace.split("", true), ["▁"]);
    }
}
