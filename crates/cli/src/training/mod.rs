//! A training run, from a folder of data to checkpoints: what `mae train` and the studies share.
//!
//! | room | what |
//! |---|---|
//! | `mod` | a session of training, and what ends it early |
//! | `material` | what models are trained on: pairs of sentences, or blocks of a text |
//! | `display` | what people see of a run |

pub mod display;
pub mod material;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mae_engine::Device;
use mae_model::{Config, Model, folder};
use mae_train::checkpoint::{Resets, Writer};
use mae_train::log::Event;
use mae_train::{Learner, Outcome, RunConfig, Trainer};

use self::material::Material;

/// The configuration of a run on this material.
pub type ConfigOf<D> = RunConfig<<<D as Material>::Model as Model>::Config>;

/// A run that begins, or goes on where it stopped.
pub struct Session<'a, D> {
    /// The folder that the material is from, for the record.
    pub data: &'a Path,
    /// What it is trained on.
    pub material: &'a D,
    /// Where it computes.
    pub device: &'a Device,
    /// Where checkpoints, the log and run.toml go.
    pub folder: &'a Path,
    /// Where TensorBoard's files go, if anywhere.
    pub tensorboard: Option<PathBuf>,
    /// What a run that goes on does not take from its checkpoint.
    pub resets: Resets,
    /// What ends it early.
    pub stop: &'a Stop,
}

impl<D: Material> Session<'_, D> {
    /// Trains. `begin` sees the model before, `watch` every event.
    pub fn run(
        self,
        config: ConfigOf<D>,
        begin: impl FnOnce(&D::Model),
        mut watch: impl FnMut(&Event),
    ) -> Result<Outcome> {
        let model = self.material.model(&config.model, self.device, config.train.seed)?;
        begin(&model);
        std::fs::create_dir_all(self.folder)
            .with_context(|| format!("cannot make the folder {}", self.folder.display()))?;
        write_record(self.folder, &self.data.display().to_string(), &config)?;
        let (train, valid) = self.material.corpora();
        let trainer = Trainer {
            learner: Learner::new(model, &config.train),
            train,
            valid,
            text: self.material.text(),
            folder: self.folder.to_owned(),
            tensorboard: self.tensorboard,
            resets: self.resets,
            validator: self.material.validator(&config.train),
            config,
            stop: &self.stop.flag,
            writer: Writer::new(),
        };
        let (_, outcome) = trainer.run(|event| {
            watch(event);
            self.stop.is_due();
        })?;
        Ok(outcome)
    }
}

/// Writes `run.toml` into a run's folder: everything that it uses, and what it is trained on.
pub fn write_record<C: Config>(folder: &Path, data: &str, config: &RunConfig<C>) -> Result<()> {
    let record = format!("# mae {}\n# data: {data}\n\n{}", env!("CARGO_PKG_VERSION"), config.to_toml());
    Ok(folder::write_aside(&folder.join("run.toml"), record.as_bytes())?)
}

/// What is about to be trained, in words; of the training set, `data` says how much there is.
pub fn introduction<M: Model>(
    config: &RunConfig<M::Config>,
    model: &M,
    data: &str,
    device: &Device,
) -> String {
    let (mixture, heads) = (config.model.mixture(), config.model.heads());
    let experts = mixture.experts(heads);
    let experts = experts.map_or(String::new(), |experts| format!(" and {} experts", experts.count()));
    let all = model.params().count(mae_model::groups::trained());
    let trained = model.params().count(config.train.free.groups());
    let trained = if trained == all { String::new() } else { format!(" ({trained} of them trained)") };
    format!(
        "{}: {}, {heads} heads{experts} per attention\n{all} parameters{trained}, {data}\n{}",
        config.model.name(),
        mixture.system,
        device.describe()
    )
}

/// What ends training early: a signal, or the end of the sitting. The current update is finished and saved.
pub struct Stop {
    flag: Arc<AtomicBool>,
    /// The number of the last signal; 0 before.
    signal: Arc<AtomicUsize>,
    until: Option<Instant>,
}

impl Stop {
    /// On SIGINT and SIGTERM, a second of which ends the process at once; and after so many minutes.
    pub fn new(minutes: Option<f64>) -> Result<Self> {
        let until = match minutes.map(|minutes| (minutes, Duration::try_from_secs_f64(60.0 * minutes))) {
            None => None,
            Some((minutes, Err(_))) => anyhow::bail!("--stop-after {minutes}: this is no number of minutes"),
            Some((_, Ok(time))) => {
                ensure!(time > Duration::ZERO, "--stop-after must be above 0 minutes");
                Instant::now().checked_add(time)
            }
        };
        let (flag, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self { flag, signal: last, until })
    }

    /// Of a process that was stopped: 128 and the signal's number, as of programs that it ends; 0 where the sitting was over.
    pub fn exit_code(&self) -> ExitCode {
        match u8::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(signal @ 1..) => ExitCode::from(128 + signal),
            _ => ExitCode::SUCCESS,
        }
    }

    /// Whether it is time to stop.
    pub fn is_due(&self) -> bool {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            self.flag.store(true, Ordering::Relaxed);
        }
        self.flag.load(Ordering::Relaxed)
    }

    /// Does what is not stopped halfway. A signal meanwhile is answered at once with what the process is `busy` with.
    pub fn answered<T>(&self, busy: &str, work: impl FnOnce() -> T) -> T {
        let (done, over) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                    if self.signal.load(Ordering::Relaxed) > 0 {
                        eprintln!("mae: {busy}; Ctrl-C again to stop now");
                        return;
                    }
                }
            });
            let result = work();
            drop(done);
            result
        })
    }
}
