//! One run of a study: locked, trained or gone on with, averaged, measured; its result is kept, and what is no longer
//! needed goes away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mae_engine::Device;
use mae_model::average::average;
use mae_model::folder::Task;
use mae_model::{Model, groups};
use mae_train::checkpoint;
use mae_train::config::task;
use mae_train::{Outcome, RunConfig, TrainConfig, kept};
use toml::Table;

use super::clock::Clock;
use super::lock::{self, Asked};
use super::measure;
use super::origins::{self, Origins};
use super::protocol::Test;
use super::references::References;
use super::result::{RunResult, commit};
use crate::runs::changes::flat;
use crate::runs::{Summary, read_all};
use crate::training::display::{Display, To};
use crate::training::material::{Material, Pairs, Sets, Text};
use crate::training::{ConfigOf, Session, Stop, introduction};

/// In a run's folder: the mean of its last checkpoints.
const AVERAGE: &str = "average";

/// What all runs of a study share.
pub struct Runner<'a> {
    /// The data.
    pub sets: Sets<'a>,
    /// The study's folder.
    pub out: &'a Path,
    /// Where to compute.
    pub device: &'a Device,
    /// How models are measured.
    pub test: &'a Test,
    /// What its runs are made from.
    pub origins: &'a Origins,
    /// References of the test set; of translations.
    pub references: Option<&'a References>,
    /// Whether checkpoints stay when a run is done.
    pub keep_checkpoints: bool,
    /// What ends the sitting.
    pub stop: &'a Stop,
}

/// A run that is wanted.
pub struct Job {
    /// Its system.
    pub system: String,
    /// Its seed.
    pub seed: u64,
    /// The name of its folder.
    pub name: String,
    /// What is done.
    pub work: Work,
}

/// What is done in a run.
pub enum Work {
    /// A model is trained, with the configuration of these layers.
    Train(Vec<Table>),
    /// The model of this folder is measured as it is.
    Measure(PathBuf),
}

/// What came of it.
pub enum Ended {
    /// It is done.
    Done(Box<RunResult>),
    /// The sitting has ended; what was trained is saved.
    Stopped,
    /// Another process works on it; its number, if known.
    Busy(Option<u32>),
}

/// A model that is ready to be measured.
struct Trained {
    model: PathBuf,
    /// What it is, in words.
    words: String,
    parameters: u64,
    trained_parameters: u64,
    updates: u64,
    summary: Summary,
    wall_seconds: f64,
    train: TrainConfig,
    config: BTreeMap<String, String>,
}

impl Runner<'_> {
    /// Does what is left to do of a run.
    pub fn run(&self, job: &Job) -> Result<Ended> {
        let folder = self.out.join(&job.name);
        let _lock = match lock::ask(&folder)? {
            Asked::Ours(lock) => lock,
            Asked::Busy(process) => return Ok(Ended::Busy(process)),
        };
        // Another process may have finished it before the lock was ours.
        if let Some(result) = RunResult::read(&folder)? {
            return Ok(Ended::Done(Box::new(result)));
        }
        origins::write(&folder, self.origins)?;
        let trained = match &job.work {
            Work::Measure(model) => Some(self.as_it_is(model)?),
            Work::Train(layers) => match task(layers) {
                Task::Translation => self.train::<Pairs>(layers, &folder)?,
                Task::LanguageModeling => self.train::<Text>(layers, &folder)?,
            },
        };
        let Some(trained) = trained.filter(|_| !self.stop.is_due()) else { return Ok(Ended::Stopped) };
        let busy = format!("finishing the measurement of {}", job.name);
        let result = self.stop.answered(&busy, || self.measure(job, &folder, &trained))?;
        result.write(&folder)?;
        if !self.keep_checkpoints && matches!(job.work, Work::Train(_)) {
            remove_checkpoints(&folder, &trained.model)?;
        }
        Ok(Ended::Done(Box::new(result)))
    }

    /// Trains to the end of the budget; none if the sitting ends before.
    fn train<D: Material>(&self, layers: &[Table], folder: &Path) -> Result<Option<Trained>> {
        let config: ConfigOf<D> = RunConfig::from_layers(layers)?;
        let material = D::open(self.sets, &config.train)?;
        let size = material.size(config.train.subset);
        let mut display = Display::new(folder, self.device.is_gpu(), To::Errors);
        let mut clock = Clock::start(folder, &config.train)?;
        let (mut parameters, mut trained_parameters) = (0, 0);
        let session = Session {
            data: self.sets.folder,
            material: &material,
            device: self.device,
            folder,
            tensorboard: None,
            resets: checkpoint::Resets::default(),
            stop: self.stop,
        };
        let outcome = session.run(
            config.clone(),
            |model: &D::Model| {
                parameters = model.params().count(groups::trained()) as u64;
                trained_parameters = model.params().count(config.train.free.groups()) as u64;
                eprintln!("{}", introduction(&config, model, &size, self.device));
            },
            |event| {
                display.show(event);
                if let Some(left) = clock.see(event) {
                    display.say(&left);
                }
            },
        )?;
        let wall_seconds = clock.finish()?;
        if outcome == Outcome::Interrupted {
            return Ok(None);
        }
        let (model, words) = self.choose(folder)?;
        let state = checkpoint::state(folder)?;
        Ok(Some(Trained {
            model,
            words,
            parameters,
            trained_parameters,
            updates: state.map_or(0, |state| state.counters.updates),
            // A short run may have logged nothing.
            summary: read_all(&[folder]).map_or_else(|_| Summary::default(), |runs| runs[0].summary()),
            wall_seconds,
            config: flat(&config.to_toml())?,
            train: config.train,
        }))
    }

    /// A model that is not trained here.
    fn as_it_is(&self, model: &Path) -> Result<Trained> {
        let parameters = mae_model::folder::ModelFolder::load(model, &Device::cpu())?.model.size() as u64;
        Ok(Trained {
            model: model.to_owned(),
            words: model.display().to_string(),
            parameters,
            trained_parameters: 0,
            updates: 0,
            summary: Summary::default(),
            wall_seconds: 0.0,
            train: TrainConfig::default(),
            config: BTreeMap::new(),
        })
    }

    /// The model that is measured: the mean of the last checkpoints, or the best one; and what it is, in words.
    fn choose(&self, folder: &Path) -> Result<(PathBuf, String)> {
        let mut epochs = kept::epochs(folder)?;
        epochs.drain(..epochs.len().saturating_sub(self.test.average()));
        if let (Some((first, _)), Some((last, _)), true) =
            (epochs.first(), epochs.last(), self.test.average() > 0)
        {
            let words = format!("mean of {} checkpoints, epochs {first} to {last}", epochs.len());
            let output = folder.join(AVERAGE);
            let inputs: Vec<PathBuf> = epochs.into_iter().map(|(_, path)| path).collect();
            average(&inputs, &output).context("averaging checkpoints")?;
            return Ok((output, words));
        }
        let best = folder.join(checkpoint::BEST);
        let name = if best.exists() { checkpoint::BEST } else { checkpoint::LAST };
        Ok((folder.join(name), name.to_owned()))
    }

    fn measure(&self, job: &Job, folder: &Path, trained: &Trained) -> Result<RunResult> {
        eprintln!("mae: {}: measuring the model ({})", job.name, trained.words);
        let Trained { model, summary, .. } = trained;
        let mut result = RunResult {
            system: job.system.clone(),
            seed: job.seed,
            model: trained.words.clone(),
            parameters: trained.parameters,
            trained_parameters: trained.trained_parameters,
            updates: trained.updates,
            best_update: summary.best_dev_update,
            epochs: summary.epochs,
            wall_seconds: trained.wall_seconds,
            training_seconds: summary.seconds,
            best_dev_loss: summary.best_dev_loss,
            dev: None,
            gates: None,
            translation: None,
            language_model: None,
            device: self.device.describe(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: commit(),
            data: self.sets.folder.display().to_string(),
            made_from: self.origins.clone(),
            measured: self.test.keys(),
            config: trained.config.clone(),
        };
        let paths = (model.as_path(), folder);
        match (self.test, self.references) {
            (Test::Translation(test), Some(references)) => {
                let found =
                    measure::translation(paths, self.sets, (test, references), &trained.train, self.device)?;
                (result.dev, result.gates, result.translation) =
                    (found.dev, found.gates, Some(found.translated));
            }
            (Test::Translation(_), None) => unreachable!("studies of translations open their references"),
            (Test::LanguageModel(test), _) => {
                let found = measure::language_model(paths, self.sets, test, &trained.train, self.device)?;
                (result.dev, result.language_model) = (found.dev, Some(found.predicted));
            }
        }
        Ok(result)
    }
}

/// Removes a run's checkpoints but the measured model.
fn remove_checkpoints(folder: &Path, measured: &Path) -> Result<()> {
    let cannot = || format!("cannot remove checkpoints in {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("checkpoint") && path != measured && path.is_dir() {
            std::fs::remove_dir_all(&path).with_context(cannot)?;
        }
    }
    Ok(())
}
