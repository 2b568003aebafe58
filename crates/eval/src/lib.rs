//! How good translations are: metrics that agree, to the printed digit, with the tools that papers report.
//!
//! | room | what |
//! |---|---|
//! | [`bleu`] | sacreBLEU, `multi-bleu.perl` and fairseq's BLEU from one set of counts; exact match |

#![deny(unsafe_code)]

pub mod bleu;
