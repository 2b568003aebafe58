//! A run on sets that are open already.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use mae_data::files::FolderLock;
use mae_engine::Device;
use mae_engine::collective::Team;
use mae_model::{Config, Model, groups};

use super::{MakeBleu, Material, Observer, Progress, RunSummary, Start};
use crate::checkpoint::{Resets, Writer};
use crate::record::Record;
use crate::{Error, Learner, Result, RunConfig, Trainer, artifacts};

/// A run that starts, or resumes from the last checkpoint of its folder.
pub struct Session<'a, D> {
    /// Name of the data, for the record.
    pub data: &'a str,
    /// Training and development sets.
    pub material: &'a D,
    /// Device to compute on.
    pub device: &'a Device,
    /// Folder of checkpoints, log and record.
    pub folder: &'a Path,
    /// Folder of TensorBoard's files, if there are to be any.
    pub tensorboard: Option<PathBuf>,
    /// Parts of its checkpoint that a resumed run does not take.
    pub resets: Resets,
    /// Makes what scores BLEU, where the configuration asks for it.
    pub bleu: Option<MakeBleu>,
    /// Flag that ends the run after the current update.
    pub stop: &'a AtomicBool,
    /// Lock of the folder, if the caller holds it; otherwise the run takes it.
    pub lock: Option<&'a FolderLock>,
    /// Processes that train the model together.
    pub team: Team,
}

/// A trained model and the summary of its run.
pub struct Trained<M> {
    /// The model after the last update.
    pub model: M,
    /// Result of the run.
    pub summary: RunSummary,
}

impl<D: Material> Session<'_, D> {
    /// Trains to the end, or until it is stopped.
    pub fn train(
        self,
        config: RunConfig<<D::Model as Model>::Config>,
        observer: &mut dyn Observer,
    ) -> Result<Trained<D::Model>> {
        let is_first = self.team.place().is_first();
        let own = if self.lock.is_none() && is_first { Some(FolderLock::take(self.folder)?) } else { None };
        let lock = self.lock.or(own.as_ref());
        if config.train.zero > 0 && self.device.is_gpu() {
            let fault = "train.zero = 1 is for CPUs: leave it out on GPUs";
            return Err(Error::Config(vec![fault.into()]));
        }
        let team = self
            .team
            .clone()
            .sending(config.train.ddp_dtype.into())
            .overlapping(config.train.ddp_overlap.into());
        let model = self.material.model(&config.model, self.device, config.train.seed)?;
        let start = self.start(&config, &model)?;
        observer.started(&start);
        let (train, valid) = self.material.corpora();
        let trainer = Trainer {
            learner: Learner::new(model, &config.train).among(team),
            train,
            valid,
            text: self.material.text(),
            record: Some(Record::new(self.data, &config)),
            folder: self.folder.to_owned(),
            tensorboard: self.tensorboard,
            resets: self.resets,
            validator: self.material.validator(&config.train, self.bleu)?,
            config,
            stop: self.stop,
            writer: Writer::new()?,
            lock,
        };
        let (learner, outcome) = trainer.run(|event| observer.event(event))?;
        let best = self.folder.join(artifacts::BEST);
        let progress = match is_first {
            true => Progress::of(self.folder)?.unwrap_or_default(),
            false => Progress { epochs: 0, updates: learner.counters().updates },
        };
        let summary = RunSummary {
            outcome,
            progress,
            parameters: start.parameters,
            trained_parameters: start.trained_parameters,
            model: if best.exists() { best } else { self.folder.join(artifacts::LAST) },
        };
        observer.finished(&summary);
        Ok(Trained { model: learner.model, summary })
    }

    fn start(&self, config: &RunConfig<<D::Model as Model>::Config>, model: &D::Model) -> Result<Start> {
        let (mixture, heads) = (config.model.mixture(), config.model.heads());
        Ok(Start {
            folder: self.folder.to_owned(),
            architecture: config.model.name().to_owned(),
            system: mixture.system.to_string(),
            heads,
            experts: mixture.experts(heads).map(|experts| experts.count()),
            parameters: model.params().count(groups::trained()) as u64,
            trained_parameters: model.params().count(config.train.free.groups()) as u64,
            data: self.material.size(config.train.subset),
            has_development_set: self.material.corpora().1.is_some(),
            device: self.device.describe(),
            on_gpu: self.device.is_gpu(),
            ranks: self.team.describe(),
            resumed: if self.team.place().is_first() { Progress::of(self.folder)? } else { None },
        })
    }
}
