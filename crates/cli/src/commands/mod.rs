//! One file per command: its arguments and what it does with them.

pub mod average;
pub mod bench;
pub mod doctor;
pub mod generate;
pub mod preprocess;
pub mod quickstart;
pub mod score;
pub mod train;
