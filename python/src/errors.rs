//! Exceptions: `ValueError` for input, `OSError` for files, `mae_mt.Error` otherwise, with the library's sentences.

use std::io;

use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};

pyo3::create_exception!(
    mae_mt,
    Error,
    PyRuntimeError,
    "A fault that is neither a wrong argument (ValueError) nor a file (OSError)."
);

/// The exception of an error of the library.
pub fn exception(error: mae::Error) -> PyErr {
    let text = error.to_string();
    if let Some(cause) = io_cause(&error) {
        // Python makes FileNotFoundError and the like from the number.
        return match cause.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        };
    }
    if is_no_folder(&error) {
        return PyFileNotFoundError::new_err(text);
    }
    match error {
        mae::Error::Lengths { .. } | mae::Error::LineTooLong { .. } => PyValueError::new_err(text),
        mae::Error::Translate(
            mae::translate::Error::Options(_)
            | mae::translate::Error::Experts { .. }
            | mae::translate::Error::Prefixes(_)
            | mae::translate::Error::LanguageModel { .. }
            | mae::translate::Error::TranslationModel { .. }
            | mae::translate::Error::NoModels,
        )
        | mae::Error::Train(mae::train::Error::Config(_) | mae::train::Error::Recipe(_)) => {
            PyValueError::new_err(text)
        }
        _ => Error::new_err(text),
    }
}

/// Whether a path is no model folder.
fn is_no_folder(error: &mae::Error) -> bool {
    use mae::model::Error::NoModel;
    matches!(
        error,
        mae::Error::Model(NoModel { .. })
            | mae::Error::Translate(mae::translate::Error::Model(NoModel { .. }))
            | mae::Error::Translate(mae::translate::Error::Load { source: NoModel { .. }, .. })
    )
}

/// The operating system's answer, if that is where an error comes from.
fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(cause) = error.downcast_ref::<io::Error>() {
            return Some(cause);
        }
        at = error.source();
    }
    None
}

/// The exception of a study's error.
pub fn of_study(error: mae_study::Error) -> PyErr {
    let text = error.to_string();
    match io_cause(&error) {
        Some(_) => PyOSError::new_err(text),
        None if is_wrong_plan(&error) => PyValueError::new_err(text),
        None => Error::new_err(text),
    }
}

/// Whether a plan, or what was asked of it, makes no sense.
fn is_wrong_plan(error: &mae_study::Error) -> bool {
    use mae_study::Error as Fault;
    match error {
        Fault::In { source, .. } => is_wrong_plan(source),
        Fault::Plan(_) | Fault::Toml(_) | Fault::UnknownStudy { .. } | Fault::Unknown { .. } => true,
        _ => false,
    }
}

/// A wrong argument.
pub fn wrong(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}
