//! Checkpoints. A checkpoint is a model folder (see `docs/formats.md`); `checkpoint_last` also holds the optimiser's
//! moments and the state of the run, so that a resumed run continues bit for bit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use mae_data::{ParallelDataset, Segmentation, TextDataset, Vocab, files};
use mae_engine::HostCopy;
use mae_model::lm::folder::DICT;
use mae_model::{Config, Model, folder};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use crate::finetune::{dictionary_fault, which_dictionaries};
use crate::learner::{Counters, Learner};
use crate::log::Window;
use crate::{Error, Result};

/// The newest checkpoint, with which a run goes on.
pub const LAST: &str = "checkpoint_last";
/// The best checkpoint so far.
pub const BEST: &str = "checkpoint_best";
/// What was there before an update whose loss or gradient was not a number.
pub const NOT_FINITE: &str = "checkpoint_nonfinite";
/// In that folder: what is known about the update.
pub const DIAGNOSIS: &str = "diagnosis.json";
const MOMENTS: &str = "optimizer.safetensors";
/// What a checkpoint has that a run can go on from.
pub const STATE: &str = "state.json";
const STATE_FORMAT: u32 = 1;

/// Where a run stands, besides parameters and moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The layout of this file.
    pub format: u32,
    /// Updates and random passes so far.
    pub counters: Counters,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Updates made in it.
    pub position: u64,
    /// Batches used in it; `None` in states of older versions.
    #[serde(default)]
    pub batches: Option<u64>,
    /// Sentences or blocks of the development set, and their target tokens.
    #[serde(default)]
    pub development: Option<[u64; 2]>,
    /// The best value of the checkpoint metric so far.
    pub best: Option<f64>,
    /// Validations since then.
    pub stale: u64,
    /// Sums for the next line of the log.
    pub window: Window,
    /// Loss of the newest update, in bits per target token.
    #[serde(default)]
    pub last_loss: Option<f64>,
    /// Training choices that decide what comes next, as TOML; a changed one is pointed out on resuming.
    pub train: String,
}

/// What text a model reads and writes; stored with it.
#[derive(Clone)]
pub struct TextSide {
    /// Dictionaries by their file names.
    pub dictionaries: Vec<(&'static str, Arc<Vocab>)>,
    /// How text is cut.
    pub codes: Option<Segmentation>,
}

impl TextSide {
    /// Of a translation model.
    pub fn of_pairs(data: &ParallelDataset, codes: Option<&Segmentation>) -> Self {
        let (source, target) = (data.src_vocab.clone(), data.tgt_vocab.clone());
        let dictionaries = vec![(folder::SOURCE_DICT, source), (folder::TARGET_DICT, target)];
        Self { dictionaries, codes: codes.cloned() }
    }

    /// Of a language model.
    pub fn of_text(data: &TextDataset, codes: Option<&Segmentation>) -> Self {
        Self { dictionaries: vec![(DICT, data.vocab.clone())], codes: codes.cloned() }
    }
}

/// A model as it was at some moment, ready to be written while training goes on. Clones share the values.
#[derive(Clone)]
pub struct Snapshot {
    model: Arc<folder::Snapshot>,
    resume: Option<Arc<Resume>>,
}

/// What a run needs to go on, besides the model.
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
    pub fn and_run<M: Model>(self, learner: &Learner<M>, state: &RunState) -> Result<Self> {
        let state = RunState { format: STATE_FORMAT, ..state.clone() };
        let resume = Resume { moments: learner.optimizer().memory()?, state };
        Ok(Self { resume: Some(Arc::new(resume)), ..self })
    }

    /// Writes the folder `name` of `run`; an older one of that name is replaced only when the new one is complete.
    pub fn write(&self, run: &Path, name: &str, text: &TextSide) -> Result<PathBuf> {
        let path = run.join(name);
        files::replace_folder(&path, |aside| -> Result<()> {
            let dictionaries: Vec<(&str, &Vocab)> =
                text.dictionaries.iter().map(|(name, dictionary)| (*name, &**dictionary)).collect();
            self.model.save(aside, &dictionaries, text.codes.as_ref())?;
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

/// Writes checkpoints one after the other on a thread of its own, so that training goes on meanwhile.
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
    pub fn new() -> Self {
        let (jobs, todo) = sync_channel::<Job>(WAITING);
        let thread = std::thread::spawn(move || todo.into_iter().try_for_each(|job| job()));
        Self { jobs: Some(jobs), thread: Some(thread), latest: None }
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

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish().ok();
    }
}

/// What a run that goes on does not take from its checkpoint (fairseq's `--reset-*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resets {
    /// Moments, the number of updates, and with it the schedule and the best score.
    pub optimizer: bool,
    /// The schedule of learning rates: it begins anew with the next update.
    pub lr_scheduler: bool,
    /// The best score, validations without progress, and sums for the log.
    pub meters: bool,
    /// The place in the data: the first epoch begins anew.
    pub dataloader: bool,
}

impl Resets {
    /// Changes the state of a run that goes on.
    fn apply(self, state: &mut RunState) {
        let counters = &mut state.counters;
        if self.optimizer {
            // Passes are still counted: random numbers do not come again.
            *counters = Counters { passes: counters.passes, ..Counters::default() };
        } else if self.lr_scheduler {
            counters.schedule_start = counters.updates;
        }
        if self.optimizer || self.meters {
            (state.best, state.stale, state.window) = (None, 0, Window::default());
        }
        if self.dataloader {
            (state.epoch, state.position, state.batches) = (1, 0, Some(0));
        }
    }

    /// What is reset, in words; empty if nothing is.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.optimizer, "optimizer"),
            (self.lr_scheduler, "lr_scheduler"),
            (self.meters, "meters"),
            (self.dataloader, "dataloader"),
        ];
        all.into_iter().filter_map(|(is, name)| is.then_some(name)).collect()
    }
}

/// Continues from `checkpoint_last` of the folder `run`, if there is one: fills the learner, gives the state.
pub fn load_last<M: Model>(run: &Path, learner: &mut Learner<M>, resets: Resets) -> Result<Option<RunState>> {
    let Some(last) = find(run, LAST)? else { return Ok(None) };
    let fault = |path: &Path, message: String| Error::Checkpoint { path: path.to_owned(), message };
    let config: M::Config = folder::load_config(&last)?;
    if config != *learner.model.config() {
        let message = format!(
            "holds another model than this run asks for ({}); choose another --save-dir, or the same model keys",
            differences(&config, learner.model.config()).join(", ")
        );
        return Err(fault(&last.join(folder::CONFIG), message));
    }
    folder::load_weights(&last.join(folder::WEIGHTS), learner.model.params_mut())?;
    if !resets.optimizer {
        load_moments(&last.join(MOMENTS), learner)?;
    }
    let mut state = read_state(&last)?;
    resets.apply(&mut state);
    learner.set_counters(state.counters);
    Ok(Some(state))
}

/// The keys in which two models differ, with what `there` and `here` say.
fn differences<C: Config>(there: &C, here: &C) -> Vec<String> {
    let keys = |config: &C| flat("model", &toml::Value::try_from(config).expect("configurations are TOML"));
    let (there, here) = (keys(there), keys(here));
    let none = "nothing".to_owned();
    let all: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
    let pairs =
        all.into_iter().map(|key| (key, there.get(key).unwrap_or(&none), here.get(key).unwrap_or(&none)));
    pairs.filter(|(_, a, b)| a != b).map(|(key, a, b)| format!("{key} is {a} there and {b} here")).collect()
}

/// Keys with their paths, values as they are written.
fn flat(path: &str, value: &toml::Value) -> BTreeMap<String, String> {
    match value {
        toml::Value::Table(table) => {
            table.iter().flat_map(|(key, value)| flat(&format!("{path}.{key}"), value)).collect()
        }
        value => BTreeMap::from([(path.to_owned(), value.to_string())]),
    }
}

/// Where the run in a folder stands: the state of its `checkpoint_last`, if there is one.
pub fn state(run: &Path) -> Result<Option<RunState>> {
    find(run, LAST)?.map(|last| read_state(&last)).transpose()
}

fn read_state(last: &Path) -> Result<RunState> {
    let path = last.join(STATE);
    let fault = |message: String| Error::Checkpoint { path: path.clone(), message };
    let json = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    let damaged =
        |e| format!("{e}: the file is damaged; go on from another checkpoint, or choose another --save-dir");
    let state: RunState = serde_json::from_str(&json).map_err(|e| fault(damaged(e)))?;
    if state.format != STATE_FORMAT {
        return Err(fault(format!(
            "format {} is not known; this program reads {STATE_FORMAT}",
            state.format
        )));
    }
    Ok(state)
}

/// A run goes on only with the dictionaries that it began with: ids would mean other words.
pub fn check_dictionaries(run: &Path, text: &TextSide) -> Result<()> {
    let Some(last) = find(run, LAST)? else { return Ok(()) };
    for (name, ours) in &text.dictionaries {
        if let Some(fault) = dictionary_fault(which_dictionaries(name), &Vocab::load(last.join(name))?, ours)
        {
            let message =
                format!("{fault}; go on with the data that the run began with, or choose another --save-dir");
            return Err(Error::Checkpoint { path: last, message });
        }
    }
    Ok(())
}

fn load_moments<M: Model>(path: &Path, learner: &mut Learner<M>) -> Result<()> {
    let fault = |message: String| Error::Checkpoint { path: path.to_owned(), message };
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fault(folder::not_whole(&e)))?;
    let read = |name: &str| {
        let missing = || {
            fault(format!(
                "`{name}` is missing: the run did not train these parameters before (train.free), or with another \
                 train.optimizer; --reset-optimizer begins with new moments"
            ))
        };
        Ok(folder::floats(file.tensor(name).map_err(|_| missing())?.data()))
    };
    learner.optimizer_mut().remember(read, fault)
}

/// Path of the checkpoint `name`, if there is one; the previous one where a process stopped as it replaced it.
fn find(run: &Path, name: &str) -> Result<Option<PathBuf>> {
    let path = run.join(name);
    Ok(files::recover_folder(&path)?.then_some(path))
}
