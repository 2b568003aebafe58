//! A sitting: some runs of a study, one after the other, until they are done or time is up.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use mae_model::folder::Task;
use mae_model::{LmConfig, ModelConfig};
use mae_train::RunConfig;
use mae_train::config::{assignment, task};
use toml::Table;

use super::lock;
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
    /// What overrides the keys of every run.
    pub fn overrides(&self) -> Result<Vec<Table>> {
        self.overrides.iter().map(|text| Ok(assignment(text)?)).collect()
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
    /// The study's folder.
    pub out: &'a Path,
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
        let mut left = Vec::new();
        let mut seconds = Vec::new();
        for (i, job) in jobs.iter().enumerate() {
            match RunResult::read(&self.out.join(&job.name))? {
                None => left.push((i, job)),
                Some(result) => {
                    self.warn_of_changes(job, &result)?;
                    seconds.push(result.wall_seconds);
                }
            }
        }
        if left.is_empty() {
            return Ok(Sat::default());
        }
        let references = match self.test {
            Test::Translation(test) => Some(References::open(self.sets, test)?),
            Test::LanguageModel(_) => None,
        };
        if let Some(references) = &references {
            let _lock = lock::wait(self.out)?;
            references.keep(self.out)?;
        }
        let device = self.args.device.open()?;
        let stop = Stop::new(self.args.stop_after)?;
        let runner = Runner {
            sets: self.sets,
            out: self.out,
            device: &device,
            test: self.test,
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
    fn warn_of_changes(&self, job: &Job, result: &RunResult) -> Result<()> {
        let Work::Train(layers) = &job.work else { return Ok(()) };
        let now = keys(layers)?;
        let changes: Vec<String> = now
            .iter()
            .filter(|(key, value)| result.config.get(*key).is_some_and(|then| then != *value))
            .map(|(key, value)| format!("{key} = {} (now {value})", result.config[key]))
            .collect();
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

/// Everything that a run with these layers uses, key by key.
fn keys(layers: &[Table]) -> Result<BTreeMap<String, String>> {
    let text = match task(layers) {
        Task::Translation => RunConfig::<ModelConfig>::from_layers(layers)?.to_toml(),
        Task::LanguageModeling => RunConfig::<LmConfig>::from_layers(layers)?.to_toml(),
    };
    flat(&text).context("a configuration as TOML")
}
