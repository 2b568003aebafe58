//! Events of a study for the program around it.

use std::path::{Path, PathBuf};

use mae_train::log;
use mae_train::run::Start;

use crate::error::Error;

/// Sees what happens in a study.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>)> Observer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// Something that happened in a study.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A finished run was made with other choices than are asked for now; it is not made again.
    Changed {
        /// Name of the run.
        run: &'a str,
        /// Its folder.
        folder: &'a Path,
        /// Keys and parts that differ.
        changes: &'a [String],
    },
    /// Work on a run starts.
    RunStarted {
        /// Name of the run.
        run: &'a str,
        /// Its number among the runs that were asked for, from 1.
        number: usize,
        /// Number of runs that were asked for.
        total: usize,
        /// Seconds that are left if all runs take as long as those that are done.
        seconds_left: Option<f64>,
    },
    /// Training starts or resumes.
    TrainingStarted(&'a Start),
    /// Something happened in training.
    Training(&'a log::Event),
    /// An estimate of the time that is left of a run, after a validation.
    TimeLeft {
        /// Seconds.
        seconds: f64,
    },
    /// A model is being measured, which cannot be stopped halfway.
    Measuring {
        /// Name of the run.
        run: &'a str,
        /// The model, in words.
        model: &'a str,
    },
    /// A long part of a measurement proceeds.
    Progress {
        /// The part, in words.
        stage: &'a str,
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    },
    /// The measurement is over.
    Measured,
    /// A run failed; the session continues with the next one.
    Failed(&'a Failure),
}

/// A run of a session that failed.
#[derive(Debug)]
pub struct Failure {
    /// Name of the run.
    pub run: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Why it failed.
    pub cause: FailureCause,
}

/// Reason why a run failed.
#[derive(Debug)]
pub enum FailureCause {
    /// Another process works on it; its id, if it is known.
    Busy(Option<u32>),
    /// An error.
    Error(Error),
}
