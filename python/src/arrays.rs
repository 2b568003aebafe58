//! numpy arrays, made by numpy itself: the package needs no bindings to it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// A float32 array of this shape; it owns its values.
pub fn array<'py>(
    py: Python<'py>,
    shape: &[usize],
    values: impl IntoIterator<Item = f32>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_ne_bytes).collect();
    // A view of bytes is read-only; its copy is not.
    let flat = py.import("numpy")?.call_method1("frombuffer", (PyBytes::new(py, &bytes), "float32"))?;
    flat.call_method1("reshape", (PyTuple::new(py, shape)?,))?.call_method0("copy")
}
