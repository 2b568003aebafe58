//! What a run can do besides training: freeze, begin with other weights, begin things anew, keep checkpoints, look at
//! the memory first, and fail with a diagnosis.

use std::path::Path;

use mae_data::{BatchSampler, SamplerOptions};
use mae_engine::{Device, GroupId};
use mae_model::config::Sharing;
use mae_model::{ModelConfig, Translator, groups};
use mae_train::checkpoint::{Resets, RunState};
use mae_train::config::{Free, Metric};
use mae_train::finetune::FinetuneFault;
use mae_train::log::Event;
use mae_train::{Error, Learner, RunConfig, kept, memory};

use crate::common::{self, bits, config, data, learner, train};

fn run(folder: &Path, config: &RunConfig) -> Learner {
    train(folder, config, Resets::default(), |_, _| {}).unwrap().0
}

fn state(folder: &Path, checkpoint: &str) -> RunState {
    let json = std::fs::read_to_string(folder.join(checkpoint).join("state.json")).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// The paper's FtG, FtG+ and FtAll: 2M, 7M and 63M parameters.
#[test]
fn trained_parameters_of_the_wmt_shape() {
    let mut config = ModelConfig::arch("transformer_wmt_en_de").unwrap();
    config.share_embeddings = Sharing::All;
    config.mixture.system = mae_model::config::System::MAE;
    let model = Translator::zeroed(&config, [32_768; 2], &Device::cpu()).unwrap();
    let counts =
        [Free::Gates, Free::GatesAndOutputs, Free::All].map(|free| model.params().count(free.groups()));
    assert_eq!(counts, [2_419_344, 7_147_152, 63_335_056]);
}

#[test]
fn frozen_groups_stay_as_they_are() {
    let values = |learner: &Learner, group: GroupId| learner.model.params().group_to_host(group);
    for (system, free, moved) in [
        ("mae", "gates", [true, false, false]),
        ("mae", "gates+out", [true, true, false]),
        ("nobcd", "gates", [true, false, false]),
        ("nobcd", "gates+out", [true, true, false]),
        ("mae", "all", [true, true, true]),
    ] {
        let free = format!("train.free={free}");
        let config = config(system, &[&free, "train.max_update=4", "train.gate_every_updates=2"]);
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (learner(&config), run(folder.path(), &config));
        for (group, moved) in [groups::GATE, groups::ATTENTION_OUTPUT, groups::REST].into_iter().zip(moved) {
            assert_eq!(values(&before, group) != values(&after, group), moved, "{system}, {free}, {group:?}");
        }
        let counters = after.counters();
        assert_eq!(counters.updates, 4);
        assert_eq!(counters.gate_updates, if system == "nobcd" || free.ends_with("gates") { 4 } else { 2 });
    }
    let refused = RunConfig::<mae_model::ModelConfig>::from_layers(&[mae_train::config::assignment(
        "train.free=gates",
    )
    .unwrap()]);
    assert!(refused.unwrap_err().to_string().contains("need gates"));
}

/// Controls: gates that stay, and gates that move by steps of the same size in other directions.
#[test]
fn gates_can_be_frozen_or_led_astray() {
    let gates = |extra: &[&str], system: &str| {
        let settings = [&["train.max_update=1", "train.gate_every_updates=1"], extra].concat();
        let (config, folder) = (config(system, &settings), tempfile::tempdir().unwrap());
        let values = |learner: &Learner| learner.model.params().group_to_host(groups::GATE);
        let (before, after) = (learner(&config), run(folder.path(), &config));
        let rest = after.model.params().group_to_host(groups::REST);
        assert_ne!(before.model.params().group_to_host(groups::REST), rest);
        let steps: Vec<f32> = values(&before).iter().zip(values(&after)).map(|(a, b)| b - a).collect();
        (steps, after.counters().gate_updates, rest)
    };
    for system in ["mae", "nobcd"] {
        let (frozen, updates, _) = gates(&["train.gate_training=frozen"], system);
        assert!(updates == 0 && frozen.iter().all(|&step| step == 0.0), "{system}");
        let (learned, updates, rest) = gates(&["train.gate_lr=64"], system);
        assert!(updates == 1 && learned.iter().any(|&step| step != 0.0), "{system}");
        let (astray, _, same) = gates(&["train.gate_lr=64", "train.gate_training=random_signs"], system);
        let near = |a: f32, b: f32| (a.abs() - b.abs()).abs() < 1e-4;
        assert!(learned.iter().zip(&astray).all(|(a, b)| near(*a, *b)), "{system}: sizes stay");
        let turned = learned.iter().zip(&astray).filter(|(a, b)| **a * **b < 0.0).count();
        let moved = learned.iter().filter(|step| step.abs() > 1e-3).count();
        assert!(turned > moved / 3, "{system}: {turned} of {moved}");
        assert_eq!(
            rest == same,
            system == "nobcd",
            "the F step after it sees other gates, a joint step does not"
        );
    }
    let refused = |keys: &[&str]| {
        let layers: Vec<_> = keys.iter().map(|key| mae_train::config::assignment(key).unwrap()).collect();
        RunConfig::<mae_model::ModelConfig>::from_layers(&layers).unwrap_err().to_string()
    };
    let frozen = "train.gate_training=frozen";
    assert!(refused(&["model.mixture.system=mae", "train.free=gates", frozen]).contains("nothing to train"));
    assert!(refused(&["model.mixture.system=sigmoid", frozen]).contains("gates over experts"));
}

/// Gates that start with zeros in their last layer weigh all experts alike; the rest of the model starts as ever.
#[test]
fn gates_can_start_uniform() {
    let settings = ["train.max_update=1", "train.gate_lr=0", "train.gate_init=zero"];
    let (config, folder) = (config("mae", &settings), tempfile::tempdir().unwrap());
    let mut entropies = Vec::new();
    train(folder.path(), &config, Resets::default(), |event, _| {
        if let Event::Valid(valid) = event {
            entropies.extend(valid.gates.iter().map(|gates| (gates.entropy, gates.information)));
            assert!(valid.gates.iter().all(|gates| gates.load == [0.25; 4]));
        }
    })
    .unwrap();
    assert_eq!(entropies.len(), 6);
    assert!(entropies.iter().all(|(h, i)| (h - 4f64.ln()).abs() < 1e-6 && *i < 1e-6), "{entropies:?}");
}

#[test]
fn the_memory_check_changes_nothing() {
    for system in ["mae", "nobcd"] {
        let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut used = None;
        let checked = config(system, &["train.gate_every_updates=2"]);
        let (learner, _) = train(with.path(), &checked, Resets::default(), |event, _| {
            if let Event::Memory(found) = event {
                used = Some(*found);
            }
        })
        .unwrap();
        let plain = config(system, &["train.gate_every_updates=2", "train.memory_check=false"]);
        assert!(bits(&learner) == bits(&run(without.path(), &plain)), "{system}");
        let used = used.unwrap();
        assert_eq!((used.source_tokens, used.target_tokens), (40, 40));
        assert!(used.bytes > 3 * 4 * learner.trained(), "parameters, gradients and moments at least");
    }
}

#[test]
fn too_small_a_memory_names_the_key() {
    let config = config("mae", &[]);
    let options = SamplerOptions { max_tokens: 40, ..SamplerOptions::default() };
    let sampler = BatchSampler::new(&data(60, 0).lengths(), options).unwrap();
    let error = memory::check(&mut learner(&config), &sampler, 40, Some(1000)).unwrap_err().to_string();
    for part in ["40 source and 40 target tokens", "GiB", "train.max_tokens (it is 40)", "update_freq"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(memory::check(&mut learner(&config), &sampler, 40, Some(u64::MAX)).is_ok());
    if cfg!(target_os = "linux") {
        assert!(memory::available().is_some_and(|bytes| bytes > 1 << 20));
    }
}

#[test]
fn a_loss_that_is_no_number_is_diagnosed_and_the_state_before_saved() {
    let folder = tempfile::tempdir().unwrap();
    let good = config("mae", &["train.max_update=2"]);
    run(folder.path(), &good);
    let last = folder.path().join("checkpoint_last/model.safetensors");
    let before = std::fs::read(&last).unwrap();
    // The third update makes the parameters huge; the fourth fails.
    let bad = config("mae", &["train.lr=1e30", "train.warmup_updates=0", "train.update_freq=2"]);
    let error = train(folder.path(), &bad, Resets::default(), |_, _| {}).err().unwrap();
    let Error::NotFinite(diagnosis) = &error else { panic!("{error}") };
    assert_eq!((diagnosis.update, diagnosis.epoch, &*diagnosis.step), (4, 1, "F step"));
    assert_eq!(diagnosis.batches, [7, 8]);
    let text = error.to_string();
    for part in
        ["update 4 (epoch 1, batches 7 to 8)", "before was", "bits/token", "checkpoint_nonfinite", "train.lr"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(diagnosis.what == "loss" || diagnosis.what == "gradient norm");
    let ids = &diagnosis.sentences;
    assert!(!ids.is_empty() && ids.iter().all(|&id| id < 60));
    assert!(std::fs::read(&last).unwrap() == before, "checkpoint_last is as it was");
    let saved = state(folder.path(), "checkpoint_nonfinite");
    assert_eq!((saved.counters.updates, saved.position), (3, 3));
    let json = std::fs::read_to_string(folder.path().join("checkpoint_nonfinite/diagnosis.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["update"], json["sentences"].as_array().unwrap().len()), (&4.into(), ids.len()));
    let log = std::fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    assert!(log.lines().last().unwrap().contains("not_finite"), "{log}");
    // What was saved can be gone on with.
    std::fs::remove_dir_all(folder.path().join("checkpoint_last")).unwrap();
    std::fs::rename(folder.path().join("checkpoint_nonfinite"), folder.path().join("checkpoint_last"))
        .unwrap();
    let again = train(folder.path(), &bad, Resets::default(), |_, _| {}).err().unwrap();
    assert!(again.to_string().contains("update 4"), "{again}");
}

#[test]
fn fine_tuning_begins_with_the_weights_of_a_model() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let trained = run(first.path(), &config("mae", &["train.max_update=3"]));
    let from = format!("train.finetune_from_model=\"{}\"", first.path().join("checkpoint_last").display());
    let tuned = config("mae", &[&from, "train.max_update=2", "train.seed=9", "train.free=gates"]);
    let learner = run(second.path(), &tuned);
    assert_eq!(learner.counters().updates, 2, "counted anew");
    for group in [groups::ATTENTION_OUTPUT, groups::REST] {
        assert!(
            learner.model.params().group_to_host(group) == trained.model.params().group_to_host(group),
            "the weights are those of the other model"
        );
    }
    // The run goes on from its own checkpoint, not from the other model.
    assert_eq!(
        run(second.path(), &RunConfig { train: tuned.train.clone(), ..tuned.clone() }).counters().updates,
        2
    );
}

#[test]
fn a_model_without_gates_gets_gates_that_change_nothing() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let base = run(first.path(), &config("base", &["train.max_update=3"]));
    let from = first.path().join("checkpoint_last");
    let mut gated = learner(&config("mae", &[]));
    let text = common::text();
    mae_train::finetune::load(&from, &mut gated.model, &text).unwrap();
    let loss = |learner: &Learner| {
        mae_train::validate::development_loss(&learner.model, &data(10, 100), &config("mae", &[]).train)
            .unwrap()
    };
    assert!((loss(&base).loss - loss(&gated).loss).abs() < 1e-5);
    let entropy = loss(&gated).gate_entropy.unwrap();
    assert!((entropy - 4f64.ln()).abs() < 1e-6, "{entropy}");
    let from = format!("train.finetune_from_model=\"{}\"", from.display());
    let mut told = false;
    train(second.path(), &config("mae", &[&from, "train.max_update=1"]), Resets::default(), |event, _| {
        told |= matches!(event, Event::Finetuned { new_gates: true, .. });
    })
    .unwrap();
    assert!(told);
}

#[test]
fn what_does_not_fit_is_told_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &config("mae", &["train.max_update=1"]));
    let other = config("mae", &["model.encoder_layers=1", "model.mixture.gate_hidden=3", "model.norm=pre"]);
    let words =
        mae_data::Vocab::from_counts([("ab", 3), ("xy", 2)], mae_data::vocab::VocabOptions::default());
    let mut text = common::text();
    text.dictionaries[1].1 = std::sync::Arc::new(words);
    let from = folder.path().join("checkpoint_last");
    let error = mae_train::finetune::load(&from, &mut learner(&other).model, &text).unwrap_err().to_string();
    for part in [
        "model.encoder_layers is 2 there and 1 here",
        "model.mixture.gate_hidden is 256 there and 3 here",
        "model.norm is post there and pre here",
        "the target dictionaries differ",
        "`cd` and the data `xy`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("source dictionaries"), "{error}");
    let base = mae_train::finetune::load(&from, &mut learner(&config("base", &[])).model, &text);
    let Error::Finetune { faults, .. } = base.unwrap_err() else { panic!("another error") };
    let gates = FinetuneFault::NoGates { system: "base", theirs: "mae3".into() };
    assert!(faults.contains(&gates) && faults.iter().any(FinetuneFault::is_of_data), "{faults:?}");
}

/// Gates that are taken over go on reading what they were trained on; new ones may read anything.
#[test]
fn gates_that_would_read_something_else_are_refused() {
    let [gated, plain] = ["mae", "base"].map(|system| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &config(system, &["train.max_update=1"]));
        folder
    });
    for (key, theirs, ours) in
        [("decoder_gate", "causal", "whole"), ("cross_gate", "query", "source"), ("gate_window", "0", "5")]
    {
        let other = config("mae", &[&format!("model.mixture.{key}={ours}")]);
        let load = |folder: &tempfile::TempDir| {
            let from = folder.path().join("checkpoint_last");
            mae_train::finetune::load(&from, &mut learner(&other).model, &common::text())
        };
        let error = load(&gated).unwrap_err().to_string();
        let part = format!("model.mixture.{key} is {theirs} there and {ours} here");
        assert!(error.contains(&part), "{part}: {error}");
        assert_eq!(load(&plain).unwrap(), mae_train::finetune::Gates::Uniform);
    }
}

#[test]
fn resets_have_fairseqs_meaning() {
    let resets =
        |optimizer, lr_scheduler, meters, dataloader| Resets { optimizer, lr_scheduler, meters, dataloader };
    let config = config("mae", &["train.max_update=7", "train.log_interval=1"]);
    let more = |n: u64| RunConfig {
        train: mae_train::TrainConfig { max_update: n, ..config.train.clone() },
        ..config.clone()
    };
    let start = |resets: Resets, updates: u64| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &config);
        // A score that no later validation reaches.
        let saved = RunState { best: Some(1e-3), ..state(folder.path(), "checkpoint_last") };
        let path = folder.path().join("checkpoint_last/state.json");
        std::fs::write(path, serde_json::to_string(&saved).unwrap()).unwrap();
        let (mut lines, mut is_best) = (Vec::new(), None);
        let (learner, _) = train(folder.path(), &more(updates), resets, |event, _| match event {
            Event::Train(line) => lines.push((line.num_updates, line.epoch, line.lr)),
            Event::Valid(valid) => is_best = Some(valid.is_best),
            _ => {}
        })
        .unwrap();
        (folder, learner, lines, is_best.unwrap())
    };
    let (_, plain, lines, is_best) = start(Resets::default(), 8);
    assert_eq!((lines[0].0, plain.counters().updates, is_best), (8, 8, false));
    let rate = lines[0].2;
    let (folder, learner, lines, is_best) = start(resets(true, false, false, false), 1);
    assert_eq!((lines[0].0, learner.counters().updates, is_best), (1, 1, true), "updates are counted anew");
    assert!((lines[0].2 - config.train.warmup_init_lr).abs() < 1e-12, "and the schedule begins anew");
    assert_eq!(learner.counters().passes, plain.counters().passes, "random numbers do not come again");
    let old = std::fs::read_to_string(folder.path().join("log.1.jsonl")).unwrap();
    assert_eq!(old.matches("\"train\"").count(), 7, "the older log is kept");
    let (_, learner, lines, is_best) = start(resets(false, true, false, false), 8);
    assert_eq!((lines[0].0, learner.counters().schedule_start, is_best), (8, 7, false));
    assert!((lines[0].2 - config.train.warmup_init_lr).abs() < 1e-12 && lines[0].2 < rate);
    let (.., is_best) = start(resets(false, false, true, false), 8);
    assert!(is_best, "the best score is forgotten");
    let (folder, ..) = start(resets(false, false, false, true), 8);
    let state = state(folder.path(), "checkpoint_last");
    assert_eq!((state.epoch, state.position), (1, 1));
}

#[test]
fn best_and_interval_checkpoints_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "train.save_interval_updates=2",
        "train.keep_interval_updates=3",
        "train.keep_best_checkpoints=2",
        "train.keep_last_epochs=1",
        "train.max_update=13",
    ];
    let mut losses = Vec::new();
    train(folder.path(), &config("mae", &settings), Resets::default(), |event, _| {
        if let Event::Valid(valid) = event {
            losses.push((valid.loss, valid.num_updates));
        }
    })
    .unwrap();
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = kept::best(folder.path(), Metric::Loss).unwrap();
    let updates: Vec<u64> = best.iter().map(|best| best.updates).collect();
    assert_eq!(updates, [losses[0].1, losses[1].1]);
    let intervals: Vec<u64> = kept::intervals(folder.path()).unwrap().iter().map(|(n, _)| *n).collect();
    assert!(
        intervals.len() == 3 && intervals.iter().all(|n| n % 2 == 0) && intervals.is_sorted(),
        "{intervals:?}"
    );
    assert_eq!(kept::epochs(folder.path()).unwrap().len(), 1);
    mae_model::folder::ModelFolder::load(&best[0].path, &Device::cpu()).unwrap();
    let of_best = |name: &str| std::fs::read(folder.path().join(name).join("model.safetensors")).unwrap();
    let name = best[0].path.file_name().unwrap().to_str().unwrap();
    assert!(of_best(name) == of_best("checkpoint_best"));
    assert!(folder.path().join("board/train").exists() && folder.path().join("board/valid").exists());

    // Numbers that begin anew do not compete with those of before.
    let anew = Resets { optimizer: true, dataloader: true, ..Resets::default() };
    let short = config("mae", &[&settings[..4], &["train.max_update=5"]].concat());
    train(folder.path(), &short, anew, |_, _| {}).unwrap();
    let numbers = |found: Vec<(u64, std::path::PathBuf)>| found.iter().map(|(n, _)| *n).collect::<Vec<_>>();
    assert_eq!(numbers(kept::intervals(folder.path()).unwrap()), [2, 4]);
    assert!(kept::best(folder.path(), Metric::Loss).unwrap().iter().all(|best| best.updates <= 5));
    for path in [&best[0].path, &best[1].path] {
        assert!(path.with_added_extension("1").exists() && !path.exists(), "{}", path.display());
    }
}

#[test]
fn another_update_freq_keeps_the_place_in_the_epoch() {
    for (first, second) in [(1, 3), (3, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let mut sentences = 0.0;
        for (freq, until) in [(first, "train.max_update=2"), (second, "train.max_epoch=1")] {
            let freq = format!("train.update_freq={freq}");
            let config = config("base", &["train.max_update=0", "train.log_interval=1", &freq, until]);
            let seen = |event: &Event, _: &_| {
                if let Event::Train(line) = event {
                    sentences += line.bsz;
                }
            };
            train(folder.path(), &config, Resets::default(), seen).unwrap();
        }
        assert_eq!(sentences, 60.0, "update_freq {first}, then {second}");
    }
}

/// However seldom lines are: the end of an epoch and of a run have one.
#[test]
fn every_update_is_logged() {
    for (until, expected) in [("train.max_epoch=2", vec![1, 2]), ("train.max_update=2", vec![1])] {
        let config = config("base", &["train.max_update=0", "train.log_interval=1000", until]);
        let folder = tempfile::tempdir().unwrap();
        let mut lines = Vec::new();
        let seen = |event: &Event, _: &_| {
            if let Event::Train(line) = event {
                lines.push((line.epoch, line.num_updates));
            }
        };
        let (learner, _) = train(folder.path(), &config, Resets::default(), seen).unwrap();
        assert_eq!(lines.iter().map(|&(epoch, _)| epoch).collect::<Vec<_>>(), expected, "{until}");
        assert_eq!(lines.last().unwrap().1, learner.counters().updates, "{until}");
    }
}

/// docs/formats.md has a line for every key of `[train]`, with its default.
#[test]
fn every_key_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md");
    let page = std::fs::read_to_string(page).unwrap();
    let told = |key: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("| `{key}` | `")))?;
        format!("v = {}", line.split('`').next()?).parse::<toml::Table>().ok()?.remove("v")
    };
    let numbers = |value: &toml::Value| match value {
        toml::Value::Array(all) => all.iter().filter_map(toml::Value::as_float).collect(),
        value => value.as_float().into_iter().collect::<Vec<f64>>(),
    };
    let defaults = toml::Table::try_from(mae_train::TrainConfig::default()).unwrap();
    for (key, value) in &defaults {
        let told = told(key).unwrap_or_else(|| panic!("docs/formats.md has no line for train.{key}"));
        let (told, value) = ((numbers(&told), told), (numbers(value), value.clone()));
        let near = told.0.len() == value.0.len()
            && told.0.iter().zip(&value.0).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs());
        assert!(
            if value.0.is_empty() { told.1 == value.1 } else { near },
            "train.{key}: {told:?}, {value:?}"
        );
    }
}
