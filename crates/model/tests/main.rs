//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod convert;
mod faults;
mod folder;
mod golden;
mod lm;
mod lm_oracle;
mod oracle;
mod properties;
mod quantise;
