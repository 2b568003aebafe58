//! A session of a study on the command line: its flags, its progress, and how it ends.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use mae_study::keys::{Owned, refuse_owned};
use mae_study::observer::{Event, Failure, FailureCause, Observer};
use mae_study::protocol::Test;
use mae_study::runner::Checkpoints;
use mae_study::{Job, Session};
use mae_train::config::assignment;
use mae_train::run::{Observer as _, Sets, VALID};
use toml::Table;

use super::faults::{self, name_flags};
use super::record::commit;
use crate::columns::duration;
use crate::device::DeviceArgs;
use crate::exit::ExitCode;
use crate::outputs::unless_nobody_reads;
use crate::progress::Stages;
use crate::training::display::{Display, Output};
use crate::training::stop::{Answering, Stop};

/// Flags of commands that run a study.
#[derive(clap::Args)]
pub struct SessionArgs {
    /// Override any key of every run, as in train.max_tokens=8192; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// End this session after so many minutes: the current run is saved, and the same command continues.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<f64>,
    /// Keep the checkpoints of finished runs. Without this flag only the measured model stays.
    #[arg(long)]
    keep_checkpoints: bool,
    /// Print the table of the results so far without running anything.
    #[arg(long)]
    pub table: bool,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl SessionArgs {
    /// Keys that override those of every run; keys that the study decides itself are refused.
    pub fn overrides(&self, owned: &[Owned]) -> Result<Vec<Table>> {
        let layers =
            self.overrides.iter().map(|text| Ok(assignment(text)?)).collect::<Result<Vec<Table>>>()?;
        refuse_owned(&layers, owned).context("--set")?;
        Ok(layers)
    }
}

/// Data, folder and protocol of a session.
pub struct Study<'a> {
    /// Folder of the data.
    pub data: &'a Path,
    /// Folder of the study.
    pub out: &'a Path,
    /// Model that runs start with, if there is one.
    pub parent: Option<&'a Path>,
    /// Protocol that models are measured by.
    pub test: &'a Test,
}

/// End of a session.
#[derive(Default)]
pub struct Ending {
    /// Runs that failed, in words.
    failures: Vec<String>,
    /// Exit code of a process that was stopped, if it was.
    code: ExitCode,
}

impl Ending {
    /// Ends the command, once its table was printed.
    pub fn exit(self, printed: std::io::Result<()>) -> Result<ExitCode> {
        ensure!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        unless_nobody_reads(printed.context("cannot write to standard output"))?;
        Ok(self.code)
    }
}

impl SessionArgs {
    /// The sets of a study's data.
    pub fn sets<'a>(&'a self, data: &'a Path) -> Sets<'a> {
        let languages = self.source_lang.as_deref().zip(self.target_lang.as_deref());
        Sets { folder: data, languages, valid: VALID }
    }

    /// Does what is missing of the jobs.
    pub fn run(&self, study: &Study<'_>, jobs: &[Job]) -> Result<Ending> {
        let session = Session {
            sets: self.sets(study.data),
            out: study.out,
            parent: study.parent,
            test: study.test,
            checkpoints: if self.keep_checkpoints { Checkpoints::Keep } else { Checkpoints::Remove },
            commit: commit(),
        };
        let remaining = session.check(jobs, &mut print_changes).map_err(name_flags)?;
        if remaining.is_empty() {
            return Ok(Ending::default());
        }
        let device = self.device.open()?;
        let stop = Stop::new(self.stop_after)?;
        let mut terminal = Terminal::new(&stop);
        let report = remaining.run(&device, stop.flag(), &mut terminal).map_err(name_flags)?;
        if stop.is_due() {
            eprintln!("mae: this session has ended; the same command continues from here");
        }
        let failure = |failure: &Failure| format!("{}: {}", failure.folder.display(), cause(failure));
        Ok(Ending { failures: report.failures.iter().map(failure).collect(), code: stop.exit_code() })
    }
}

/// Prints that a result was made with other choices.
fn print_changes(event: &Event<'_>) {
    if let Event::Changed { run, folder, changes } = event {
        eprintln!(
            "mae: {run} was made with {}; it is not made again: remove {} if it should be",
            changes.join(", "),
            folder.display()
        );
    }
}

/// Why a run failed, in words.
fn cause(failure: &Failure) -> String {
    match &failure.cause {
        FailureCause::Busy(process) => {
            let process = process.map_or(String::new(), |id| format!(" (number {id})"));
            format!("another process{process} works on this run; give the two different --only or --seeds")
        }
        FailureCause::Error(error) => faults::text(error),
    }
}

/// Shows the progress of a study on standard error.
struct Terminal<'a> {
    stop: &'a Stop,
    display: Display,
    stages: Stages,
    measuring: Option<Answering>,
}

impl<'a> Terminal<'a> {
    fn new(stop: &'a Stop) -> Self {
        Self { stop, display: display(stop), stages: Stages::new(false), measuring: None }
    }
}

/// Shows a run on standard error; the run is saved and the session ends when nobody reads it any more.
fn display(stop: &Stop) -> Display {
    Display::new(Output::Errors).on_closed_pipe(stop.on_closed_pipe())
}

impl Observer for Terminal<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::RunStarted { run, number, total, seconds_left } => {
                let left =
                    seconds_left.map(|left| format!(", about {} left if all take as long", duration(left)));
                self.display = display(self.stop);
                self.display.say(&format!("mae: run {number} of {total}: {run}{}", left.unwrap_or_default()));
            }
            Event::TrainingStarted(start) => self.display.started(start),
            Event::Training(event) => self.display.event(event),
            Event::TimeLeft { seconds } => {
                self.display.say(&format!("about {} left of this run", duration(*seconds)));
            }
            Event::Measuring { run, model } => {
                self.display.say(&format!("mae: {run}: measuring the model ({model})"));
                self.measuring = Some(self.stop.answer(format!("finishing the measurement of {run}")));
            }
            Event::Progress { stage, done, total } => self.stages.steps(stage, *done, *total),
            Event::Measured => {
                self.stages.finish();
                self.measuring = None;
            }
            // Printed at once, for there may be hours to the end.
            Event::Failed(failure) => self.display.say(&format!("mae: {}: {}", failure.run, cause(failure))),
            _ => {}
        }
    }
}
