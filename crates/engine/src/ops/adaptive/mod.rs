//! Large vocabularies cut into bands: frequent words are wide, rare ones narrow (Baevski & Auli's adaptive input and
//! adaptive softmax).
//!
//! Band b holds the ids `c_b..c_{b+1}` with embeddings `E_b` of width `D_b`. Input: `Y[n] = dropout(scale·E_b[id]·W_bᵀ +
//! position)`, `W_b` `[D, D_b]`. Output: a head over the words of band 0 and one class per other band (a tail), and for
//! words of a tail `ln p = ln p_head(tail) + ln p_tail(word)`, so that a token touches the head and at most one tail.
//!
//! | file | what is in it |
//! |---|---|
//! | `bands` | where the cuts are; ids with their rows sorted by band |
//! | `rows` | rows of a table, rows of a value, rows back in their order: what both sides are made of |
//! | `input` | adaptive input |
//! | `softmax` | the loss, and log-probabilities of the whole vocabulary |
//! | `cpu`, `cuda`, `adaptive.cu` | the implementations |
//!
//! Rows of a band are gathered, so that products see dense matrices. On a device that captures its passes each band has
//! room for a number of rows that is part of the batch's shape; the number of those that are there is read from device
//! memory, and surplus rows are zeros that contribute nothing.

mod bands;
mod cpu;
pub(super) mod cuda;
mod input;
mod rows;
mod softmax;
#[cfg(feature = "suite")]
pub(crate) mod suite;

pub use bands::{BandedIds, Bands};
pub use input::{AdaptiveEmbedding, InputBand};
pub use softmax::{AdaptiveSoftmax, Orientation, Tail};
