//! A sitting: some runs of a study, one after the other, until they are done or time is up.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use mae_model::folder::Task;
use mae_model::{LmConfig, ModelConfig};
use mae_train::config::{assignment, task};
use mae_train::{RunConfig, TrainConfig};
use toml::Table;

use super::agreement::{Keys, changes, check_begun, check_origins};
use super::keys::{Owned, refuse_owned};
use super::lock;
use super::origins::{Origins, origins};
use super::protocol::Test;
use super::references::References;
use super::result::RunResult;
use super::runner::{Ended, Job, Runner, Work};
use crate::columns::duration;
use crate::device::DeviceArgs;
use crate::outputs::unless_nobody_reads;
use crate::runs::changes::flat;
use crate::training::Stop;
use crate::training::material::Sets;

/// Flags of the commands that sit.
#[derive(clap::Args)]
pub struct SittingArgs {
    /// Override any key of every run, as in train.max_tokens=8192; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// End this sitting after so many minutes: the current run is saved, the same command goes on.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<f64>,
    /// Keep the checkpoints of finished runs; otherwise only the measured model stays.
    #[arg(long)]
    keep_checkpoints: bool,
    /// Run nothing; print the table of what is there.
    #[arg(long)]
    pub table: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl SittingArgs {
    /// What overrides the keys of every run; not those that the study decides itself.
    pub fn overrides(&self, owned: &[Owned]) -> Result<Vec<Table>> {
        let layers =
            self.overrides.iter().map(|text| Ok(assignment(text)?)).collect::<Result<Vec<Table>>>()?;
        refuse_owned(&layers, owned).context("--set")?;
        Ok(layers)
    }

    /// Source and target language, where they were given.
    pub fn languages(&self) -> Option<(&str, &str)> {
        self.source_lang.as_deref().zip(self.target_lang.as_deref())
    }
}

/// What the runs of a sitting share.
pub struct Sitting<'a> {
    /// The data.
    pub sets: Sets<'a>,
    /// The study's folder, which is made if need be.
    pub out: &'a Path,
    /// The model that all runs have something of, where there is one.
    pub parent: Option<&'a Path>,
    /// How models are measured.
    pub test: &'a Test,
    /// What the command was asked for.
    pub args: &'a SittingArgs,
}

/// What came of a sitting.
#[derive(Default)]
pub struct Sat {
    /// What went wrong with single runs, in words.
    failures: Vec<String>,
    /// That of a process that was stopped, if it was.
    code: ExitCode,
}

impl Sat {
    /// How the command ends, once its table was printed.
    pub fn end(self, printed: std::io::Result<()>) -> Result<ExitCode> {
        ensure!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        unless_nobody_reads(printed.context("cannot write to standard output"))?;
        Ok(self.code)
    }
}

impl Sitting<'_> {
    /// Does what is missing of the jobs. What goes wrong with single runs does not stop the others.
    pub fn run(&self, jobs: &[Job]) -> Result<Sat> {
        let origins = origins(self.sets, self.test, self.parent)?;
        let (mut left, mut finished) = (Vec::new(), Vec::new());
        for (i, job) in jobs.iter().enumerate() {
            match RunResult::read(&self.out.join(&job.name))? {
                None => left.push((i, job)),
                Some(result) => finished.push((job, result)),
            }
        }
        // Nothing is touched before all is known to fit.
        if !left.is_empty() {
            check_origins(self.out, &origins)?;
        }
        for (_, job) in &left {
            if let Some((keys, train)) = configuration(&job.work)? {
                check_begun(&self.out.join(&job.name), keys, &train, &origins)?;
            }
        }
        let mut seconds = Vec::new();
        for (job, result) in &finished {
            self.warn_of_changes(job, result, &origins)?;
            seconds.push(result.wall_seconds);
        }
        if left.is_empty() {
            return Ok(Sat::default());
        }
        let references = match self.test {
            Test::Translation(test) => Some(References::open(self.sets, test)?),
            Test::LanguageModel(_) => None,
        };
        let device = self.args.device.open()?;
        let stop = Stop::new(self.args.stop_after)?;
        std::fs::create_dir_all(self.out).with_context(|| format!("--out {}", self.out.display()))?;
        if let Some(references) = &references {
            let _lock = lock::wait(self.out)?;
            references.keep(self.out)?;
        }
        let runner = Runner {
            sets: self.sets,
            out: self.out,
            device: &device,
            test: self.test,
            origins: &origins,
            references: references.as_ref(),
            keep_checkpoints: self.args.keep_checkpoints,
            stop: &stop,
        };
        let mut failures = Vec::new();
        for (done, (i, job)) in left.iter().enumerate() {
            if stop.is_due() {
                break;
            }
            let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
            let rest = (left.len() - done) as f64 * mean;
            let rest = if rest > 0.0 {
                format!(", about {} left if all take as long", duration(rest))
            } else {
                String::new()
            };
            // What the run before has left free.
            device.trim();
            eprintln!("mae: run {} of {}: {}{rest}", i + 1, jobs.len(), job.name);
            // Told at once, for there may be hours to the end.
            let mut failed = |what: String| {
                eprintln!("mae: {}: {what}", job.name);
                failures.push(format!("{}: {what}", self.out.join(&job.name).display()));
            };
            match runner.run(job) {
                Ok(Ended::Done(result)) => seconds.push(result.wall_seconds),
                Ok(Ended::Stopped) => break,
                Ok(Ended::Busy(process)) => {
                    let process = process.map_or(String::new(), |id| format!(" (number {id})"));
                    failed(format!(
                        "another process{process} works on this run; give the two different --only or --seeds"
                    ));
                }
                Err(error) => failed(format!("{error:#}")),
            }
            // A GPU that has failed does nothing more in this process.
            if device.check().is_err() {
                break;
            }
        }
        if stop.is_due() {
            eprintln!("mae: this sitting has ended; the same command goes on from here");
        }
        Ok(Sat { failures, code: stop.exit_code() })
    }

    /// A result that was made with other choices stays, but not in silence.
    fn warn_of_changes(&self, job: &Job, result: &RunResult, origins: &Origins) -> Result<()> {
        let config = configuration(&job.work)?.map(|(keys, _)| keys);
        let changes = changes(result, config, self.test, origins);
        if !changes.is_empty() {
            eprintln!(
                "mae: {} was made with {}; it is not made again: remove {} if it should be",
                job.name,
                changes.join(", "),
                self.out.join(&job.name).display()
            );
        }
        Ok(())
    }
}

/// Everything that a run uses, key by key, and how it trains; none where nothing is trained.
fn configuration(work: &Work) -> Result<Option<(Keys, TrainConfig)>> {
    let Work::Train(layers) = work else { return Ok(None) };
    let (text, train) = match task(layers) {
        Task::Translation => {
            let config = RunConfig::<ModelConfig>::from_layers(layers)?;
            (config.to_toml(), config.train)
        }
        Task::LanguageModeling => {
            let config = RunConfig::<LmConfig>::from_layers(layers)?;
            (config.to_toml(), config.train)
        }
    };
    Ok(Some((flat(&text).context("a configuration as TOML")?, train)))
}
