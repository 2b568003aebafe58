//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod common;
mod convert;
mod dropout;
mod extras;
mod faults;
mod language;
mod ranks;
mod resume;
mod run;
