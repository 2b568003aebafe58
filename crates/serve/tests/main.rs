//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod common;
mod completions;
mod libretranslate;
mod operation;
