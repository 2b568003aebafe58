//! Words split at their dashes: `state-of-the-art` counts as four words and three dashes.
//!
//! Tokenised text keeps a dash inside its word, so one wrong part makes the whole compound wrong.
//! Tensor2Tensor's `get_ende_bleu.sh` and fairseq's `compound_split_bleu.sh` put each such dash between blanks,
//! as ` ##AT##-##AT## `, in translation and reference, before BLEU is computed. That gives about a point more
//! for English to German: a number to be labelled, and compared with its like only.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::tokens::is_perl_space;

/// Treatment of words with dashes in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compounds {
    /// They stay whole.
    #[default]
    Whole,
    /// They are split, and the dash becomes a word of its own.
    Split,
}

impl Compounds {
    /// A line with its compounds split, if that is asked for.
    ///
    /// The scripts substitute from left to right in a string of bytes: characters on both sides of a dash are
    /// consumed with it. So a dash is passed over where a single byte stands between it and the dash before:
    /// `a-b-c` becomes two words.
    pub(super) fn apply(self, line: &str) -> Cow<'_, str> {
        if self == Self::Whole || !line.contains('-') {
            return Cow::Borrowed(line);
        }
        let bytes = line.as_bytes();
        let solid = |at: usize| bytes.get(at).is_some_and(|&byte| !is_perl_space(byte.into()));
        let mut split = String::with_capacity(line.len() + 64);
        // Bytes before `free` were consumed; those before `copied` are written.
        let (mut free, mut copied) = (0, 0);
        for at in line.match_indices('-').map(|(at, _)| at) {
            if at > free && solid(at - 1) && solid(at + 1) {
                split.push_str(&line[copied..at]);
                split.push_str(" ##AT##-##AT## ");
                (free, copied) = (at + 2, at + 1);
            }
        }
        split.push_str(&line[copied..]);
        Cow::Owned(split)
    }
}
