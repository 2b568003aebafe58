//! BLEU of the development set while training: fairseq's, on whitespace tokens with pieces joined.

use mae_data::{ParallelDataset, Segmentation, segmentation};
use mae_model::{ExpertMode, Translator};
use mae_train::validate::{Validator, ValidatorError};
use mae_translate::{SearchOptions, best_lines, reference_pieces};

use crate::bleu::{BleuConfig, BleuStats};
use crate::error::Result;

/// Translates the development set and scores it.
pub struct BleuValidator<'a> {
    data: &'a ParallelDataset,
    codes: Option<&'a Segmentation>,
    references: Vec<String>,
    options: SearchOptions,
}

impl<'a> BleuValidator<'a> {
    /// Creates a validator for `data`, whose pieces `codes` made, with this beam.
    pub fn new(data: &'a ParallelDataset, codes: Option<&'a Segmentation>, beam: usize) -> Self {
        let pieces = |i: usize| reference_pieces(&data.tgt_vocab, &data.tgt.get(i));
        let references = (0..data.len()).map(|i| segmentation::join(codes, &pieces(i))).collect();
        Self { data, codes, references, options: SearchOptions { beam, ..SearchOptions::default() } }
    }

    /// BLEU, 0 to 100, with experts combined in this way.
    pub fn bleu_with(&self, model: &Translator, mode: &ExpertMode) -> Result<f64> {
        let side = (&*self.data.tgt_vocab, self.codes);
        let lines = best_lines(model, &self.data.src, side, &self.options, mode)?;
        let mut stats = BleuStats::new(BleuConfig::fairseq());
        for (line, reference) in lines.iter().zip(&self.references) {
            stats.add(line, std::slice::from_ref(reference)).expect("each line has one reference");
        }
        Ok(stats.score().score)
    }
}

/// Makes a validator for a training run.
pub fn bleu<'a>(
    data: &'a ParallelDataset,
    codes: Option<&'a Segmentation>,
    beam: usize,
) -> Box<dyn Validator + 'a> {
    Box::new(BleuValidator::new(data, codes, beam))
}

impl Validator for BleuValidator<'_> {
    fn bleu(&mut self, model: &Translator) -> std::result::Result<f64, ValidatorError> {
        Ok(self.bleu_with(model, &ExpertMode::Mix)?)
    }
}
