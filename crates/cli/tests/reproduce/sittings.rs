//! Interrupted studies, signals, and several processes.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{STUDY, args, json, place};
use crate::common::Sandbox;

/// What a run has found, without what depends on the clock.
fn found(place: &Sandbox, run: &str) -> (Value, String) {
    let mut result = json(&place.path(run).join("result.json"));
    for key in ["wall_seconds", "training_seconds"] {
        assert!(result[key].take().as_f64().unwrap() > 0.0, "{key}");
    }
    (result, std::fs::read_to_string(place.path(run).join("hypotheses.txt")).unwrap())
}

/// Sittings that end early, and a kill, lead to what an undisturbed study finds.
#[test]
fn interrupted_studies_go_on() {
    let place = place();
    let more = ["--only", "mae7", "--seeds", "1", "--keep-checkpoints"];
    place.mae(&args("whole", &more), &[]).succeeded();
    assert!(place.path("whole/mae7-1/checkpoint12").exists());
    let mut sittings = 0;
    while !place.path("short/mae7-1/result.json").exists() {
        let sitting = place.mae(&args("short", &[&more[..], &["--stop-after", "0.000001"]].concat()), &[]);
        sitting.succeeded();
        sittings += 1;
        if !place.path("short/mae7-1/result.json").exists() {
            assert!(sitting.stderr.contains("this session has ended"), "{}", sitting.stderr);
            assert!(sitting.stdout.contains("Not done yet"), "{}", sitting.stdout);
        }
        // One update each is enough of this.
        if sittings == 4 {
            place.mae(&args("short", &more), &[]).succeeded();
        }
    }
    assert!(sittings > 1, "the first sitting had time for everything");
    assert_eq!(found(&place, "short/mae7-1"), found(&place, "whole/mae7-1"));
    // A run that was begun goes on as it was begun, or not at all; a longer budget is no other one.
    place.mae(&args("longer", &[&more[..], &["--max-epoch", "2"]].concat()), &[]).succeeded();
    std::fs::remove_file(place.path("longer/mae7-1/result.json")).unwrap();
    for (flags, then) in [
        (["--set", "train.lr=1e-3"], "train.lr = 0.01 (now 0.001)"),
        (["--max-epoch", "1"], "train.max_epoch = 2 (now 1)"),
    ] {
        let other = place.mae(&args("longer", &[&more[..], &flags].concat()), &[]);
        let said = format!("longer/mae7-1 was started with {then}: resume it as it was started, or remove");
        assert!(other.failed().contains(&said), "{}", other.stderr);
    }
    place.mae(&args("longer", &more), &[]).succeeded();
    assert_eq!(found(&place, "longer/mae7-1"), found(&place, "whole/mae7-1"));
    for (out, signal, code) in [("killed", "-KILL", None), ("ended", "-TERM", Some(143))] {
        let run = place.path(out).join("mae7-1");
        let mut child = Command::new(env!("CARGO_BIN_EXE_mae"))
            .args(args(out, &more))
            .current_dir(place.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !run.join("checkpoint_last").exists() && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint in two minutes");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let status = child.wait().unwrap();
        // It may have been done already.
        assert!(status.code() == code || run.join("result.json").exists(), "{out}: {status}");
        place.mae(&args(out, &more), &[]).succeeded();
        assert_eq!(found(&place, &format!("{out}/mae7-1")), found(&place, "whole/mae7-1"));
    }
}

/// Measuring is not stopped halfway by the first signal, which is answered, but by the second.
#[test]
fn signals_while_a_run_is_measured() {
    let place = place();
    place.write("tiny.toml", STUDY.replace("draws = 2", "draws = 100000"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_mae"))
        .args(args("out", &["--only", "mae7", "--seeds", "1,1", "--max-epoch", "1"]))
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // Doubled seeds are one.
    assert!(said.any(|line| line.contains("run 1 of 1: mae7-1")));
    let signal = || Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success();
    assert!(said.any(|line| line.contains("measuring the model")));
    assert!(signal());
    assert!(said.any(|line| line.contains("finishing the measurement of mae7-1; Ctrl-C again to stop now")));
    assert!(signal());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!place.path("out/mae7-1/result.json").exists());
}

#[test]
fn a_run_belongs_to_one_process_at_a_time() {
    let place = place();
    std::fs::create_dir_all(place.path("out/base-1")).unwrap();
    let lock = OpenOptions::new().create(true).truncate(true).write(true).open(place.path("out/base-1/lock"));
    let lock = lock.unwrap();
    lock.lock().unwrap();
    let busy = place.mae(&args("out", &["--seeds", "1", "--max-epoch", "1"]), &[]);
    let said = busy.failed();
    assert!(said.contains("out/base-1: another process") && said.contains("--only or --seeds"), "{said}");
    assert!(!place.path("out/base-1/result.json").exists() && place.path("out/mae7-1/result.json").exists());
    drop(lock);
    place.mae(&args("out", &["--seeds", "1", "--max-epoch", "1"]), &[]).succeeded();
    assert!(place.path("out/base-1/result.json").exists());
}

/// A reader that goes away (`mae reproduce … 2>&1 | head`) ends a session as a signal does: the run is saved.
#[test]
fn a_closed_pipe_saves_the_run() {
    let place = place();
    let more = ["--only", "base", "--seeds", "1", "--set", "train.log_interval=1"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_mae"))
        .args(args("piped", &more))
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let trains = |line: std::io::Result<String>| line.unwrap().contains("update 1:");
    assert!(lines.by_ref().any(trains), "training begins");
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(
        place.path("piped/base-1/checkpoint_last").exists()
            && !place.path("piped/base-1/result.json").exists()
    );
    place.mae(&args("piped", &more), &[]).succeeded();
    place.mae(&args("whole", &more), &[]).succeeded();
    assert_eq!(found(&place, "piped/base-1"), found(&place, "whole/base-1"));
}
