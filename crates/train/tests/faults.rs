//! Disks that fail, processes that end and power that is cut at operations of a training run; two runs in one folder;
//! divergence. No checkpoint is lost, none is a mixture, and a run resumes to the same bits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use mae_data::files::faults::{Fault, Faults, Operation};
use mae_data::files::{FolderLock, replay};
use mae_data::{Error as DataError, ParallelDataset};
use mae_train::checkpoint::{self, Resets, Snapshot, TextSide, Writer};
use mae_train::error::CheckpointFault;
use mae_train::log::Event;
use mae_train::{Error, Result, RunConfig, Trainer};

use crate::common;

/// A run of four updates that saves every two, and keeps the newest and the best.
fn config(extra: &[&str]) -> RunConfig {
    let mut keys = vec![
        "train.max_update=4",
        "train.max_epoch=9",
        "train.save_interval_updates=2",
        "train.keep_interval_updates=1",
        "train.keep_best_checkpoints=1",
        "train.memory_check=false",
        "train.max_tokens=24",
        "train.log_interval=1",
        "train.gate_every_updates=2",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
    ];
    keys.extend(extra);
    common::config("mae", &keys)
}

/// Trains in a folder; `watch` sees the events.
fn train_on(
    data: &ParallelDataset,
    folder: &Path,
    config: &RunConfig,
    mut watch: impl FnMut(&Event),
) -> Result<Vec<u32>> {
    let (valid, stop) = (common::data(4, 100), AtomicBool::new(false));
    let lock = FolderLock::take(folder)?;
    let trainer = Trainer {
        config: config.clone(),
        learner: common::learner(config),
        train: data,
        valid: Some(&valid),
        text: TextSide::of_pairs(data, None, &Default::default()),
        folder: folder.to_owned(),
        record: None,
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &stop,
        writer: Writer::new().unwrap(),
        lock: Some(&lock),
    };
    trainer.run(|event| watch(event)).map(|(learner, _)| common::bits(&learner))
}

fn train(folder: &Path, config: &RunConfig) -> Result<Vec<u32>> {
    train_on(&common::data(24, 0), folder, config, |_| {})
}

fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// All files of a run's checkpoints, by their names; of states all but times.
fn checkpoints(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let mut bytes = fs::read(&file).unwrap();
            if file.ends_with("state.json") {
                let mut state: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                state["window"]["seconds"].take();
                bytes = state.to_string().into_bytes();
            }
            found.insert(file.strip_prefix(run).unwrap().to_owned(), bytes);
        }
    }
    found
}

#[test]
fn a_run_resumes_to_the_same_bits_from_every_operation() {
    let home = quick_folder();
    let (config, reference) = (config(&[]), home.path().join("reference"));
    let faults = Faults::of(&reference, Fault::None);
    let bits = train(&reference, &config).unwrap();
    let (operations, whole) = (faults.operations(), checkpoints(&reference));
    let names: Vec<_> = whole.keys().filter(|path| path.ends_with("config.toml")).collect();
    assert_eq!(names.len(), 4, "last, best, the newest and the best kept: {names:?}");
    for number in 1..=operations.len() {
        // A process that ends is tried at every operation, a fault at some.
        let all = [Fault::End(number), Fault::Fail(number), Fault::Short(number)];
        for fault in all.into_iter().take(if number % 8 == 0 { 3 } else { 1 }) {
            let run = home.path().join(format!("{fault:?}"));
            let faults = Faults::of(&run, fault);
            let ended = train(&run, &config);
            drop(faults);
            let _quick = Faults::of(&run, Fault::None);
            let resumed = train(&run, &config).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert!(
                resumed == bits && ended.is_ok_and(|ended| ended == bits) || checkpoints(&run) == whole,
                "{fault:?}"
            );
            assert!(checkpoints(&run) == whole, "{fault:?}: {:?}", checkpoints(&run).keys());
            fs::remove_dir_all(&run).unwrap();
        }
    }
}

/// Version 0.1 had no usable checkpoint within 30 seconds of a save.
#[test]
fn a_power_cut_leaves_whole_checkpoints() {
    let home = quick_folder();
    let (config, run) = (config(&["train.max_update=6"]), home.path().join("run"));
    let faults = Faults::of(&run, Fault::None);
    train(&run, &config).unwrap();
    let operations = faults.operations();
    let last = run.join(mae_train::artifacts::LAST);
    let first_save =
        operations.iter().position(|op| matches!(op, Operation::Rename(_, to) if *to == last)).unwrap();
    // From its sync on, it is there.
    let is_sync = |op: &Operation| *op == Operation::SyncFolder(run.clone());
    let saved = first_save + operations[first_save..].iter().position(is_sync).unwrap() + 1;
    let mut seed = 5u64;
    let mut draw = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    let mut found = BTreeMap::new();
    for trial in 0..400 {
        let cut = draw(operations.len() + 1);
        let disk = home.path().join(format!("disk-{trial}"));
        replay::after_power_cut(&operations[..cut], &run, &disk, &mut draw).unwrap();
        let state = checkpoint::state(&disk).unwrap_or_else(|error| panic!("{cut}: {error}"));
        assert!(state.is_some() || cut < saved, "{cut} of {}: no checkpoint", operations.len());
        *found.entry(state.map(|state| state.counters.updates)).or_insert(0) += 1;
        for folder in fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().path()) {
            let is_aside = folder.extension().is_some_and(|end| end == "tmp");
            if folder.is_dir() && !is_aside {
                let model = mae_model::folder::ModelFolder::load(&folder, &mae_engine::Device::cpu());
                model.unwrap_or_else(|error| panic!("{cut}: {error}"));
            }
        }
        fs::remove_dir_all(&disk).unwrap();
    }
    assert!(found.len() >= 4, "{found:?}");
}

#[test]
fn two_runs_in_one_folder_are_one_too_many() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    let lock = FolderLock::take(&run).unwrap();
    let error = train(&run, &config(&[])).map(drop).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::Busy { process: Some(_), .. })), "{error}");
    assert_eq!(fs::read_dir(&run).unwrap().count(), 1, "nothing but the lock");
    drop(lock);
}

#[test]
fn a_folder_that_vanishes_ends_the_run() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    let error = train_on(&common::data(24, 0), &run, &config(&[]), |event| {
        if matches!(event, Event::Update { .. }) && run.join("log.jsonl").exists() {
            fs::remove_dir_all(&run).unwrap();
        }
    });
    let error = error.map(drop).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::FolderGone { .. })), "{error}");
    assert!(!run.exists(), "it is not made again");
}

/// Version 0.1 saved a diverged model over `checkpoint_last`, and said that it was as it was.
#[test]
fn divergence_is_never_saved() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    train(&run, &config(&[])).unwrap();
    let before = checkpoints(&run);
    let bad =
        ["train.lr=1e30", "train.weight_decay=1e30", "train.max_update=6", "train.save_interval_updates=1"];
    let error = train(&run, &config(&bad)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the validation loss is NaN, after update 5") && text.contains("gate_lr"),
        "{text}"
    );
    assert!(checkpoints(&run) == before);
}

/// Gates can break while F steps, which draw one expert, look healthy.
#[test]
fn parameters_that_are_not_finite_are_never_saved() {
    let home = tempfile::tempdir().unwrap();
    let mut learner = common::learner(&config(&[]));
    let write = |learner: &mae_train::Learner| {
        Snapshot::of_model(&learner.model)?.write(home.path(), "checkpoint_last", &common::text())
    };
    write(&learner).unwrap();
    let before = checkpoints(home.path());
    let is_gate = |parameter: &mae_engine::params::Named<'_>| parameter.group == mae_model::groups::GATE;
    let gate = learner.model.params().named().find(is_gate).unwrap().name.to_owned();
    let mut values = learner.model.params().get(&gate).unwrap();
    values[0] = f32::INFINITY;
    learner.model.params_mut().set(&gate, &values).unwrap();
    let error = write(&learner).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)) && error.to_string().contains(&gate), "{error}");
    assert!(checkpoints(home.path()) == before);
}

#[test]
fn keys_refuse_numbers_that_no_training_survives() {
    for key in ["lr", "gate_lr", "clip_norm", "weight_decay", "warmup_init_lr", "adam_eps", "min_lr"] {
        for value in ["nan", "inf", "-1.0"] {
            let keys = format!("[train]\n{key} = {value}").parse().unwrap();
            let error = RunConfig::<mae_model::ModelConfig>::from_layers(&[keys]).unwrap_err().to_string();
            assert!(error.contains(&format!("train.{key} = ")) && error.contains("finite"), "{error}");
        }
    }
}

#[test]
fn damage_that_does_not_matter_is_no_obstacle_and_other_data_is_said() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    train(&run, &config(&[])).unwrap();
    let log = run.join("log.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    bytes.extend(b"\xff\xfe\0 damaged\n");
    fs::write(&log, bytes).unwrap();
    let mut said = Vec::new();
    let more = config(&["train.max_update=5"]);
    train_on(&common::data(23, 0), &run, &more, |event| {
        if let Event::Reset { what } = event {
            said.extend(what.iter().map(ToString::to_string));
        }
    })
    .unwrap();
    assert!(said.iter().any(|what| what.starts_with("training set")), "{said:?}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().count() > lines && !text.contains("damaged"));

    // A state that no run can have been in.
    let path = run.join("checkpoint_last/state.json");
    let text = fs::read_to_string(&path).unwrap();
    let epoch = text.lines().find(|line| line.contains("\"epoch\"")).unwrap();
    fs::write(&path, text.replace(epoch, "\"epoch\": 0,")).unwrap();
    let error = checkpoint::state(&run).unwrap_err();
    assert!(matches!(error, Error::Checkpoint { fault: CheckpointFault::DamagedState(_), .. }), "{error}");
}
