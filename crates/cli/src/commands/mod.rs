//! One file per command: its arguments and what it does with them.

pub mod analyze;
pub mod apply_bpe;
pub mod average;
pub mod bench;
pub mod clean_corpus;
pub mod completions;
pub mod continuation;
pub mod detokenize;
pub mod doctor;
pub mod eval_lm;
pub mod generate;
pub mod interactive;
pub mod learn_bpe;
pub mod man;
pub mod normalize;
pub mod prepare;
pub mod preprocess;
pub mod quickstart;
pub mod report;
pub mod reproduce;
pub mod score;
pub mod serve;
pub mod tokenize;
pub mod train;
pub mod transfer;
pub mod validate;
