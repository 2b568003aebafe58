//! Whole training runs: from a folder of data and a recipe to checkpoints.
//!
//! ```no_run
//! use mae_train::{Recipe, Run};
//!
//! # fn main() -> mae_train::Result<()> {
//! let recipe = Recipe::load("multi30k-mae7")?.set("train.max_epoch=3")?;
//! let summary = Run::new("data-bin", recipe).save_dir("runs/mae7").train()?;
//! println!("{} updates; the model is in {}", summary.progress.updates, summary.model.display());
//! # Ok(())
//! # }
//! ```
//!
//! A run resumes from the last checkpoint of its folder. It prints nothing: an [`Observer`] sees its events.
//!
//! | room | contents |
//! |---|---|
//! | `mod` | [`Run`]: the data's folder, a recipe and where results go |
//! | `material` | training and development sets of one kind of model |
//! | `session` | a run on sets that are open already |
//! | `observer` | events of a run for the program around it |

mod material;
mod observer;
mod session;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use mae_data::files::FolderLock;
use mae_engine::Device;
use mae_engine::collective::{Ending, Team};
use mae_model::folder::Task;

pub use self::material::{DataSize, MakeBleu, Material, Pairs, Sets, Text, VALID};
pub use self::observer::{Observer, Silent, Start};
pub use self::session::{Session, Trained};
use crate::checkpoint::{self, Resets};
use crate::{Outcome, Recipe, Result, TrainConfig, artifacts};

/// Progress of a run, as its last checkpoint has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whole epochs.
    pub epochs: u64,
    /// Updates.
    pub updates: u64,
}

impl Progress {
    /// Reads the progress of the run in a folder; `None` if it has no checkpoint yet.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let state = checkpoint::state(folder)?;
        Ok(state.map(|state| Self { epochs: state.epoch - 1, updates: state.counters.updates }))
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Reason why it ended.
    pub outcome: Outcome,
    /// Epochs and updates of the run, earlier parts included.
    pub progress: Progress,
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameters that were trained.
    pub trained_parameters: u64,
    /// Folder of the best checkpoint; of the last one if there was no validation.
    pub model: PathBuf,
}

/// Returns the training keys of the run whose folder holds a model, from its record; `None` if there is none.
pub fn recorded_keys(model: &Path) -> Option<TrainConfig> {
    let full = std::path::absolute(model).ok()?;
    let record = std::fs::read_to_string(full.parent()?.join(artifacts::RECORD)).ok()?;
    record.parse::<toml::Table>().ok()?.remove("train")?.try_into().ok()
}

/// A training run.
pub struct Run<'a> {
    data: PathBuf,
    recipe: Recipe,
    languages: Option<(String, String)>,
    valid: String,
    save_dir: PathBuf,
    tensorboard: Option<PathBuf>,
    device: Device,
    resets: Resets,
    bleu: Option<MakeBleu>,
    stop: Option<&'a AtomicBool>,
    lock: Option<&'a FolderLock>,
    observer: Option<&'a mut dyn Observer>,
    team: Team,
}

impl<'a> Run<'a> {
    /// A run on a binarised folder. Without further choices it computes on the CPU and saves in `checkpoints`.
    pub fn new(data: impl Into<PathBuf>, recipe: Recipe) -> Self {
        Self {
            data: data.into(),
            recipe,
            languages: None,
            valid: VALID.to_owned(),
            save_dir: "checkpoints".into(),
            tensorboard: None,
            device: Device::cpu(),
            resets: Resets::default(),
            bleu: None,
            stop: None,
            lock: None,
            observer: None,
            team: Team::alone(),
        }
    }

    /// Sets the folder of checkpoints, log and record.
    #[must_use]
    pub fn save_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.save_dir = folder.into();
        self
    }

    /// Sets the device to compute on.
    #[must_use]
    pub fn device(mut self, device: &Device) -> Self {
        self.device = device.clone();
        self
    }

    /// Sets source and target language, which are otherwise found from the names of the files.
    #[must_use]
    pub fn languages(mut self, source: &str, target: &str) -> Self {
        self.languages = Some((source.to_owned(), target.to_owned()));
        self
    }

    /// Sets the name of the development set.
    #[must_use]
    pub fn development_set(mut self, split: &str) -> Self {
        split.clone_into(&mut self.valid);
        self
    }

    /// Sets a folder for TensorBoard's files.
    #[must_use]
    pub fn tensorboard(mut self, folder: impl Into<PathBuf>) -> Self {
        self.tensorboard = Some(folder.into());
        self
    }

    /// Chooses the parts of its checkpoint that a resumed run does not take.
    #[must_use]
    pub fn resets(mut self, resets: Resets) -> Self {
        self.resets = resets;
        self
    }

    /// Sets what scores BLEU of the development set, for recipes with `train.eval_bleu_beam`.
    #[must_use]
    pub fn bleu(mut self, make: MakeBleu) -> Self {
        self.bleu = Some(make);
        self
    }

    /// Sets a flag that ends the run after the current update; it is saved and can be resumed.
    #[must_use]
    pub fn stop(mut self, flag: &'a AtomicBool) -> Self {
        self.stop = Some(flag);
        self
    }

    /// Sets the lock of the save folder, for callers that hold it. Without it, the run takes the lock itself, and fails if
    /// another process has it.
    #[must_use]
    pub fn lock(mut self, lock: &'a FolderLock) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Sets the processes that train the model together. Each of them makes the same run; the first one logs and saves. When
    /// the run ends, they part.
    #[must_use]
    pub fn team(mut self, team: Team) -> Self {
        self.team = team;
        self
    }

    /// Sets what sees the events of the run.
    #[must_use]
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Trains to the end, or until it is stopped.
    pub fn train(self) -> Result<RunSummary> {
        let team = self.team.clone();
        let trained = match self.recipe.task() {
            Task::Translation => self.train_on::<Pairs>(),
            Task::LanguageModeling => self.train_on::<Text>(),
        };
        match &trained {
            Ok(_) => team.host().leave(Ending::Finished),
            Err(error) => team.host().leave(Ending::Failed(&error.to_string())),
        }
        trained
    }

    fn train_on<D: Material>(self) -> Result<RunSummary> {
        let config = self.recipe.config::<<D::Model as mae_model::Model>::Config>()?;
        let languages = self.languages.as_ref().map(|(source, target)| (source.as_str(), target.as_str()));
        let sets = Sets { folder: &self.data, languages, valid: &self.valid };
        let material = D::open(sets, &config.train)?;
        let (never, mut silent) = (AtomicBool::new(false), Silent);
        let session = Session {
            data: &self.data.display().to_string(),
            material: &material,
            device: &self.device,
            folder: &self.save_dir,
            tensorboard: self.tensorboard,
            resets: self.resets,
            bleu: self.bleu,
            stop: self.stop.unwrap_or(&never),
            lock: self.lock,
            team: self.team,
        };
        Ok(session.train(config, self.observer.unwrap_or(&mut silent))?.summary)
    }
}
