//! Translation models.

use std::path::PathBuf;
use std::sync::Arc;

use mae::{Choice, ExpertChoice, GateReport, Sampling, SearchOptions, TranslateOptions};
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use crate::arguments::{self, Texts};
use crate::arrays::array;
use crate::errors::{exception, wrong};
use crate::process::Home;
use crate::translation::Translation;

/// Lines that are translated between two looks at Ctrl-C.
const TOGETHER: usize = 4096;

/// A translation model, or an ensemble of several, with what it needs to read and write text.
///
/// path: a model folder, or a list of folders whose probabilities are averaged.
/// device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
/// compute_type: "auto" (as the folder stores it), "float32", "bfloat16" or, on a CPU, "int8".
///
/// A translator can be used by several threads at once, and the GIL is released while it computes. The result for a line
/// depends neither on other lines nor on other calls.
#[pyclass(frozen, module = "mae_mt")]
pub struct Translator {
    pub(crate) model: Arc<mae::Translator>,
    pub(crate) home: Home,
}

#[derive(FromPyObject)]
enum Paths {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

#[pymethods]
impl Translator {
    #[new]
    #[pyo3(signature = (path, device = "auto", compute_type = "auto"))]
    fn new(py: Python<'_>, path: Paths, device: &str, compute_type: &str) -> PyResult<Self> {
        let paths = match path {
            Paths::One(path) => vec![path],
            Paths::Many(paths) => paths,
        };
        let model = py.detach(|| -> PyResult<mae::Translator> {
            let device = arguments::device(device, compute_type)?;
            mae::Translator::load_ensemble(&paths, &device).map_err(exception)
        })?;
        Ok(Self { model: Arc::new(model), home: Home::here() })
    }

    /// Translates a text, or a list of texts; returns a Translation or a list of them.
    ///
    /// beam: hypotheses that are kept while searching; 1 is greedy search.
    /// nbest: translations per line, at most `beam`.
    /// lenpen: exponent of the length in scores.
    /// unkpen: cost of an unknown word, in nats.
    /// min_len, max_len_a, max_len_b: the longest translation has max_len_a * source + max_len_b tokens.
    /// no_repeat_ngram_size: no sequence of so many tokens comes twice; 0 sets no bound.
    /// temperature: divisor of the logits.
    /// sampling, topk, topp: draw translations at random, from the likeliest tokens only.
    /// diverse_groups, diverse_strength: groups of the beam that avoid each other's tokens.
    /// seed: seed of random choices.
    /// experts: "mix", "argmax" (the gates' favourite), "random", or a number.
    /// gates: return the gates of every attention.
    /// prefix: a beginning of the translation, or one for each line.
    /// tokenized: lines are tokenised already: the rules of the model folder (tokeniser, lower case) are left out, and
    ///     translations stay tokenised.
    /// pieces: lines are pieces of words with blanks between, as the dictionary has them.
    #[pyo3(signature = (
        text, *, beam = 5, nbest = 1, lenpen = 1.0, unkpen = 0.0, min_len = 1, max_len_a = 0.0, max_len_b = 200,
        no_repeat_ngram_size = 0, temperature = 1.0, sampling = false, topk = None, topp = None, diverse_groups = 1,
        diverse_strength = 0.5, seed = 1, experts = "mix", gates = false, prefix = None, tokenized = false,
        pieces = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn translate<'py>(
        &self,
        py: Python<'py>,
        text: Texts,
        beam: usize,
        nbest: usize,
        lenpen: f32,
        unkpen: f32,
        min_len: usize,
        max_len_a: f32,
        max_len_b: usize,
        no_repeat_ngram_size: usize,
        temperature: f32,
        sampling: bool,
        topk: Option<usize>,
        topp: Option<f32>,
        diverse_groups: usize,
        diverse_strength: f32,
        seed: u64,
        experts: &str,
        gates: bool,
        prefix: Option<Texts>,
        tokenized: bool,
        pieces: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let choice = match (sampling || topk.is_some() || topp.is_some(), diverse_groups) {
            (true, 1) => Choice::Sample(Sampling { topk, topp }),
            (true, _) => return Err(wrong("diverse_groups: groups are for beam search, not for sampling")),
            (false, 1) => Choice::Best,
            (false, groups) => Choice::Diverse { groups, strength: diverse_strength },
        };
        let search = SearchOptions {
            beam,
            nbest,
            lenpen,
            unkpen,
            max_len_a,
            max_len_b,
            min_len,
            no_repeat_ngram_size,
            temperature,
            choice,
            seed,
            ..SearchOptions::default()
        };
        let options = TranslateOptions {
            search,
            experts: arguments::experts(experts)?,
            gates: if gates { GateReport::All } else { GateReport::default() },
            form: if pieces { mae::TextForm::Pieces } else { arguments::form(tokenized) },
            ..TranslateOptions::default()
        };
        let (lines, single) = text.split();
        let prefixes = match prefix {
            None => None,
            Some(Texts::One(prefix)) => Some(vec![prefix; lines.len()]),
            Some(Texts::Many(prefixes)) => Some(prefixes),
        };
        let found = self.run(py, lines, prefixes, options)?;
        arguments::one_or_all(py, found, single)
    }

    /// Translates the lines of an iterable as they come, `batch` lines at a time; yields Translations. A file can be of any
    /// length. Other options are those of `translate`.
    #[pyo3(signature = (lines, *, batch = 1024, beam = 5, nbest = 1, lenpen = 1.0, experts = "mix", gates = false, tokenized = false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn translate_iterable(
        &self,
        lines: &Bound<'_, PyAny>,
        batch: usize,
        beam: usize,
        nbest: usize,
        lenpen: f32,
        experts: &str,
        gates: bool,
        tokenized: bool,
    ) -> PyResult<Translations> {
        if batch == 0 {
            return Err(wrong("batch must be above 0"));
        }
        let mut options = TranslateOptions::default().beam(beam).nbest(nbest);
        options.search.lenpen = lenpen;
        options.experts = arguments::experts(experts)?;
        options.form = arguments::form(tokenized);
        if gates {
            options = options.with_gates();
        }
        let translator = Self { model: self.model.clone(), home: self.home };
        Ok(Translations { translator, lines: lines.try_iter()?.unbind(), batch, options, ready: Vec::new() })
    }

    /// Natural-log probabilities of the tokens of given translations, the end mark last: an array for each line.
    #[pyo3(signature = (lines, translations, *, experts = "mix", tokenized = false))]
    fn score<'py>(
        &self,
        py: Python<'py>,
        lines: Texts,
        translations: Texts,
        experts: &str,
        tokenized: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        let experts: ExpertChoice = arguments::experts(experts)?;
        let ((lines, single), (translations, _)) = (lines.split(), translations.split());
        let form = arguments::form(tokenized);
        let found =
            py.detach(|| self.model.score(&lines, &translations, form, experts)).map_err(exception)?;
        let arrays = found.into_iter().map(|values| array(py, &[values.len()], values));
        arguments::one_or_all(py, arrays.collect::<PyResult<Vec<_>>>()?, single)
    }

    /// The device that computes.
    #[getter]
    fn device(&self) -> String {
        format!("{:?}", self.model.device())
    }

    /// Source and target language, if the model folder tells them.
    #[getter]
    fn languages(&self) -> Option<(String, String)> {
        self.model.text_record().languages.clone().map(|[source, target]| (source, target))
    }

    /// The rules that plain lines go through before they are cut into pieces, in words; "none" without any.
    #[getter]
    fn text_rules(&self) -> String {
        self.model.text_record().rules.to_string()
    }

    /// The model's system, as in "Mae".
    #[getter]
    fn system(&self) -> String {
        self.model.config().mixture.system.to_string()
    }

    fn __repr__(&self) -> String {
        let parameters = self.model.models().first().size();
        format!("Translator({}, {parameters} parameters, {})", self.system(), self.device())
    }
}

impl Translator {
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        lines: Vec<String>,
        prefixes: Option<Vec<String>>,
        mut options: TranslateOptions,
    ) -> PyResult<Vec<Translation>> {
        self.home.check()?;
        if let Some(prefixes) = &prefixes
            && prefixes.len() != lines.len()
        {
            return Err(wrong(format!("prefix: {} were given for {} lines", prefixes.len(), lines.len())));
        }
        let mut found = Vec::with_capacity(lines.len());
        // Faults of the options are told even where there is nothing to translate.
        let parts = lines.len().div_ceil(TOGETHER).max(1);
        for part in 0..parts {
            let range = part * TOGETHER..((part + 1) * TOGETHER).min(lines.len());
            let own = &lines[range.clone()];
            // On a thread of the pool, parallel loops start without waking another thread first.
            let translate = || match &prefixes {
                None => self.model.translate(own, &options),
                Some(prefixes) => self.model.translate_from(own, &prefixes[range.clone()], &options),
            };
            let translated = py.detach(|| rayon::scope(|_| translate())).map_err(exception)?;
            found.extend(translated);
            options.first_line += own.len();
            py.check_signals()?;
        }
        Ok(lines.into_iter().zip(found).map(|(line, found)| Translation::new(line, found)).collect())
    }
}

/// Translations of the lines of an iterable.
#[pyclass(module = "mae_mt")]
pub struct Translations {
    translator: Translator,
    lines: Py<PyIterator>,
    batch: usize,
    options: TranslateOptions,
    /// Those that are there, in reverse order.
    ready: Vec<Translation>,
}

#[pymethods]
impl Translations {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Translation>> {
        if self.ready.is_empty() {
            let mut lines: Vec<String> = Vec::new();
            for line in self.lines.bind(py).clone().take(self.batch) {
                let line: String = line?.extract()?;
                // Lines of a file come with their ends.
                lines.push(line.trim_end_matches(['\n', '\r']).to_owned());
            }
            if lines.is_empty() {
                return Ok(None);
            }
            let count = lines.len();
            self.ready = self.translator.run(py, lines, None, self.options.clone())?;
            self.ready.reverse();
            self.options.first_line += count;
        }
        Ok(self.ready.pop())
    }
}
