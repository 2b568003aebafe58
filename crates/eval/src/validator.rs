//! BLEU of the development set while training: fairseq's, on whitespace tokens with BPE pieces joined.

use mae_data::ParallelDataset;
use mae_decode::SearchOptions;
use mae_model::{ExpertMode, Translator};
use mae_train::validate::Validator;

use crate::bleu::{BleuConfig, BleuStats};
use crate::translate::{text, translate};

/// Translates the development set and scores it.
pub struct BleuValidator<'a> {
    data: &'a ParallelDataset,
    references: Vec<String>,
    options: SearchOptions,
}

impl<'a> BleuValidator<'a> {
    /// Of `data`, with this beam.
    pub fn new(data: &'a ParallelDataset, beam: usize) -> Self {
        let references = (0..data.len()).map(|i| text(&data.tgt_vocab, &data.tgt.get(i))).collect();
        Self { data, references, options: SearchOptions { beam, ..SearchOptions::default() } }
    }
}

impl Validator for BleuValidator<'_> {
    fn bleu(&mut self, model: &Translator) -> Result<f64, String> {
        let lines = translate(model, &self.data.src, &self.data.tgt_vocab, &self.options, &ExpertMode::Mix)
            .map_err(|e| e.to_string())?;
        let mut stats = BleuStats::new(BleuConfig::fairseq());
        for (line, reference) in lines.iter().zip(&self.references) {
            stats.add(line, std::slice::from_ref(reference)).map_err(|e| e.to_string())?;
        }
        Ok(stats.score().score)
    }
}
