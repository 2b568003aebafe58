//! Snapshots of a model, and the thread that writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use mae_data::{Vocab, files};
use mae_engine::HostCopy;
use mae_model::{Model, folder};

use super::state::{RunState, STATE_FORMAT, TextSide};
use crate::artifacts::{MOMENTS, STATE};
use crate::diagnosis::Divergence;
use crate::{Error, Result};

/// A model at some moment, ready to be written while training continues. Clones share the values.
#[derive(Clone)]
pub struct Snapshot {
    model: Arc<folder::Snapshot>,
    resume: Option<Arc<Resume>>,
}

/// Everything that a run needs to resume, besides the model.
struct Resume {
    /// The optimiser's memory by name.
    moments: Vec<(String, HostCopy)>,
    state: RunState,
}

impl Snapshot {
    /// Of the model alone.
    pub fn of_model<M: Model>(model: &M) -> Result<Self> {
        Ok(Self { model: Arc::new(folder::Snapshot::of(model)?), resume: None })
    }

    /// Of the model, the moments and the state of the run; `self` is of the model.
    pub fn and_run(self, moments: Vec<(String, HostCopy)>, state: &RunState) -> Self {
        let state = RunState { format: STATE_FORMAT, ..state.clone() };
        Self { resume: Some(Arc::new(Resume { moments, state })), ..self }
    }

    /// Name of a parameter, or of the optimiser's memory of it, that is not finite.
    fn broken(&self) -> Result<Option<String>> {
        let is_broken = |values: &[f32]| values.iter().any(|value| !value.is_finite());
        if let Some(name) = self.model.find(is_broken)? {
            return Ok(Some(name));
        }
        for (name, copy) in self.resume.iter().flat_map(|resume| &resume.moments) {
            if is_broken(copy.values()?) {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    /// Writes the folder `name` of `run`, if all numbers are finite; an older one of that name is replaced only when the new one is complete.
    pub fn write(&self, run: &Path, name: &str, text: &TextSide) -> Result<PathBuf> {
        let path = run.join(name);
        if let Some(parameter) = self.broken()? {
            return Err(Error::Diverged(Divergence::of_weights(parameter, &path)));
        }
        files::replace_folder(&path, |aside| -> Result<()> {
            let dictionaries: Vec<(&str, &Vocab)> =
                text.dictionaries.iter().map(|(name, dictionary)| (*name, &**dictionary)).collect();
            self.model.save(aside, &dictionaries, text.codes.as_ref(), &text.record)?;
            let Some(Resume { moments, state }) = self.resume.as_deref() else { return Ok(()) };
            let values =
                moments.iter().map(|(_, copy)| copy.values()).collect::<mae_engine::Result<Vec<_>>>()?;
            let shapes: Vec<[usize; 1]> = values.iter().map(|values| [values.len()]).collect();
            let names = moments.iter().map(|(name, _)| name.as_str());
            let tensors: Vec<_> = names
                .zip(&shapes)
                .zip(values)
                .map(|((name, shape), values)| (name, shape.as_slice(), values))
                .collect();
            folder::write_tensors(&aside.join(MOMENTS), &tensors, BTreeMap::new())?;
            let json = serde_json::to_string_pretty(state).expect("a state can always be written as JSON");
            Ok(files::write(aside.join(STATE), json.as_bytes())?)
        })?;
        Ok(path)
    }
}

/// Writes checkpoints one after the other on a thread of its own, so that training continues meanwhile.
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Of the model since its last change, if anybody asked.
    latest: Option<Snapshot>,
}

type Job = Box<dyn FnOnce() -> Result<()> + Send>;

/// Snapshots that may wait to be written; more would fill the memory.
const WAITING: usize = 2;

impl Writer {
    /// Starts the thread.
    pub fn new() -> Result<Self> {
        let (jobs, todo) = sync_channel::<Job>(WAITING);
        let thread = Builder::new().spawn(move || todo.into_iter().try_for_each(|job| job()));
        Ok(Self { jobs: Some(jobs), thread: Some(thread.map_err(Error::Threads)?), latest: None })
    }

    /// The model as it is now: one copy, whatever number of checkpoints it is for.
    pub fn snapshot<M: Model>(&mut self, model: &M) -> Result<Snapshot> {
        let snapshot = self.latest.take().map_or_else(|| Snapshot::of_model(model), Ok)?;
        Ok(self.latest.insert(snapshot).clone())
    }

    /// The model is about to change.
    pub fn forget(&mut self) {
        self.latest = None;
    }

    /// Hands over a job. An error of an earlier one comes back here or from [`Self::finish`].
    pub fn hand_over(&mut self, job: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let taken = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        // The thread ends early only with an error.
        if matches!(taken, Some(Ok(()))) { Ok(()) } else { self.finish() }
    }

    /// Waits until everything is written.
    pub fn finish(&mut self) -> Result<()> {
        self.jobs = None;
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("writing does not panic"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish().ok();
    }
}
