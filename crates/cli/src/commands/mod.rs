//! One file per command: its arguments and what it does with them.

pub mod average;
pub mod bench;
pub mod clean_corpus;
pub mod detokenize;
pub mod doctor;
pub mod generate;
pub mod interactive;
pub mod normalize;
pub mod preprocess;
pub mod quickstart;
pub mod score;
pub mod tokenize;
pub mod train;
pub mod validate;
