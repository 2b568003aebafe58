//! From source sentences to translations: batched search as fairseq v0.9 defines it, and scores of given translations.
//!
//! | room | what is in it |
//! |---|---|
//! | [`options`] | beam, penalties, length limits and choices, with their formulas and defaults |
//! | [`beam`] | the search: many sentences at once, those that are done leave; one model or an ensemble |
//! | `sentence` | the search for one sentence: who ends, who lives on |
//! | `choice` | forced prefixes, no repetitions, diverse groups and sampling, on the host |
//! | [`sampling`] | drawing a token from a row of log-probabilities |
//! | [`continuation`] | a language model that goes on writing |
//! | [`hypothesis`] | a finished translation with its score |
//! | [`mod@reference`] | log-probabilities of given translations, by one full pass |
//! | [`gates`] | what the gates said |

#![deny(unsafe_code)]

pub mod beam;
mod choice;
pub mod continuation;
pub mod gates;
pub mod hypothesis;
pub mod options;
pub mod reference;
pub mod sampling;
mod sentence;

pub use beam::{Searcher, search};
pub use continuation::{Continuation, ContinueOptions, Prompt, continue_texts};
pub use gates::{Gates, SentenceGates, gates_of};
pub use hypothesis::Hypothesis;
pub use options::{Choice, InvalidOptions, SearchOptions};
pub use reference::score_references;
pub use sampling::Sampling;
