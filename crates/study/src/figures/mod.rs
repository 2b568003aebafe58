//! Figures of runs and studies as SVG.
//!
//! | room | contents |
//! |---|---|
//! | [`curves`] | curves of a run, and the axes that they can be drawn against |
//! | [`chart`] | lines over axes |
//! | [`scatter`] | two values of every run |
//! | [`dots`] | values of several runs of one kind |
//! | [`of_study`], [`of_transfer`] | the figures of a study and of a transfer study |

mod axes;
pub mod chart;
pub mod curves;
pub mod dots;
pub mod of_study;
pub mod of_transfer;
pub mod scatter;
mod svg;

pub use self::svg::{colour, escape};
