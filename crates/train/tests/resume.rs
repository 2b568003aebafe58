//! A run that is stopped and resumed equals one that never stopped: every weight, moment and logged loss, to the bit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, Vocab};
use mae_engine::Device;
use mae_model::{Translator, groups};
use mae_train::checkpoint::Resets;
use mae_train::config::assignment;
use mae_train::log::Event;
use mae_train::{Learner, Outcome, RunConfig, Trainer};

fn data(pairs: usize, first: usize) -> ParallelDataset {
    let word = |i: usize| ["ab", "cd", "ef", "gh", "ij", "kl", "mn"][i % 7];
    let line = |i: usize, n: usize| (0..n).map(|j| word(i * 3 + j * j)).collect::<Vec<_>>().join(" ");
    let sources: Vec<String> = (first..first + pairs).map(|i| line(i, 2 + i % 5)).collect();
    let targets: Vec<String> = (first..first + pairs).map(|i| line(i + 1, 1 + (i * 5) % 6)).collect();
    let counts = (0..7).map(|i| (word(i), 10 - i as u64));
    let vocab = Arc::new(Vocab::from_counts(counts, VocabOptions::default()));
    ParallelDataset::from_lines(&sources, &targets, vocab.clone(), vocab).unwrap()
}

fn config(system: &str, extra: &[&str]) -> RunConfig {
    let mut layers = vec![
        "[model]\narch = \"transformer_tiny\"\nencoder_layers = 2\ndecoder_layers = 2\nencoder_embed_dim = 16\n\
         encoder_ffn_embed_dim = 24\nencoder_attention_heads = 4\ndropout = 0.2\nattention_dropout = 0.1\n\
         activation_dropout = 0.1\n[train]\nlr = 2e-3\nwarmup_updates = 5\nmax_tokens = 40\nupdate_freq = 2\n\
         clip_norm = 1.0\nweight_decay = 1e-2\nmax_update = 20\nlog_interval = 3\ngate_every_epochs = 2"
            .parse()
            .unwrap(),
        assignment(&format!("model.mixture.system={system}")).unwrap(),
    ];
    layers.extend(extra.iter().map(|text| assignment(text).unwrap()));
    RunConfig::from_layers(&layers).unwrap()
}

/// Trains in `folder`; stops from outside after update `stop_after`.
fn train(folder: &Path, config: &RunConfig, stop_after: Option<u64>) -> (Learner, Outcome, Vec<String>) {
    let (train, valid) = (data(60, 0), data(10, 100));
    let types = [train.src_vocab.len(), train.tgt_vocab.len()];
    let model = Translator::new(&config.model, types, &Device::cpu(), config.train.seed).unwrap();
    let stop = AtomicBool::new(stop_after == Some(0));
    let trainer = Trainer {
        config: config.clone(),
        learner: Learner::new(model, &config.train),
        train: &train,
        valid: Some(&valid),
        codes: None,
        folder: folder.to_owned(),
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &stop,
        writer: mae_train::checkpoint::Writer::new(),
    };
    let mut seen = Vec::new();
    let (learner, outcome) = trainer
        .run(|event| {
            if let Event::Train(line) = event {
                let bits = [line.loss, line.nll_loss, line.gnorm, line.lr].map(f64::to_bits);
                seen.push(format!(
                    "{} {} {bits:?} {:?}",
                    line.num_updates, line.gate_updates, line.gate_loss
                ));
                stop.store(stop_after.is_some_and(|after| line.num_updates >= after), Ordering::Relaxed);
            }
            if let Event::Valid(valid) = event {
                seen.push(format!("{} {} {:?}", valid.num_updates, valid.loss.to_bits(), valid.gate_entropy));
            }
        })
        .unwrap();
    (learner, outcome, seen)
}

fn bits(learner: &Learner) -> Vec<u32> {
    let params = groups::ALL.iter().flat_map(|(group, _)| learner.model.params().group_to_host(*group));
    let moments = learner.moments().iter().flat_map(|m| m.to_host().concat());
    params.chain(moments).map(f32::to_bits).collect()
}

#[test]
fn a_resumed_run_continues_bit_for_bit() {
    for system in ["mae", "uniform", "nobcd", "base"] {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = config(system, &[]);
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
    let train_set = data(10, 0);
    let types = [train_set.src_vocab.len(), train_set.tgt_vocab.len()];
    let model = Translator::new(&other.model, types, &Device::cpu(), 1).unwrap();
    let mut learner = Learner::new(model, &other.train);
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
