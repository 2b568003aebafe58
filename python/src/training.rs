//! Training runs.

use std::path::PathBuf;

use mae::train::log::Event;
use mae::train::run::RunSummary;
use mae::train::{self as training, Recipe};
use mae_study::figures::chart;
use mae_study::figures::curves::{Against, Curve};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::errors::{Error, exception, wrong};
use crate::{arguments, background};

/// A model that was trained.
#[pyclass(frozen, get_all, module = "mae_mt")]
pub struct TrainedModel {
    /// Folder of the model: the best checkpoint, or the last one without a development set.
    model: PathBuf,
    /// Folder of the run.
    folder: PathBuf,
    /// Updates made.
    updates: u64,
    /// Epochs done.
    epochs: u64,
    /// Parameters of the model.
    parameters: u64,
}

#[pymethods]
impl TrainedModel {
    fn __repr__(&self) -> String {
        format!("TrainedModel({:?}, {} updates, {} parameters)", self.model, self.updates, self.parameters)
    }

    /// Learning curves.
    fn _repr_html_(&self) -> PyResult<String> {
        let history = training::history::History::read(&self.folder)
            .map_err(|error| Error::new_err(error.to_string()))?;
        let series = Curve::Loss.series(&[history], Against::Updates);
        let drawn = chart::draw(&series, Against::Updates.label(), Curve::Loss.label(), 0.0);
        Ok(drawn.unwrap_or_else(|| self.__repr__()))
    }
}

/// Trains a model on a folder of `mae preprocess` or `mae prepare`; returns the TrainedModel.
///
/// recipe: a name (`mae recipes` lists them) or a TOML file.
/// save_dir: folder of the run; a run that is there is continued.
/// callback: is called with a dict for every line of the log, as in log.jsonl.
/// keys: any key of the recipe, such as {"model.mixture.gate_hidden": 64}. Keyword arguments are keys of [train], such as
/// max_epoch=3.
///
/// Ctrl-C saves the run and raises KeyboardInterrupt; the same call continues it.
#[pyfunction]
#[pyo3(signature = (data, recipe, *, save_dir, device = "auto", compute_type = "auto", callback = None, keys = None, **train))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn train(
    py: Python<'_>,
    data: PathBuf,
    recipe: &str,
    save_dir: PathBuf,
    device: &str,
    compute_type: &str,
    callback: Option<Py<PyAny>>,
    keys: Option<Bound<'_, PyDict>>,
    train: Option<Bound<'_, PyDict>>,
) -> PyResult<TrainedModel> {
    let refused = |error: training::Error| exception(error.into());
    let mut chosen = Recipe::load(recipe).map_err(refused)?;
    for (prefix, given) in [("", keys), ("train.", train)] {
        for (key, value) in given.iter().flatten() {
            chosen = chosen.set(&setting(prefix, &key, &value)?).map_err(refused)?;
        }
    }
    let device = py.detach(|| arguments::training_device(device, compute_type))?;
    let folder = save_dir.clone();
    let ended =
        background::run(py, callback.as_ref(), move |stop, events| -> Result<RunSummary, training::Error> {
            let mut observer = |event: &Event| events.send(event);
            training::run(data, chosen, &device).save_dir(folder).stop(stop).observer(&mut observer).train()
        })?;
    let summary = ended.map_err(refused)?;
    Ok(TrainedModel {
        model: summary.model,
        folder: save_dir,
        updates: summary.progress.updates,
        epochs: summary.progress.epochs,
        parameters: summary.parameters,
    })
}

/// A key with its value, as in `train.lr=0.001`.
pub fn setting(prefix: &str, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let key: String = key.extract()?;
    Ok(format!("{prefix}{key}={}", toml_value(&key, value)?))
}

/// A value of Python as TOML has it.
fn toml_value(key: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>() {
        return Ok(value.extract::<bool>()?.to_string());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(value.str()?.to_string());
    }
    if value.is_instance_of::<PyString>() {
        let text: String = value.extract()?;
        return serde_json::to_string(&text).map_err(|error| wrong(error.to_string()));
    }
    if let Ok(items) = value.try_iter() {
        let items: Vec<String> = items.map(|item| toml_value(key, &item?)).collect::<PyResult<_>>()?;
        return Ok(format!("[{}]", items.join(", ")));
    }
    Err(PyTypeError::new_err(format!("{key}: a number, a string, a bool or a list is needed")))
}
