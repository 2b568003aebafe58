//! Studies: their runs, and what came out.

use std::path::{Path, PathBuf};

use mae::train::config::assignment;

use mae_study::compare::compare;
use mae_study::figures::of_study;
use mae_study::folder::gather;
use mae_study::job::folder_name;
use mae_study::keys::{Owned, each_once, refuse_owned};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Error, of_study as exception, wrong};
use crate::training::setting;
use crate::{arguments, background, html};

mod session;

/// Keys that a study decides itself, and the arguments that change them.
const OWNED: &[Owned] = &[("seed", "seeds"), ("max_epoch", "max_epoch"), ("max_update", "max_update")];

/// The results of a study in a folder, made by Study.run or `mae reproduce`.
///
/// study: a name (`mae reproduce --list`) or a TOML file. out: the folder with its runs.
#[pyclass(frozen, module = "mae_mt")]
pub struct Study {
    study: mae_study::Study,
    runs: Vec<mae_study::RunResult>,
    missing: Vec<String>,
    comparison: mae_study::compare::Comparison,
}

#[pymethods]
impl Study {
    #[new]
    #[pyo3(signature = (study, out))]
    fn new(py: Python<'_>, study: &str, out: PathBuf) -> PyResult<Self> {
        py.detach(|| Self::read(mae_study::Study::load(study)?, &out)).map_err(exception)
    }

    /// Does what is missing of a study, as `mae reproduce` does, and returns it: every system is trained with every seed
    /// and measured.
    ///
    /// data: the folder with the corpus; studies that make their corpus need none. only, seeds: systems and seeds to run.
    /// max_epoch, max_update: of every run. keys: any key of every run, such as {"train.max_tokens": 8192}.
    /// callback: is called with a dict for every event; its "event" is one of run_started, training (with a line of
    /// log.jsonl), measuring, progress, measured, failed and changed.
    ///
    /// Ctrl-C saves the current run and raises KeyboardInterrupt; the same call continues the study.
    #[staticmethod]
    #[pyo3(signature = (study, out, *, data = None, only = None, seeds = None, max_epoch = None, max_update = None,
                        device = "auto", compute_type = "auto", callback = None, keys = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn run(
        py: Python<'_>,
        study: &str,
        out: PathBuf,
        data: Option<PathBuf>,
        only: Option<Vec<String>>,
        seeds: Option<Vec<u64>>,
        max_epoch: Option<u64>,
        max_update: Option<u64>,
        device: &str,
        compute_type: &str,
        callback: Option<Py<PyAny>>,
        keys: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut study = mae_study::Study::load(study).map_err(exception)?;
        study.max_epoch = max_epoch.unwrap_or(study.max_epoch);
        study.max_update = max_update.unwrap_or(study.max_update);
        let mut chosen = study.clone();
        chosen.keep_only(&only.unwrap_or_default()).map_err(|fault| wrong(fault.to_string()))?;
        if let Some(seeds) = seeds.filter(|seeds| !seeds.is_empty()) {
            chosen.seeds = each_once(&seeds);
        }
        let mut over = Vec::new();
        for (key, value) in keys.iter().flatten() {
            let table = assignment(&setting("", &key, &value)?);
            over.push(table.map_err(|fault| wrong(fault.to_string()))?);
        }
        refuse_owned(&over, OWNED).map_err(|fault| wrong(fault.to_string()))?;
        let device = py.detach(|| arguments::training_device(device, compute_type))?;
        let data = match (data, chosen.corpus) {
            (Some(data), _) => data,
            (None, Some(corpus)) => py.detach(|| corpus.make(&out)).map_err(exception)?,
            (None, None) => return Err(wrong("data is needed: the folder with the corpus of the study")),
        };
        let folder = out.clone();
        let ended = background::run(py, callback.as_ref(), move |stop, events| {
            session::run(&chosen, &over, (&data, &folder), &device, stop, events)
        })?;
        let failures = ended.map_err(exception)?;
        if !failures.is_empty() {
            return Err(Error::new_err(failures.join("\n")));
        }
        py.detach(|| Self::read(study, &out)).map_err(exception)
    }

    /// Title of the study.
    #[getter]
    fn title(&self) -> &str {
        &self.study.title
    }

    /// Everything that is known about the runs that are done: a list of dicts, as in result.json.
    #[getter]
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json(py, &serde_json::to_string(&self.runs))
    }

    /// Means and deviations by system, differences to the baseline and p-values: a dict.
    #[getter]
    fn comparison<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json(py, &serde_json::to_string(&self.comparison))
    }

    /// Names of the runs that are not done.
    #[getter]
    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn __repr__(&self) -> String {
        format!("Study({:?}, {} runs, {} missing)", self.study.title, self.runs.len(), self.missing.len())
    }

    fn _repr_html_(&self) -> String {
        let svg = of_study::scores(&self.study, self.comparison.score, &self.runs);
        html::study(&self.study.title, &self.comparison, svg.as_deref())
    }
}

impl Study {
    fn read(study: mae_study::Study, out: &Path) -> mae_study::Result<Self> {
        let (runs, missing) = gather(&study, out)?;
        let comparison = compare(&study, out, &runs)?;
        let missing = missing.iter().map(|(system, seed)| folder_name(system, *seed)).collect();
        Ok(Self { study, runs, missing, comparison })
    }
}

fn json<'py>(py: Python<'py>, text: &serde_json::Result<String>) -> PyResult<Bound<'py, PyAny>> {
    let text = text.as_ref().map_err(|error| Error::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
