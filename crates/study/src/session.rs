//! A session: some runs of a study, one after the other, until they are done or the session is stopped.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::files::{self, FolderLock};
use mae_engine::Device;
use mae_train::keys;
use mae_train::run::Sets;

use crate::agreement::{changes, check_origins, check_started};
use crate::error::Result;
use crate::job::{Job, Work};
use crate::observer::{Event, Failure, FailureCause, Observer};
use crate::origins::{Origins, origins};
use crate::protocol::Test;
use crate::references::References;
use crate::result::RunResult;
use crate::runner::{Checkpoints, JobOutcome, Runner};

/// Things that the runs of a session share.
pub struct Session<'a> {
    /// The data.
    pub sets: Sets<'a>,
    /// The study's folder, which is made if it is missing.
    pub out: &'a Path,
    /// Model that runs start with or measure, if there is one.
    pub parent: Option<&'a Path>,
    /// Protocol that models are measured by.
    pub test: &'a Test,
    /// Checkpoints of runs that are done.
    pub checkpoints: Checkpoints,
    /// Commit of the program, for the record.
    pub commit: Option<String>,
}

/// Result of a session.
#[derive(Debug, Default)]
pub struct SessionReport {
    /// Runs that failed.
    pub failures: Vec<Failure>,
}

/// Work that is left of some jobs, checked.
pub struct Remaining<'a> {
    session: &'a Session<'a>,
    /// Jobs with their numbers among all, from 1.
    jobs: Vec<(usize, &'a Job)>,
    total: usize,
    origins: Origins,
    references: Option<References>,
    /// Seconds of the runs that are done.
    seconds: Vec<f64>,
}

impl<'a> Session<'a> {
    /// Checks jobs against the study's folder, and returns those that are not done. Nothing is changed.
    pub fn check(&'a self, jobs: &'a [Job], observer: &mut dyn Observer) -> Result<Remaining<'a>> {
        let origins = origins(self.sets, self.test, self.parent)?;
        let (mut left, mut finished) = (Vec::new(), Vec::new());
        for (number, job) in (1..).zip(jobs) {
            match RunResult::read(&self.out.join(&job.name))? {
                None => left.push((number, job)),
                Some(result) => finished.push((job, result)),
            }
        }
        if !left.is_empty() {
            check_origins(self.out, &origins)?;
        }
        for (_, job) in &left {
            if let Work::Train(recipe) = &job.work {
                let now = keys::parse(&recipe.to_toml()?)?;
                check_started(&self.out.join(&job.name), now, &recipe.train_config()?, &origins)?;
            }
        }
        for (job, result) in &finished {
            self.report_changes(job, result, &origins, observer)?;
        }
        let references = match self.test {
            Test::Translation(test) if !left.is_empty() => Some(References::open(self.sets, test)?),
            _ => None,
        };
        let seconds = finished.iter().map(|(_, result)| result.wall_seconds).collect();
        Ok(Remaining { session: self, jobs: left, total: jobs.len(), origins, references, seconds })
    }

    /// Reports a result that was made with other choices than are asked for now.
    fn report_changes(
        &self,
        job: &Job,
        result: &RunResult,
        origins: &Origins,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let config = match &job.work {
            Work::Train(recipe) => Some(keys::parse(&recipe.to_toml()?)?),
            Work::Measure(_) => None,
        };
        let changes = changes(result, config, self.test, origins);
        if !changes.is_empty() {
            let folder = self.out.join(&job.name);
            observer.event(&Event::Changed { run: &job.name, folder: &folder, changes: &changes });
        }
        Ok(())
    }
}

impl Remaining<'_> {
    /// Returns whether there is nothing left to do.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Does the work, until `stop` is set: then the current run is saved and can be resumed. A run that fails does not stop
    /// the others.
    pub fn run(
        mut self,
        device: &Device,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<SessionReport> {
        let session = self.session;
        files::create_folder(session.out)?;
        if let Some(references) = &self.references {
            let _lock = FolderLock::wait(session.out)?;
            references.keep(session.out)?;
        }
        let runner = Runner {
            sets: session.sets,
            out: session.out,
            device,
            test: session.test,
            origins: &self.origins,
            references: self.references.as_ref(),
            checkpoints: session.checkpoints,
            commit: session.commit.as_deref(),
            stop,
        };
        let mut failures = Vec::new();
        for (done, (number, job)) in self.jobs.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mean = self.seconds.iter().sum::<f64>() / self.seconds.len() as f64;
            let left = (self.jobs.len() - done) as f64 * mean;
            // Memory that the run before has freed.
            device.trim();
            observer.event(&Event::RunStarted {
                run: &job.name,
                number: *number,
                total: self.total,
                seconds_left: (left > 0.0).then_some(left),
            });
            let cause = match runner.run(job, observer) {
                Ok(JobOutcome::Done(result)) => {
                    self.seconds.push(result.wall_seconds);
                    None
                }
                Ok(JobOutcome::Stopped) => break,
                Ok(JobOutcome::Busy(process)) => Some(FailureCause::Busy(process)),
                Err(error) => Some(FailureCause::Error(error)),
            };
            if let Some(cause) = cause {
                let failure = Failure { run: job.name.clone(), folder: session.out.join(&job.name), cause };
                observer.event(&Event::Failed(&failure));
                failures.push(failure);
            }
            // A GPU that has failed does nothing more in this process.
            if device.check().is_err() {
                break;
            }
        }
        Ok(SessionReport { failures })
    }
}
