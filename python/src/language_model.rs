//! Language models.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mae::{Beginning, Context, ContinueOptions, End, Sampling, ScoreOptions, Writing};
use pyo3::prelude::*;

use crate::arguments::{self, Texts};
use crate::arrays::array;
use crate::errors::exception;
use crate::process::Home;

/// A language model with what it needs to read and write text.
///
/// path: a model folder; device and compute_type: see Translator.
#[pyclass(frozen, module = "mae_mt")]
pub struct LanguageModel {
    model: Arc<mae::LanguageModel>,
    home: Home,
}

/// A line that was scored.
#[pyclass(frozen, module = "mae_mt")]
pub struct ScoredLine(mae::ScoredLine);

/// A text that a model continued.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct Continuation {
    /// The prompt and its continuation.
    text: String,
    /// The continuation alone.
    continuation: String,
    /// New tokens; the end mark, if the line ended, is the last.
    tokens: Vec<String>,
    /// "line": the model ended the line. "length": the continuation has as many tokens as allowed.
    end: &'static str,
    /// Tokens of the prompt that the dictionary does not have.
    unknown_tokens: usize,
    /// Tokens at the prompt's beginning that were not read.
    cut_tokens: usize,
}

/// A token that was written.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct WrittenToken {
    /// The dictionary's entry.
    token: String,
    /// Its natural-log probability.
    log_prob: f32,
    /// The whole continuation so far.
    text: String,
}

#[pymethods]
impl LanguageModel {
    #[new]
    #[pyo3(signature = (path, device = "auto", compute_type = "auto"))]
    fn new(py: Python<'_>, path: PathBuf, device: &str, compute_type: &str) -> PyResult<Self> {
        let model = py.detach(|| -> PyResult<mae::LanguageModel> {
            let device = arguments::device(device, compute_type)?;
            mae::LanguageModel::load(&path, &device).map_err(exception)
        })?;
        Ok(Self { model: Arc::new(model), home: Home::here() })
    }

    /// Scores a line, or a list of lines; returns a ScoredLine or a list of them.
    ///
    /// context: None scores each line alone; a number scores all lines as one text, in blocks of the model's positions that
    /// begin with so many tokens scored before.
    /// experts: see Translator.translate.
    #[pyo3(signature = (text, *, context = None, experts = "mix", seed = 0))]
    fn score<'py>(
        &self,
        py: Python<'py>,
        text: Texts,
        context: Option<usize>,
        experts: &str,
        seed: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        let context = context.map_or(Context::Line, |window| Context::Text { window });
        let options = ScoreOptions { context, experts: arguments::experts(experts)?, seed };
        let (lines, single) = text.split();
        let found = py.detach(|| self.model.score(&lines, &options)).map_err(exception)?;
        let found: Vec<ScoredLine> = found.into_iter().map(ScoredLine).collect();
        arguments::one_or_all(py, found, single)
    }

    /// Continues a text until the model ends the line or it has max_len new tokens. A list of texts gives a list.
    ///
    /// sampling, topk, topp: draw tokens at random, from the likeliest only; otherwise each is the likeliest.
    #[pyo3(signature = (
        text, *, max_len = 50, sampling = false, topk = None, topp = None, temperature = 1.0, seed = 1, unknown = true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn continue_text<'py>(
        &self,
        py: Python<'py>,
        text: Texts,
        max_len: usize,
        sampling: bool,
        topk: Option<usize>,
        topp: Option<f32>,
        temperature: f32,
        seed: u64,
        unknown: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        let sampling = bounds(sampling, topk, topp);
        let options = ContinueOptions { max_len, sampling, temperature, seed, unknown };
        let (prompts, single) = text.split();
        let found = py.detach(|| self.model.continue_texts(&prompts, 1, &options)).map_err(exception)?;
        let found: Vec<Continuation> = found.into_iter().flatten().map(Continuation::from).collect();
        arguments::one_or_all(py, found, single)
    }

    /// Continues a text token by token: an iterator of WrittenTokens. Options are those of `continue_text`.
    #[pyo3(signature = (
        prompt, *, max_len = 50, sampling = false, topk = None, topp = None, temperature = 1.0, seed = 1, unknown = true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn stream(
        &self,
        py: Python<'_>,
        prompt: String,
        max_len: usize,
        sampling: bool,
        topk: Option<usize>,
        topp: Option<f32>,
        temperature: f32,
        seed: u64,
        unknown: bool,
    ) -> PyResult<TokenStream> {
        self.home.check()?;
        let options =
            ContinueOptions { max_len, sampling: bounds(sampling, topk, topp), temperature, seed, unknown };
        let beginning = Beginning { prompt, options, rank: 0, likeliest: 0 };
        let writing = py.detach(|| self.model.begin(vec![beginning])).map_err(exception)?;
        Ok(TokenStream { model: self.model.clone(), home: self.home, writing: Mutex::new(writing) })
    }

    fn __repr__(&self) -> String {
        let config = self.model.config();
        format!("LanguageModel({}, {:?})", config.mixture.system, self.model.device())
    }
}

fn bounds(sampling: bool, topk: Option<usize>, topp: Option<f32>) -> Option<Sampling> {
    (sampling || topk.is_some() || topp.is_some()).then_some(Sampling { topk, topp })
}

impl From<mae::ContinuedText> for Continuation {
    fn from(found: mae::ContinuedText) -> Self {
        Self {
            text: found.text,
            continuation: found.continuation,
            tokens: found.tokens.into_iter().map(|token| token.piece).collect(),
            end: match found.end {
                End::Line => "line",
                End::Length => "length",
            },
            unknown_tokens: found.unknown,
            cut_tokens: found.cut,
        }
    }
}

#[pymethods]
impl Continuation {
    fn __repr__(&self) -> String {
        format!("Continuation({:?}, end={:?})", self.text, self.end)
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

#[pymethods]
impl ScoredLine {
    /// Natural-log probability of the whole line.
    #[getter]
    fn log_prob(&self) -> f64 {
        self.0.log_prob()
    }

    /// Tokens, the end mark last.
    #[getter]
    fn tokens(&self) -> Vec<String> {
        self.0.tokens.iter().map(|token| token.piece.clone()).collect()
    }

    /// Natural-log probabilities of the tokens.
    #[getter]
    fn log_probs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &[self.0.tokens.len()], self.0.tokens.iter().map(|token| token.log_prob))
    }

    /// Tokens that the dictionary does not have.
    #[getter]
    fn unknown_tokens(&self) -> usize {
        self.0.unknown
    }

    fn __repr__(&self) -> String {
        format!("ScoredLine({} tokens, log_prob={:.3})", self.0.tokens.len(), self.0.log_prob())
    }
}

/// Tokens of a text that is being written.
#[pyclass(module = "mae_mt")]
pub struct TokenStream {
    model: Arc<mae::LanguageModel>,
    home: Home,
    /// A stream is read by one thread at a time.
    writing: Mutex<Writing>,
}

#[pymethods]
impl TokenStream {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<WrittenToken>> {
        self.home.check()?;
        let Self { model, writing, .. } = self;
        let writing = writing.get_mut().unwrap_or_else(PoisonError::into_inner);
        // While the prompt is read, steps write nothing.
        while !writing.is_done() {
            let written = py.detach(|| writing.step(model)).map_err(exception)?;
            py.check_signals()?;
            if let Some(written) = written.into_iter().next() {
                let (token, log_prob) = (written.token.piece, written.token.log_prob);
                return Ok(Some(WrittenToken { token, log_prob, text: written.text }));
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl WrittenToken {
    fn __repr__(&self) -> String {
        format!("WrittenToken({:?}, log_prob={:.3})", self.token, self.log_prob)
    }
}
