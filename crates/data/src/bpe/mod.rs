//! Byte-pair encoding, equal to `subword-nmt` to the byte: codes of version 0.2, `</w>` glued to a word's last
//! character, `@@` after every piece but the last.
//!
//! | room | contents |
//! |---|---|
//! | [`codes`] | the merge list and its file |
//! | [`counts`] | words of a text and their counts |
//! | [`mod@learn`] | merges from word counts |
//! | [`apply`] | words into pieces |
//! | [`glossary`] | words that merges leave alone |
//! | [`vocabulary`] | tokens of a text and their counts |
//! | [`dropout`] | the same with merges skipped at random |
//!
//! One difference is deliberate: lines end at `\n` only, whereas `subword-nmt` (in its one-process mode) also
//! breaks lines at Unicode line separators. Words end at the space character only, as there.

pub mod apply;
pub(crate) mod cache;
pub mod codes;
pub mod counts;
pub mod dropout;
pub mod glossary;
pub mod learn;
pub mod vocabulary;

pub use apply::{Bpe, PieceSet};
pub use codes::{Codes, Version};
pub use counts::WordCounts;
pub use dropout::Dropout;
pub use glossary::Glossaries;
pub use learn::{LearnOptions, learn};
pub use vocabulary::TokenCounts;

use crate::vocab::is_space;

/// Mark of a piece that does not end its word.
pub const SEPARATOR: &str = "@@";

/// The mark at the end of a word's last symbol, inside the codes.
const END_OF_WORD: &str = "</w>";

/// Characters that `strip('\r\n ')` removes in subword-nmt: the only white space it knows.
fn is_margin(c: char) -> bool {
    matches!(c, ' ' | '\r' | '\n')
}

/// The words of a line: split at the space character, as subword-nmt does.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.trim_matches(is_margin).split(' ').filter(|word| !word.is_empty())
}

/// Glues the pieces of a segmented line together again: fairseq's `--remove-bpe`.
///
/// ```
/// assert_eq!(mae_data::bpe::join("a@@ b c"), "ab c");
/// ```
pub fn join(line: &str) -> String {
    let mut joined = format!("{line} ").replace("@@ ", "");
    joined.truncate(joined.trim_end_matches(is_space).len());
    joined
}
