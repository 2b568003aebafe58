//! Results of studies.

use std::path::PathBuf;

use mae_study::compare::compare;
use mae_study::figures::of_study;
use mae_study::folder::gather;
use mae_study::job::folder_name;
use pyo3::prelude::*;

use crate::errors::{Error, of_study as exception};
use crate::html;

/// The results of a study in a folder, made by `mae reproduce`.
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
        py.detach(|| {
            let study = mae_study::Study::load(study)?;
            let (runs, missing) = gather(&study, &out)?;
            let comparison = compare(&study, &out, &runs)?;
            let missing = missing.iter().map(|(system, seed)| folder_name(system, *seed)).collect();
            Ok(Self { study, runs, missing, comparison })
        })
        .map_err(exception)
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

fn json<'py>(py: Python<'py>, text: &serde_json::Result<String>) -> PyResult<Bound<'py, PyAny>> {
    let text = text.as_ref().map_err(|error| Error::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
