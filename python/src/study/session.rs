//! A session of a study, with its events for Python.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mae::Device;
use mae::train::run::{Sets, VALID};
use mae_study::observer::{Event, Failure, FailureCause};
use mae_study::runner::Checkpoints;
use mae_study::{Result, Session, Study};
use serde_json::{Value, json};

use crate::background::Events;

/// Does what is missing of a study, with this data, in a folder. Returns the failures of runs in words.
pub fn run(
    study: &Study,
    over: &[toml::Table],
    (data, out): (&Path, &Path),
    device: &Device,
    stop: &AtomicBool,
    events: &Events,
) -> Result<Vec<String>> {
    let jobs = study.jobs(over)?;
    let test = study.test()?;
    let session = Session {
        sets: Sets { folder: data, languages: None, valid: VALID },
        out,
        parent: None,
        test: &test,
        checkpoints: Checkpoints::Remove,
        commit: mae_cli::commit(),
    };
    let mut current = String::new();
    let mut observer = |event: &Event<'_>| {
        if let Event::RunStarted { run, .. } = event {
            current = (*run).to_owned();
        }
        if let Some(event) = dict(event, &current) {
            events.send(&event);
        }
    };
    let remaining = session.check(&jobs, &mut observer)?;
    if remaining.is_empty() {
        return Ok(Vec::new());
    }
    let report = remaining.run(device.engine(), stop, &mut observer)?;
    Ok(report
        .failures
        .iter()
        .map(|failure| format!("{}: {}", failure.folder.display(), cause(failure)))
        .collect())
}

fn cause(failure: &Failure) -> String {
    match &failure.cause {
        FailureCause::Busy(_) => "another process works on this run".to_owned(),
        FailureCause::Error(error) => error.to_string(),
    }
}

/// An event as Python sees it.
fn dict(event: &Event<'_>, run: &str) -> Option<Value> {
    Some(match event {
        Event::Changed { run, changes, .. } => json!({ "event": "changed", "run": run, "changes": changes }),
        Event::RunStarted { run, number, total, seconds_left } => json!({
            "event": "run_started", "run": run, "number": number, "total": total, "seconds_left": seconds_left,
        }),
        Event::Training(line) => json!({ "event": "training", "run": run, "log": line }),
        Event::Measuring { run, model } => json!({ "event": "measuring", "run": run, "model": model }),
        Event::Progress { stage, done, total } => {
            json!({ "event": "progress", "run": run, "stage": stage, "done": done, "total": total })
        }
        Event::Measured => json!({ "event": "measured", "run": run }),
        Event::Failed(failure) => json!({ "event": "failed", "run": failure.run, "cause": cause(failure) }),
        _ => return None,
    })
}
