//! Training: a folder of data and a recipe in, a model folder out; an observer sees what happens.
//!
//! ```no_run
//! use mae::train::{self, Recipe};
//!
//! let recipe = Recipe::load("multi30k-mae7")?.set("train.max_epoch=3")?;
//! let summary = train::run("data-bin", recipe, &mae::Device::auto()).save_dir("runs/mae7").train()?;
//! let translator = mae::Translator::load(summary.model, &mae::Device::auto())?;
//! # Ok::<(), mae::Error>(())
//! ```
//!
//! Everything else is the crate `mae_train`.

use std::path::PathBuf;

pub use mae_train::*;

use mae_eval::validator::BleuValidator;

use crate::device::Device;

/// Prepares a run on a binarised folder, with fairseq's BLEU for recipes that ask for it
/// (`train.eval_bleu_beam`). A run has its device to itself: nothing else should compute there.
pub fn run<'a>(data: impl Into<PathBuf>, recipe: Recipe, device: &Device) -> Run<'a> {
    Run::new(data, recipe)
        .device(device.engine())
        .bleu(|data, codes, beam| Box::new(BleuValidator::new(data, codes, beam)))
}
