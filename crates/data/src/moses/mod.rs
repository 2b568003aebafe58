//! Moses' text tools: tokeniser, detokeniser, normaliser of punctuation, cleaner of corpora.
//!
//! | room | contents | equal to |
//! |---|---|---|
//! | `lang` | languages that have rules | those of sacremoses 0.2.0 |
//! | [`tokenize`] | words and punctuation apart, one blank between tokens | `MosesTokenizer` of sacremoses 0.2.0 |
//! | [`protect`] | patterns whose matches stay one token | its `protected_patterns` |
//! | [`detokenize`] | tokens joined to text | its `MosesDetokenizer` |
//! | [`normalize`] | quotes, dashes and blanks in one form; non-printing characters | its `MosesPunctNormalizer` |
//! | [`clean`] | pairs with sensible lengths | `clean-corpus-n.perl` |
//!
//! Everything works on one line at a time and knows nothing of files. `prefixes` holds the abbreviations that keep
//! their period, `chars` and `classes` the sets of characters that the tools tell letters and numbers by.

mod chars;
mod classes;
pub mod clean;
pub mod detokenize;
mod lang;
pub mod normalize;
mod prefixes;
pub mod protect;
pub mod tokenize;

pub use clean::{CleanOptions, CleanPair, Cleaner, Dropped, Tallies};
pub use detokenize::Detokenizer;
pub use lang::Lang;
pub use normalize::{NonPrinting, NormalizeOptions, Normalizer};
pub use protect::Protected;
pub use tokenize::{CjkWords, Dashes, TokenizeOptions, Tokenizer};

/// Form of the characters that Moses' formats reserve (`& | < > ' " [ ]`) in tokenised text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escapes {
    /// As `&amp;`, `&#124;`, `&lt;`, `&gt;`, `&apos;`, `&quot;`, `&#91;` and `&#93;`.
    #[default]
    Entities,
    /// As themselves.
    Plain,
}
