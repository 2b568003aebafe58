//! Log-probabilities of given translations.

use mae_data::PackedBatch;
use mae_engine::Tape;
use mae_engine::ops::decode::mean_log_probs;
use mae_model::attention::Pass;
use mae_model::{ExpertMode, Model, Translator};

use crate::error::{Error, Result};

/// The natural-log probability of every target token of every sentence, the end mark included, by one full
/// pass in evaluation mode; in batch order. Of several models with the same dictionaries: the logarithm of
/// the mean probability.
///
/// Decoder gates that read the whole target (`decoder_gate = "whole"`) make these scores depend on it, too: a
/// token's probability depends on what follows it. Search cannot look ahead and gives other numbers for such
/// models.
///
/// Fails with [`Error::NotFinite`] where a probability is not a number.
///
/// # Panics
///
/// With [`ExpertMode::Sample`]: experts are drawn in training only.
pub fn score_references(
    models: &[&Translator],
    batch: &PackedBatch,
    mode: &ExpertMode,
) -> Result<Vec<Vec<f32>>> {
    if batch.tgt.is_empty() {
        return Ok(vec![Vec::new(); batch.sentences()]);
    }
    let mode = mode.at(&batch.ids);
    let each: Result<Vec<_>> = models.iter().map(|model| log_probs(model, batch, &mode)).collect();
    let log_probs = mean_log_probs(each?);
    let of_sentence = |w: &[u32]| log_probs[w[0] as usize..w[1] as usize].to_vec();
    let found: Vec<Vec<f32>> = batch.tgt_starts.windows(2).map(of_sentence).collect();
    match found.iter().zip(&batch.ids).find(|(found, _)| found.iter().any(|p| p.is_nan())) {
        Some((_, &id)) => Err(Error::NotFinite { unit: "sentence", number: id as usize }),
        None => Ok(found),
    }
}

/// Log-probabilities of all target tokens end to end.
fn log_probs(model: &Translator, batch: &PackedBatch, mode: &ExpertMode) -> Result<Vec<f32>> {
    let on_device = model.upload(batch);
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode, probe: None };
    let log_probs = model.loss(&mut pass, &on_device, 0.0, 1.0).log_probs.to_host();
    model.params().device().check()?;
    Ok(log_probs)
}
