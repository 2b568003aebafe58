//! The program that the package carries.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the program `mae` with these arguments, the first being its name; returns its exit code.
#[pyfunction]
pub fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| mae_cli::run(arguments))
}
