//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod language_model;
mod translator;
