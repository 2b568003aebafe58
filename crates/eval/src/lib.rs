//! How good translations are, with metrics that agree, to the printed digit, with the tools that papers report; and
//! what gates do.
//!
//! | room | what |
//! |---|---|
//! | [`bleu`] | sacreBLEU, `multi-bleu.perl` and fairseq's BLEU from one set of counts; exact match |
//! | [`translate`] | a set of sources to text, for scoring |
//! | [`validator`] | BLEU of the development set while training |
//! | [`gates`] | entropy of gates and the share of rows that each expert takes, per attention |

#![deny(unsafe_code)]

pub mod bleu;
pub mod gates;
pub mod translate;
pub mod validator;
