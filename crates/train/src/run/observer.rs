//! Events of a run for the program around it.

use std::path::PathBuf;

use super::{DataSize, Progress, RunSummary};
use crate::log::Event;

/// Sees what happens in a run. Every closure that takes an [`Event`] is one.
pub trait Observer {
    /// The model is built and the data is open; the first update comes next.
    fn started(&mut self, start: &Start) {
        let _ = start;
    }

    /// Something happened.
    fn event(&mut self, event: &Event);

    /// The run has ended and everything is saved.
    fn finished(&mut self, summary: &RunSummary) {
        let _ = summary;
    }
}

impl<F: FnMut(&Event)> Observer for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}

/// An observer that does nothing.
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event) {}
}

/// A run that is about to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Folder of checkpoints, log and record.
    pub folder: PathBuf,
    /// Architecture of the model.
    pub architecture: String,
    /// System of the model, as in `Mae`.
    pub system: String,
    /// Heads of an attention.
    pub heads: usize,
    /// Experts of an attention; `None` without any.
    pub experts: Option<usize>,
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameters that are trained.
    pub trained_parameters: u64,
    /// Size of dictionaries and training set.
    pub data: DataSize,
    /// True if there is a development set. Without one there is no validation and no best checkpoint.
    pub has_development_set: bool,
    /// Device that computes, in words.
    pub device: String,
    /// Processes that train together, in words; `None` for one.
    pub ranks: Option<String>,
    /// True if the device is a GPU.
    pub on_gpu: bool,
    /// Progress of the run so far, if it resumes.
    pub resumed: Option<Progress>,
}
