//! A run that is stopped and resumed equals one that never stopped: every weight, moment and logged loss, to the bit.

use std::path::Path;
use std::sync::atomic::Ordering;

use mae_train::checkpoint::Resets;
use mae_train::log::Event;
use mae_train::{Learner, Outcome, RunConfig};

use crate::common::{self, bits, config, learner};

/// Trains in `folder`; stops from outside after update `stop_after`.
fn train(folder: &Path, config: &RunConfig, stop_after: Option<u64>) -> (Learner, Outcome, Vec<String>) {
    let mut seen = Vec::new();
    let (learner, outcome) = common::train(folder, config, Resets::default(), |event, stop| {
        if let Event::Train(line) = event {
            let bits = [line.loss, line.nll_loss, line.gnorm, line.lr].map(f64::to_bits);
            let gates = [line.gate_loss, line.gate_gnorm];
            seen.push(format!("{} {} {bits:?} {gates:?}", line.num_updates, line.gate_updates));
            stop.store(stop_after.is_some_and(|after| line.num_updates >= after), Ordering::Relaxed);
        }
        if let Event::Valid(valid) = event {
            seen.push(format!("{} {} {:?}", valid.num_updates, valid.loss.to_bits(), valid.gates));
        }
    })
    .unwrap();
    (learner, outcome, seen)
}

#[test]
fn a_resumed_run_continues_bit_for_bit() {
    let frozen = ["train.batching=frozen", "train.subset=0.8", "train.max_sentences=9"];
    for (system, extra) in [
        ("mae", &[][..]),
        ("uniform", &[]),
        ("nobcd", &[]),
        ("base", &frozen),
        ("mae", &["train.free=gates"]),
        ("mae", &["train.free=gates+out", "train.gate_every_updates=2"]),
        ("nobcd", &["train.free=gates"]),
        ("mae", &["train.gate_training=random_signs", "train.gate_every_updates=2"]),
        ("mae", &["train.gate_optimizer=momentum", "train.gate_rate=schedule", "train.gate_lr=100"]),
        ("mae", &["train.gate_training=frozen", "train.gate_init=zero"]),
        ("nobcd", &["train.gate_optimizer=adam", "train.gate_lr=0.01", "train.joint_gate_every_updates=3"]),
    ] {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = config(system, extra);
        let (never_stopped, outcome, lines) = train(whole.path(), &config, None);
        assert_eq!((outcome, never_stopped.counters().updates), (Outcome::Finished, 20));
        let (_, outcome, mut seen) = train(parts.path(), &config, Some(9));
        assert_eq!(outcome, Outcome::Interrupted);
        let (resumed, outcome, rest) = train(parts.path(), &config, None);
        assert_eq!(outcome, Outcome::Finished);
        seen.extend(rest);
        assert_eq!(seen, lines, "{system}: logged losses differ");
        assert_eq!(resumed.counters(), never_stopped.counters());
        assert!(bits(&resumed) == bits(&never_stopped), "{system}: weights or moments differ");
    }
}

/// A process that dies between two saves leaves lines in the log whose updates will be made again.
#[test]
fn the_log_has_each_update_once_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("mae", &["train.log_interval=1"]);
    train(folder.path(), &config, Some(10));
    let log = folder.path().join("log.jsonl");
    let mut text = std::fs::read_to_string(&log).unwrap();
    text.push_str("{\"event\":\"train\",\"num_updates\":11,\"loss\":1.0}\n{\"event\":\"tra");
    std::fs::write(&log, text).unwrap();
    train(folder.path(), &config, None);
    let numbers: Vec<u64> = std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "train")
        .map(|event| event["num_updates"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn another_model_in_the_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), &config("mae", &["train.max_update=2"]), None);
    let other = config("base", &[]);
    let mut learner = learner(&other);
    let error = mae_train::checkpoint::load_last(folder.path(), &mut learner, Resets::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("another model"), "{error}");
}

/// A crash between the two renames of a save leaves the older checkpoint aside; it is found and used.
#[test]
fn a_crash_while_saving_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("mae", &[]);
    train(folder.path(), &config, Some(9));
    let at = |name: &str| folder.path().join(name);
    std::fs::rename(at("checkpoint_last"), at("checkpoint_last.old")).unwrap();
    std::fs::create_dir(at("checkpoint_last.tmp")).unwrap();
    std::fs::write(at("checkpoint_last.tmp/model.safetensors"), b"half").unwrap();
    let (resumed, _, _) = train(folder.path(), &config, None);
    let whole = tempfile::tempdir().unwrap();
    assert!(bits(&resumed) == bits(&train(whole.path(), &config, None).0));
    assert!(!at("checkpoint_last.tmp").exists() && !at("checkpoint_last.old").exists());
}

#[test]
fn patience_and_kept_epochs() {
    let folder = tempfile::tempdir().unwrap();
    // A rate of nearly nothing brings nothing better than the first validation.
    let settings = [
        "train.patience=2",
        "train.lr=1e-12",
        "train.warmup_init_lr=1e-12",
        "train.max_update=0",
        "train.keep_last_epochs=2",
    ];
    let config = config("base", &[&settings[..], &["train.min_lr=0"]].concat());
    let (_, outcome, _) = train(folder.path(), &config, None);
    assert_eq!(outcome, Outcome::OutOfPatience);
    let mut kept: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("checkpoint"))
        .collect();
    kept.sort();
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert!(kept.contains(&"checkpoint_best".into()) && kept.contains(&"checkpoint_last".into()));
}
