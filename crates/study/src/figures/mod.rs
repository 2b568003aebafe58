//! Figures of runs and studies as SVG.
//!
//! | room | contents |
//! |---|---|
//! | [`curves`] | curves of a run, and the axes that they can be drawn against |
//! | [`chart`] | lines over axes |
//! | [`dots`] | values of several runs of one kind |
//! | [`of_study`], [`of_transfer`] | the figures of a study and of a transfer study |

pub mod chart;
pub mod curves;
pub mod dots;
pub mod of_study;
pub mod of_transfer;
mod svg;

pub use self::svg::escape;
