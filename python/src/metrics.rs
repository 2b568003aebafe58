//! BLEU, chrF and TER with sacreBLEU's numbers, and its paired tests.

use mae::metrics::significance::{Method, paired_bootstrap, paired_randomization};
use mae::metrics::{BleuConfig, ChrfConfig, Counted, Metric, Resampling, TerConfig};
use pyo3::prelude::*;

use crate::errors::wrong;

/// A score of a text.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct Score {
    /// The score: 0 to 100, for TER per cent.
    score: f64,
    /// sacreBLEU's signature.
    signature: String,
    /// Name of the metric.
    name: String,
}

#[pymethods]
impl Score {
    fn __repr__(&self) -> String {
        format!("{} {:.2} ({})", self.name, self.score, self.signature)
    }

    fn __float__(&self) -> f64 {
        self.score
    }
}

/// Two systems on one test set.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct Paired {
    /// Score of the baseline.
    baseline: f64,
    /// Score of the system.
    system: f64,
    /// Probability of such a difference by chance.
    p_value: f64,
}

#[pymethods]
impl Paired {
    fn __repr__(&self) -> String {
        let Self { baseline, system, p_value } = self;
        format!("Paired(baseline={baseline:.2}, system={system:.2}, p_value={p_value:.4})")
    }
}

/// References: one for each line, or several lists of them.
#[derive(FromPyObject)]
pub enum References {
    /// One reference for each line.
    One(Vec<String>),
    /// Several references: lists that are as long as the text.
    Several(Vec<Vec<String>>),
}

impl References {
    /// The references of each of `count` lines.
    fn by_line(self, count: usize) -> PyResult<Vec<Vec<String>>> {
        let lists = match self {
            Self::One(list) => vec![list],
            Self::Several(lists) => lists,
        };
        if lists.is_empty() {
            return Err(wrong("references: at least one list is needed"));
        }
        if let Some(list) = lists.iter().find(|list| list.len() != count) {
            return Err(wrong(format!("references: {} were given for {count} lines", list.len())));
        }
        Ok((0..count).map(|line| lists.iter().map(|list| list[line].clone()).collect()).collect())
    }
}

fn count(metric: Metric, lines: &[String], references: &[Vec<String>]) -> Counted {
    let mut counted = Counted::new(metric);
    for (line, references) in lines.iter().zip(references) {
        counted.add(line, references).expect("every line has a reference");
    }
    counted
}

fn score(py: Python<'_>, metric: Metric, lines: Vec<String>, references: References) -> PyResult<Score> {
    if lines.is_empty() {
        return Err(wrong("there are no lines to score"));
    }
    let references = references.by_line(lines.len())?;
    let name = metric.name();
    let counted = py.detach(|| count(metric, &lines, &references));
    Ok(Score { score: counted.score(), signature: counted.signature(None), name })
}

/// BLEU of translations, 0 to 100. references: a list of texts, or several lists.
#[pyfunction]
#[pyo3(signature = (translations, references, *, lowercase = false))]
pub fn bleu(
    py: Python<'_>,
    translations: Vec<String>,
    references: References,
    lowercase: bool,
) -> PyResult<Score> {
    score(py, Metric::Bleu(BleuConfig { lowercase, ..BleuConfig::default() }), translations, references)
}

/// chrF of translations, 0 to 100; chrF++ with word_order=2.
#[pyfunction]
#[pyo3(signature = (translations, references, *, word_order = 0))]
pub fn chrf(
    py: Python<'_>,
    translations: Vec<String>,
    references: References,
    word_order: usize,
) -> PyResult<Score> {
    score(py, Metric::Chrf(ChrfConfig { word_order, ..ChrfConfig::default() }), translations, references)
}

/// TER of translations in per cent; less is better.
#[pyfunction]
#[pyo3(signature = (translations, references))]
pub fn ter(py: Python<'_>, translations: Vec<String>, references: References) -> PyResult<Score> {
    score(py, Metric::Ter(TerConfig::default()), translations, references)
}

/// Compares two systems on one test set by resampling.
///
/// metric: "bleu", "chrf" or "ter". method: "bootstrap" or "randomization". samples: 1,000 or 10,000 by default.
#[pyfunction]
#[pyo3(signature = (baseline, system, references, *, metric = "bleu", method = "bootstrap", samples = None, seed = 12345))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn paired(
    py: Python<'_>,
    baseline: Vec<String>,
    system: Vec<String>,
    references: References,
    metric: &str,
    method: &str,
    samples: Option<usize>,
    seed: u64,
) -> PyResult<Paired> {
    let metric = match metric {
        "bleu" => Metric::Bleu(BleuConfig::default()),
        "chrf" => Metric::Chrf(ChrfConfig::default()),
        "ter" => Metric::Ter(TerConfig::default()),
        other => return Err(wrong(format!("metric={other:?}: there are bleu, chrf and ter"))),
    };
    let (method, usual) = match method {
        "bootstrap" => (Method::Bootstrap, 1_000),
        "randomization" => (Method::Randomization, 10_000),
        other => return Err(wrong(format!("method={other:?}: there are bootstrap and randomization"))),
    };
    if baseline.len() != system.len() || baseline.is_empty() {
        let (lines, others) = (baseline.len(), system.len());
        return Err(wrong(format!(
            "the baseline has {lines} lines, the system {others}; both need the same, above 0"
        )));
    }
    let references = references.by_line(baseline.len())?;
    let resampling = Resampling { method, samples: samples.unwrap_or(usual), seed };
    let found = py.detach(|| {
        let both = [&baseline, &system].map(|lines| count(metric, lines, &references));
        match method {
            Method::Bootstrap => paired_bootstrap(&both, resampling),
            Method::Randomization => paired_randomization(&both, resampling),
        }
    });
    let found = found.map_err(|error| wrong(error.to_string()))?;
    let p_value = found[1].p_value.unwrap_or(1.0);
    Ok(Paired { baseline: found[0].score, system: found[1].score, p_value })
}
