//! Metrics of translations that agree, to the printed digit, with the tools that papers report; perplexity of texts;
//! analysis of gates.
//!
//! | room | contents |
//! |---|---|
//! | [`bleu`] | sacreBLEU, `multi-bleu.perl` and fairseq's BLEU from one set of counts; exact match |
//! | [`chrf`] | chrF and chrF++ |
//! | [`ter`] | TER: the fewest edits, with shifts, that make a translation a reference |
//! | [`metric`] | BLEU, chrF or TER behind one face: rows of statistics that add up, scores, signatures |
//! | [`significance`] | confidence intervals and paired tests of translations and texts, with numpy's random numbers |
//! | [`test_sets`] | references of test sets by name, from sacreBLEU's folder |
//! | [`perplexity`] | a language model on a text: log-probabilities with context, perplexities over several units |
//! | [`validator`] | BLEU of the development set while training |
//! | [`analysis`] | the paper's studies of a trained mixture |
//! | `text`, `unicode`, `precision` | helpers of the metrics: white space, classes of characters, numpy's rounding |
//! | [`error`] | errors |
//! | [`gates`] | entropy of gates and the share of rows that each expert takes, per attention |

#![deny(unsafe_code)]

pub mod analysis;
pub mod bleu;
pub mod chrf;
pub mod error;
pub mod gates;
pub mod metric;
pub mod perplexity;
mod precision;
pub mod significance;
pub mod ter;
pub mod test_sets;
mod text;
mod unicode;
pub mod validator;

pub use error::{Error, Result};
