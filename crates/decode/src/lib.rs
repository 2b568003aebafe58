//! From source sentences to translations: batched beam search as fairseq v0.9 defines it, and scores of given
//! translations.
//!
//! | room | what is in it |
//! |---|---|
//! | [`options`] | beam, penalties and length limits, with their formulas and defaults |
//! | [`beam`] | the search: many sentences at once, those that are done leave |
//! | [`hypothesis`] | a finished translation with its score |
//! | [`mod@reference`] | log-probabilities of given translations, by one full pass |

#![deny(unsafe_code)]

pub mod beam;
pub mod hypothesis;
pub mod options;
pub mod reference;

pub use beam::{Searcher, search};
pub use hypothesis::Hypothesis;
pub use options::{InvalidOptions, SearchOptions};
pub use reference::score_references;
