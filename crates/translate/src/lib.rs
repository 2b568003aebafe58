//! From source sentences to translations: one pipeline for files, data sets and single lines, batched search
//! as fairseq v0.9 defines it, scores of given translations, and continuations of texts.
//!
//! | room | content |
//! |---|---|
//! | [`models`] | models that translate together: loading, segmentation, dictionaries |
//! | [`mod@text`] | lines to token ids that fit, with counts; token ids to lines |
//! | [`pipeline`] | groups of sentences with options of their own; results in order |
//! | [`batches`] | batches of like lengths |
//! | [`options`] | beam, penalties, length limits and choices, with their formulas and defaults |
//! | [`running`], `lane` | the running batch: sentences join and leave at step boundaries; one model or an ensemble |
//! | `feed`, `side_by_side` | running batches that are fed with a group, on threads of their own |
//! | [`beam`] | the rules of the search; a batch of sentences at once |
//! | `sentence` | the search for one sentence: hypotheses that end and that live on |
//! | `choice` | forced prefixes, no repetitions, diverse groups and sampling |
//! | [`sampling`] | drawing a token from a row of log-probabilities |
//! | [`shortlist`] | types that a translation may have, by the words of its source |
//! | [`hypothesis`] | a finished translation with its score |
//! | [`experts`] | which experts of a mixture compute |
//! | [`gates`] | gates of translations that were found |
//! | [`mod@reference`] | log-probabilities of given translations, by one full pass |
//! | [`prompt`], [`continuation`] | texts that a language model continues |
//! | [`error`] | errors |

#![deny(unsafe_code)]

pub mod batches;
pub mod beam;
mod choice;
pub mod continuation;
pub mod error;
pub mod experts;
mod feed;
pub mod gates;
pub mod hypothesis;
mod lane;
pub mod models;
pub mod options;
pub mod pipeline;
pub mod prompt;
pub mod reference;
pub mod running;
pub mod sampling;
mod sentence;
pub mod shortlist;
mod shortlisted;
mod side_by_side;
pub mod text;

pub use batches::BatchLimits;
pub use beam::{Searcher, search};
pub use continuation::{Continuation, ContinueOptions, Continuing, Prompt, Task, Written, continue_texts};
pub use error::{Error, Result};
pub use experts::{ExpertChoice, ExpertFault, SwitchedOff, without};
pub use gates::{GateRows, Gates, SentenceGates, gates_of};
pub use hypothesis::Hypothesis;
pub use models::{Models, Side};
pub use options::{Choice, InvalidOptions, SearchOptions};
pub use pipeline::{GateReport, Group, GroupOptions, Pipeline, Translated, best_lines};
pub use prompt::{PromptRoom, Reading};
pub use reference::score_references;
pub use running::{Finished, Job, RunningBatch, SearchCaches, Ticket};
pub use sampling::Sampling;
pub use shortlist::{Shortlist, ShortlistCounts};
pub use text::{Fitted, TextForm, TokenCounts, lm_text, reference_pieces, text};
