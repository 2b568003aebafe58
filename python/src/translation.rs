//! Results of a translation.

use std::sync::Arc;

use mae::Gates;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::array;
use crate::html;
use crate::migration::TranslationResult;

/// The translations of one line, the best first.
#[pyclass(frozen, module = "mae_mt")]
pub struct Translation {
    found: Arc<mae::Translation>,
    source: String,
}

/// One translation of a line.
#[pyclass(frozen, module = "mae_mt")]
pub struct Hypothesis {
    found: Arc<mae::Translation>,
    rank: usize,
}

impl Translation {
    pub fn new(source: String, found: mae::Translation) -> Self {
        Self { found: Arc::new(found), source }
    }
}

#[pymethods]
impl Translation {
    /// The best translation's text.
    #[getter]
    fn text(&self) -> &str {
        self.found.text()
    }

    /// Value that hypotheses are ranked by, in nats: by default the mean log-probability of the tokens.
    #[getter]
    fn score(&self) -> f32 {
        self.found.score()
    }

    /// Tokens of the best translation, the end mark last.
    #[getter]
    fn tokens(&self) -> Vec<String> {
        pieces(self.found.best())
    }

    /// Natural-log probabilities of these tokens.
    #[getter]
    fn log_probs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        log_probs(py, self.found.best())
    }

    /// All translations that were asked for.
    #[getter]
    fn nbest(&self) -> Vec<Hypothesis> {
        (0..self.found.nbest().len()).map(|rank| Hypothesis { found: self.found.clone(), rank }).collect()
    }

    /// The line that was translated.
    #[getter]
    fn source(&self) -> &str {
        &self.source
    }

    /// Tokens of the source that the dictionary does not have.
    #[getter]
    fn unknown_tokens(&self) -> usize {
        self.found.source.unknown
    }

    /// Tokens of the source that were cut off, because the model has no positions for them.
    #[getter]
    fn cut_tokens(&self) -> usize {
        self.found.source.cut
    }

    /// Gates by attention as arrays [1 or tokens, experts], of the encoder and of the best translation's decoder; None if
    /// they were not asked for.
    #[getter]
    fn gates<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (encoder, decoder) = (self.found.encoder_gates(), self.found.best().gates.as_deref());
        if encoder.is_none() && decoder.is_none() {
            return Ok(None);
        }
        let all = encoder.into_iter().chain(decoder).flatten();
        arrays(py, all).map(Some)
    }

    fn __repr__(&self) -> String {
        format!("Translation({:?}, score={:.3})", self.text(), self.score())
    }

    fn __str__(&self) -> &str {
        self.text()
    }

    fn _repr_html_(&self) -> String {
        html::translation(&self.source, &self.found)
    }
}

#[pymethods]
impl Hypothesis {
    /// The text.
    #[getter]
    fn text(&self) -> &str {
        &self.own().text
    }

    /// Value that hypotheses are ranked by, in nats.
    #[getter]
    fn score(&self) -> f32 {
        self.own().score
    }

    /// Tokens, the end mark last.
    #[getter]
    fn tokens(&self) -> Vec<String> {
        pieces(self.own())
    }

    /// Natural-log probabilities of these tokens.
    #[getter]
    fn log_probs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        log_probs(py, self.own())
    }

    /// Gates of the decoder by attention as arrays [1 or tokens, experts]; None if they were not asked for.
    #[getter]
    fn gates<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.own().gates.as_deref().map(|gates| arrays(py, gates)).transpose()
    }

    fn __repr__(&self) -> String {
        format!("Hypothesis({:?}, score={:.3})", self.text(), self.score())
    }

    fn __str__(&self) -> &str {
        self.text()
    }
}

impl Hypothesis {
    fn own(&self) -> &mae::Hypothesis {
        &self.found.nbest()[self.rank]
    }
}

fn pieces(hypothesis: &mae::Hypothesis) -> Vec<String> {
    hypothesis.tokens.iter().map(|token| token.piece.clone()).collect()
}

fn log_probs<'py>(py: Python<'py>, hypothesis: &mae::Hypothesis) -> PyResult<Bound<'py, PyAny>> {
    array(py, &[hypothesis.tokens.len()], hypothesis.tokens.iter().map(|token| token.log_prob))
}

fn arrays<'py, 'a>(
    py: Python<'py>,
    gates: impl IntoIterator<Item = &'a Gates>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for gate in gates {
        let rows = gate.rows.rows();
        let shape = [rows.len(), rows.first().map_or(0, Vec::len)];
        found.set_item(&gate.attention, array(py, &shape, rows.iter().flatten().copied())?)?;
    }
    Ok(found)
}

impl Translation {
    /// The same as CTranslate2 gives it.
    pub fn as_result(&self, with_scores: bool) -> TranslationResult {
        let nbest = self.found.nbest();
        let tokens = |hypothesis: &mae::Hypothesis| {
            let mut tokens = pieces(hypothesis);
            tokens.pop();
            tokens
        };
        let scores = if with_scores { nbest.iter().map(|found| found.score).collect() } else { Vec::new() };
        TranslationResult::new(nbest.iter().map(tokens).collect(), scores)
    }
}
