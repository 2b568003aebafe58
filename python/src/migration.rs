//! CTranslate2's `translate_batch`, for code that migrates: its argument names, tokens in and tokens out.

use mae::{Choice, Sampling, SearchOptions, TextForm, TranslateOptions};
use pyo3::prelude::*;

use crate::errors::wrong;
use crate::translator::Translator;

/// Translations of one line as CTranslate2 gives them.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct TranslationResult {
    /// Tokens of each hypothesis, without the end mark.
    hypotheses: Vec<Vec<String>>,
    /// Scores in nats; empty unless they were asked for.
    scores: Vec<f32>,
}

#[pymethods]
impl TranslationResult {
    fn __repr__(&self) -> String {
        format!("TranslationResult(hypotheses={:?}, scores={:?})", self.hypotheses, self.scores)
    }
}

#[pymethods]
impl Translator {
    /// Translates lists of tokens with CTranslate2's argument names and defaults; returns a TranslationResult for each.
    ///
    /// Tokens are pieces of words as the dictionary has them. Arguments of CTranslate2 that are not here are not
    /// supported. max_batch_size and batch_type only limit memory and do not change results.
    #[pyo3(signature = (
        source, target_prefix = None, *, max_batch_size = 0, batch_type = "examples", beam_size = 2,
        num_hypotheses = 1, length_penalty = 1.0, no_repeat_ngram_size = 0, disable_unk = false,
        max_input_length = 1024, max_decoding_length = 256, min_decoding_length = 1, return_scores = false,
        sampling_topk = 1, sampling_topp = 1.0, sampling_temperature = 1.0,
    ))]
    #[expect(clippy::too_many_arguments, reason = "CTranslate2's arguments")]
    fn translate_batch(
        &self,
        py: Python<'_>,
        source: Vec<Vec<String>>,
        target_prefix: Option<Vec<Option<Vec<String>>>>,
        max_batch_size: usize,
        batch_type: &str,
        beam_size: usize,
        num_hypotheses: usize,
        length_penalty: f32,
        no_repeat_ngram_size: usize,
        disable_unk: bool,
        max_input_length: usize,
        max_decoding_length: usize,
        min_decoding_length: usize,
        return_scores: bool,
        sampling_topk: usize,
        sampling_topp: f32,
        sampling_temperature: f32,
    ) -> PyResult<Vec<TranslationResult>> {
        let _ = max_batch_size;
        if !["examples", "tokens"].contains(&batch_type) {
            return Err(wrong(format!("batch_type={batch_type:?}: there are \"examples\" and \"tokens\"")));
        }
        // 1 is the best token, 0 draws from all.
        let choice = match sampling_topk {
            1 => Choice::Best,
            topk => Choice::Sample(Sampling {
                topk: (topk > 0).then_some(topk),
                topp: (sampling_topp < 1.0).then_some(sampling_topp),
            }),
        };
        let search = SearchOptions {
            beam: beam_size.max(num_hypotheses),
            nbest: num_hypotheses,
            lenpen: length_penalty,
            // Unknown words cost more than any score can give.
            unkpen: if disable_unk { 1e6 } else { 0.0 },
            max_len_a: 0.0,
            max_len_b: max_decoding_length,
            min_len: min_decoding_length,
            no_repeat_ngram_size,
            temperature: sampling_temperature,
            choice,
            ..SearchOptions::default()
        };
        let options = TranslateOptions { search, form: TextForm::Pieces, ..TranslateOptions::default() };
        let cut = |mut tokens: Vec<String>| {
            if max_input_length > 0 {
                tokens.truncate(max_input_length);
            }
            tokens.join(" ")
        };
        let lines: Vec<String> = source.into_iter().map(cut).collect();
        let prefixes = target_prefix.map(|prefixes| {
            prefixes.into_iter().map(|prefix| prefix.unwrap_or_default().join(" ")).collect::<Vec<_>>()
        });
        let found = self.run(py, lines, prefixes, options)?;
        Ok(found.iter().map(|translation| translation.as_result(return_scores)).collect())
    }
}

impl TranslationResult {
    pub fn new(hypotheses: Vec<Vec<String>>, scores: Vec<f32>) -> Self {
        Self { hypotheses, scores }
    }
}
