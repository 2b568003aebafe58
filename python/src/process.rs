//! The process around a model: forks, signals, threads.

use pyo3::prelude::*;

use crate::errors::Error;

/// The process that a model was loaded in. Threads of the library do not live on in a fork.
#[derive(Clone, Copy)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Refuses to compute in a fork, where nobody would answer.
    pub fn check(self) -> PyResult<()> {
        if self.0 == std::process::id() {
            return Ok(());
        }
        Err(Error::new_err(
            "the process was forked after the model was loaded; load the model in the child, \
             or start children with multiprocessing's method \"spawn\"",
        ))
    }
}
