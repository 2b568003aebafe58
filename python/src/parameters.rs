//! Weights of a model folder as arrays.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use safetensors::{Dtype, SafeTensors};

use crate::arrays::array;
use crate::errors::Error;

/// Reads the parameters of a model folder: a dict of float32 arrays by name. A path to a .safetensors file works, too.
#[pyfunction]
#[pyo3(signature = (path))]
pub fn load_parameters(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let file = if path.is_dir() { path.join("model.safetensors") } else { path };
    let failed = |error: std::io::Error| {
        let text = format!("cannot read {}: {error}", file.display());
        match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        }
    };
    let bytes = py.detach(|| std::fs::read(&file)).map_err(failed)?;
    let broken = |fault: String| Error::new_err(format!("{}: {fault}", file.display()));
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| broken(error.to_string()))?;
    let found = PyDict::new(py);
    for (name, tensor) in tensors.tensors() {
        if tensor.dtype() != Dtype::F32 {
            return Err(broken(format!("{name} holds {:?}, not float32", tensor.dtype())));
        }
        let (words, _) = tensor.data().as_chunks::<4>();
        let values = words.iter().map(|word| f32::from_le_bytes(*word));
        found.set_item(name, array(py, tensor.shape(), values)?)?;
    }
    Ok(found)
}
