//! Arguments from Python: devices, number types, texts, experts.

use mae::{Device, ExpertChoice, Numbers};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{exception, wrong};

/// The device of a name (`auto`, `cpu`, `cuda`, `cuda:1`) with a number type (`auto`, `float32`, `bfloat16`).
pub fn device(name: &str, compute_type: &str) -> PyResult<Device> {
    let numbers = match compute_type {
        "auto" | "default" => None,
        "float32" | "f32" => Some(Numbers::F32),
        "bfloat16" | "bf16" => Some(Numbers::Bf16),
        other => {
            return Err(wrong(format!("compute_type={other:?}: there are auto, float32 and bfloat16")));
        }
    };
    let cuda = |ordinal: usize| Device::cuda_with(ordinal, numbers.unwrap_or_default()).map_err(exception);
    match name {
        "cpu" if numbers == Some(Numbers::Bf16) => {
            Err(wrong("compute_type=\"bfloat16\": the CPU computes in float32"))
        }
        "cpu" => Ok(Device::cpu()),
        "auto" if numbers.is_none() => Ok(Device::auto()),
        "auto" => Ok(cuda(0).unwrap_or_else(|_| Device::cpu())),
        "cuda" => cuda(0),
        other => match other.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()) {
            Some(ordinal) => cuda(ordinal),
            None => Err(wrong(format!("device={other:?}: there are auto, cpu, cuda and cuda:N"))),
        },
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

/// Experts that compute: `mix`, `argmax`, `random` or a number.
pub fn experts(name: &str) -> PyResult<ExpertChoice> {
    name.parse().map_err(|fault| wrong(format!("experts={name:?}: {fault}")))
}
