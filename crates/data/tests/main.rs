//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod batches;
mod bpe;
mod common;
mod dataset;
mod faults;
mod lines;
mod mecab;
mod moses;
mod only_source;
mod prepare;
mod preprocess;
mod sentencepiece;
mod tokenizer;
mod vocab;
