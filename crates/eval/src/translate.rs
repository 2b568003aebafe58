//! Names of [`mae_translate`] for sets of sources.

pub use mae_translate::{best_lines as translate, reference_pieces, text};
