//! One run of a study: locked, trained or resumed, averaged, measured; its result is kept, and checkpoints that are no
//! longer needed are removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::files::{self, Claim, FolderLock};
use mae_engine::Device;
use mae_eval::validator;
use mae_model::average::average;
use mae_train::history::{History, Summary};
use mae_train::keys::{self, Keys};
use mae_train::run::{self, Run, Sets, Start};
use mae_train::{Outcome, Recipe, TrainConfig, artifacts, kept, log};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::job::{Job, Work};
use crate::measure::{LanguageModelScores, TranslationScores, measure_language_model, measure_translation};
use crate::observer::{Event, Observer};
use crate::origins::{self, Origins};
use crate::protocol::Test;
use crate::references::References;
use crate::result::RunResult;

/// Folder in a run's folder: the mean of its last checkpoints.
const AVERAGE: &str = "average";

/// Checkpoints of runs that are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoints {
    /// All but the measured model are removed.
    #[default]
    Remove,
    /// They stay.
    Keep,
}

/// Things that all runs of a study share.
pub(crate) struct Runner<'a> {
    pub(crate) sets: Sets<'a>,
    /// The study's folder.
    pub(crate) out: &'a Path,
    pub(crate) device: &'a Device,
    pub(crate) test: &'a Test,
    pub(crate) origins: &'a Origins,
    /// References of the test set; of translations.
    pub(crate) references: Option<&'a References>,
    pub(crate) checkpoints: Checkpoints,
    /// Commit of the program, for the record.
    pub(crate) commit: Option<&'a str>,
    /// Ends the session.
    pub(crate) stop: &'a AtomicBool,
}

/// Outcome of work on a run.
pub(crate) enum JobOutcome {
    /// It is done.
    Done(Box<RunResult>),
    /// The session was stopped; what was trained is saved.
    Stopped,
    /// Another process works on it; its id, if it is known.
    Busy(Option<u32>),
}

/// A model that is ready to be measured.
struct Candidate {
    model: PathBuf,
    /// The model, in words.
    words: String,
    parameters: u64,
    trained_parameters: u64,
    updates: u64,
    summary: Summary,
    wall_seconds: f64,
    train: TrainConfig,
    config: Keys,
}

impl Runner<'_> {
    /// Does what is left to do of a run.
    pub(crate) fn run(&self, job: &Job, observer: &mut dyn Observer) -> Result<JobOutcome> {
        let folder = self.out.join(&job.name);
        let lock = match FolderLock::claim(&folder)? {
            Claim::Held(lock) => lock,
            Claim::Busy(process) => return Ok(JobOutcome::Busy(process)),
        };
        // Another process may have finished it before the lock was ours.
        if let Some(result) = RunResult::read(&folder)? {
            return Ok(JobOutcome::Done(Box::new(result)));
        }
        origins::write(&folder, self.origins)?;
        let candidate = match &job.work {
            Work::Measure(model) => Some(as_it_is(model)?),
            Work::Train(recipe) => self.train(recipe, &lock, observer)?,
        };
        let candidate = candidate.filter(|_| !self.stop.load(Ordering::Relaxed));
        let Some(candidate) = candidate else { return Ok(JobOutcome::Stopped) };
        observer.event(&Event::Measuring { run: &job.name, model: &candidate.words });
        let result = self.measure(job, &folder, &candidate, observer);
        observer.event(&Event::Measured);
        let result = result?;
        result.write(&folder)?;
        if self.checkpoints == Checkpoints::Remove && matches!(job.work, Work::Train(_)) {
            remove_checkpoints(&folder, &candidate.model)?;
        }
        Ok(JobOutcome::Done(Box::new(result)))
    }

    /// Trains to the end of the budget; `None` if the session is stopped before.
    fn train(
        &self,
        recipe: &Recipe,
        lock: &FolderLock,
        observer: &mut dyn Observer,
    ) -> Result<Option<Candidate>> {
        let folder = lock.folder();
        let (text, train) = (recipe.to_toml()?, recipe.train_config()?);
        let mut watch = Watch { clock: Clock::start(folder, &train)?, observer };
        let mut run = Run::new(self.sets.folder, recipe.clone())
            .save_dir(folder)
            .lock(lock)
            .device(self.device)
            .development_set(self.sets.valid)
            .bleu(validator::bleu)
            .stop(self.stop)
            .observer(&mut watch);
        if let Some((source, target)) = self.sets.languages {
            run = run.languages(source, target);
        }
        let ended = run.train()?;
        let wall_seconds = watch.clock.finish()?;
        if ended.outcome == Outcome::Interrupted {
            return Ok(None);
        }
        let (model, words) = self.choose(folder)?;
        Ok(Some(Candidate {
            model,
            words,
            parameters: ended.parameters,
            trained_parameters: ended.trained_parameters,
            updates: ended.progress.updates,
            // A short run may have logged nothing.
            summary: History::read(folder).map_or_else(|_| Summary::default(), |run| run.summary()),
            wall_seconds,
            config: keys::parse(&text)?,
            train,
        }))
    }

    /// Chooses the model that is measured: the mean of the last checkpoints, or the best one; and names it.
    fn choose(&self, folder: &Path) -> Result<(PathBuf, String)> {
        let mut epochs = kept::epochs(folder)?;
        epochs.drain(..epochs.len().saturating_sub(self.test.average()));
        if let (Some((first, _)), Some((last, _)), true) =
            (epochs.first(), epochs.last(), self.test.average() > 0)
        {
            let words = format!("mean of {} checkpoints, epochs {first} to {last}", epochs.len());
            let output = folder.join(AVERAGE);
            let inputs: Vec<PathBuf> = epochs.into_iter().map(|(_, path)| path).collect();
            average(&inputs, &output).map_err(|error| Error::from(error).within("averaging checkpoints"))?;
            return Ok((output, words));
        }
        let best = folder.join(artifacts::BEST);
        let name = if best.exists() { artifacts::BEST } else { artifacts::LAST };
        Ok((folder.join(name), name.to_owned()))
    }

    fn measure(
        &self,
        job: &Job,
        folder: &Path,
        candidate: &Candidate,
        observer: &mut dyn Observer,
    ) -> Result<RunResult> {
        let Candidate { model, summary, .. } = candidate;
        let mut result = RunResult {
            system: job.system.clone(),
            seed: job.seed,
            model: candidate.words.clone(),
            parameters: candidate.parameters,
            trained_parameters: candidate.trained_parameters,
            updates: candidate.updates,
            best_update: summary.best_dev_update,
            epochs: summary.epochs,
            wall_seconds: candidate.wall_seconds,
            training_seconds: summary.seconds,
            best_dev_loss: summary.best_dev_loss,
            dev: None,
            gates: None,
            oracle: None,
            translation: None,
            language_model: None,
            device: self.device.describe(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: self.commit.map(str::to_owned),
            data: self.sets.folder.display().to_string(),
            made_from: self.origins.clone(),
            measured: self.test.keys(),
            config: candidate.config.clone(),
        };
        let (paths, sets, train) = ((model.as_path(), folder), self.sets, &candidate.train);
        match (self.test, self.references) {
            (Test::Translation(test), Some(references)) => {
                let protocol = (test, references);
                let TranslationScores { dev, mut gates, oracle, translated } =
                    measure_translation(paths, sets, protocol, train, self.device, observer)?;
                if let Some(gates) = &mut gates {
                    (gates.updates, gates.gradient_norm) = (summary.gate_updates, summary.gate_gnorm);
                }
                (result.dev, result.gates, result.oracle) = (dev, gates, oracle);
                result.translation = Some(translated);
            }
            (Test::Translation(_), None) => unreachable!("sessions of translations open their references"),
            (Test::LanguageModel(test), _) => {
                let LanguageModelScores { dev, predicted } =
                    measure_language_model(paths, sets, test, train, self.device, observer)?;
                (result.dev, result.language_model) = (dev, Some(predicted));
            }
        }
        Ok(result)
    }
}

/// Passes events of training on, and counts the time.
struct Watch<'a> {
    clock: Clock<'a>,
    observer: &'a mut dyn Observer,
}

impl run::Observer for Watch<'_> {
    fn started(&mut self, start: &Start) {
        self.observer.event(&Event::TrainingStarted(start));
    }

    fn event(&mut self, event: &log::Event) {
        self.observer.event(&Event::Training(event));
        if let Some(seconds) = self.clock.observe(event) {
            self.observer.event(&Event::TimeLeft { seconds });
        }
    }
}

/// A model that is not trained here.
fn as_it_is(model: &Path) -> Result<Candidate> {
    let parameters = mae_model::folder::ModelFolder::load(model, &Device::cpu())?.model.size() as u64;
    Ok(Candidate {
        model: model.to_owned(),
        words: model.display().to_string(),
        parameters,
        trained_parameters: 0,
        updates: 0,
        summary: Summary::default(),
        wall_seconds: 0.0,
        train: TrainConfig::default(),
        config: Keys::new(),
    })
}

/// Removes a run's checkpoints but the measured model.
fn remove_checkpoints(folder: &Path, measured: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(Error::io("look into", folder))? {
        let path = entry.map_err(Error::io("look into", folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("checkpoint") && path != measured && path.is_dir() {
            files::remove_folder(&path)?;
        }
    }
    Ok(())
}
