//! Tests of this crate from the outside, in one binary: what they link is linked once.

mod choices;
mod common;
mod continuation;
mod oracle;
mod running;
mod search;
mod shortlist;
mod side_by_side;
mod steps;
