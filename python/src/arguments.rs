//! Arguments from Python: devices, number types, texts, experts.

use mae::{ComputeType, Device, ExpertChoice, Numbers, TextForm};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{exception, wrong};

/// The device of a name (`auto`, `cpu`, `cuda`, `cuda:1`) for inference in a number type (`auto`, `float32`, `bfloat16`,
/// `int8`, with the short names of the program). Only a CPU computes in 8-bit integers, so that `auto` is a CPU then.
pub fn device(name: &str, compute_type: &str) -> PyResult<Device> {
    let compute = compute(compute_type)?;
    let numbers = match compute {
        ComputeType::F32 => Numbers::F32,
        _ => Numbers::default(),
    };
    let held = |device: Device| match compute {
        ComputeType::Int8 if device.is_gpu() => {
            Err(wrong("compute_type=\"int8\": only a CPU computes in 8-bit integers"))
        }
        ComputeType::Auto => Ok(device),
        _ if device.is_gpu() => Ok(device),
        other => device.with_compute_type(other).map_err(exception),
    };
    let cuda = |ordinal: usize| Device::cuda_with(ordinal, numbers).map_err(exception);
    match name {
        "cpu" => held(Device::cpu()),
        "auto" if compute == ComputeType::Int8 => held(Device::cpu()),
        "auto" => held(cuda(0).unwrap_or_else(|_| Device::cpu())),
        "cuda" => held(cuda(0)?),
        other => match other.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()) {
            Some(ordinal) => held(cuda(ordinal)?),
            None => Err(wrong(format!("device={other:?}: there are auto, cpu, cuda and cuda:N"))),
        },
    }
}

/// The form of lines: plain, or tokenised already.
pub fn form(tokenized: bool) -> TextForm {
    if tokenized { TextForm::Tokens } else { TextForm::Lines }
}

/// The device that a model is trained on: float32 on a CPU, float32 or bfloat16 on a GPU.
pub fn training_device(name: &str, compute_type: &str) -> PyResult<Device> {
    let compute = compute(compute_type)?;
    let device = device(name, if compute == ComputeType::Int8 { "auto" } else { compute_type })?;
    match compute {
        ComputeType::Int8 => Err(wrong("compute_type=\"int8\": models are trained in float32 or bfloat16")),
        ComputeType::Bf16 if !device.is_gpu() => {
            Err(wrong("compute_type=\"bfloat16\": on a CPU models are trained in float32"))
        }
        _ if device.is_gpu() => Ok(device),
        _ => Ok(Device::cpu()),
    }
}

fn compute(name: &str) -> PyResult<ComputeType> {
    match name {
        "auto" | "default" => Ok(ComputeType::Auto),
        "float32" | "f32" => Ok(ComputeType::F32),
        "bfloat16" | "bf16" => Ok(ComputeType::Bf16),
        "int8" => Ok(ComputeType::Int8),
        other => Err(wrong(format!("compute_type={other:?}: there are auto, float32, bfloat16 and int8"))),
    }
}

/// One text or several.
pub enum Texts {
    /// A string.
    One(String),
    /// A sequence of strings.
    Many(Vec<String>),
}

impl<'py> FromPyObject<'_, 'py> for Texts {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Ok(Self::One(object.extract()?));
        }
        let mut texts = Vec::new();
        for (i, item) in object.try_iter()?.enumerate() {
            let item = item?;
            let text: String = item.extract().map_err(|_| {
                let kind = item.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
                pyo3::exceptions::PyTypeError::new_err(format!("text {i} must be a string, it is a {kind}"))
            })?;
            texts.push(text);
        }
        Ok(Self::Many(texts))
    }
}

impl Texts {
    /// The texts, and whether it was a single one.
    pub fn split(self) -> (Vec<String>, bool) {
        match self {
            Self::One(text) => (vec![text], true),
            Self::Many(texts) => (texts, false),
        }
    }
}

/// Results for Python: that of a single text, or a list.
pub fn one_or_all<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    mut found: Vec<T>,
    single: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match single {
        true => found.remove(0).into_bound_py_any(py),
        false => found.into_bound_py_any(py),
    }
}

/// Experts that compute: `mix`, `argmax`, `random` or a number.
pub fn experts(name: &str) -> PyResult<ExpertChoice> {
    name.parse().map_err(|fault| wrong(format!("experts={name:?}: {fault}")))
}
