//! Language models in the same loop: they learn, and a run that is stopped and resumed equals one that never stopped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::files::FolderLock;
use mae_data::pairs::MemoryDataset;
use mae_data::vocab::VocabOptions;
use mae_data::{BlockOptions, Blocks, TextDataset, Vocab};
use mae_engine::Device;
use mae_model::lm::{LmConfig, LmFolder};
use mae_model::{LanguageModel, folder};
use mae_train::checkpoint::{Resets, TextSide, Writer};
use mae_train::config::assignment;
use mae_train::log::Event;
use mae_train::{Learner, Outcome, Result, RunConfig, Trainer};

use crate::common::{self, bits};

/// Lines that count onwards in a circle of words, from number `first`.
fn text(lines: usize, first: usize) -> TextDataset {
    let word = |i: usize| format!("w{}", i % 30);
    let line = |i: usize| (0..3 + i % 7).map(|j| word(7 * i + j)).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = (first..first + lines).map(line).collect();
    let counts = (0..30).map(|i| (word(i), 100 - i as u64));
    let vocab = Arc::new(Vocab::from_counts(counts, VocabOptions::default()));
    TextDataset { lines: Arc::new(MemoryDataset::encode(&vocab, &lines).0.into()), vocab }
}

/// `extra` has `key=value` each.
fn config(system: &str, extra: &[&str]) -> RunConfig<LmConfig> {
    let mut layers = vec![
        "[model]\narch = \"transformer_lm_tiny\"\ndecoder_layers = 2\ndecoder_embed_dim = 16\n\
         decoder_ffn_embed_dim = 24\ndecoder_attention_heads = 4\nmax_positions = 16\n\
         adaptive_softmax_cutoff = [10, 20]\nadaptive_softmax_factor = 2\nadaptive_softmax_dropout = 0.1\n\
         [model.mixture]\ngate_window = 5\ngate_hidden = 8\n[train]\noptimizer = \"nag\"\nlr_scheduler = \"cosine\"\nmax_lr = 0.3\n\
         lr = 1e-3\nlr_period_updates = 100\nwarmup_updates = 5\nclip_norm = 0.1\nmax_tokens = 40\nupdate_freq = 2\n\
         tokens_per_sample = 12\nmax_update = 20\nlog_interval = 3\ngate_every_updates = 3\nsave_interval_updates = 8"
            .parse()
            .unwrap(),
        assignment(&format!("model.mixture.system={system}")).unwrap(),
    ];
    layers.extend(extra.iter().map(|text| assignment(text).unwrap()));
    RunConfig::from_layers(&layers).unwrap()
}

fn learner(config: &RunConfig<LmConfig>) -> Learner<LanguageModel> {
    let types = text(1, 0).vocab.len();
    let model = LanguageModel::new(&config.model, types, &Device::cpu(), config.train.seed).unwrap();
    Learner::new(model, &config.train)
}

fn train(
    folder: &Path,
    config: &RunConfig<LmConfig>,
    mut watch: impl FnMut(&Event, &AtomicBool),
) -> Result<(Learner<LanguageModel>, Outcome)> {
    let options = BlockOptions {
        tokens_per_sample: config.train.tokens_per_sample,
        context_window: 0,
        break_mode: config.train.sample_break_mode,
    };
    let (lines, stop) = (text(60, 0), AtomicBool::new(false));
    let train = Blocks::new(lines.lines.clone(), options).unwrap();
    let valid = Blocks::new(text(10, 100).lines, options).unwrap();
    let lock = FolderLock::take(folder)?;
    let trainer = Trainer {
        config: config.clone(),
        learner: learner(config),
        train: &train,
        valid: Some(&valid),
        text: TextSide::of_text(&lines, None),
        folder: folder.to_owned(),
        record: None,
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &stop,
        writer: Writer::new().unwrap(),
        lock: Some(&lock),
    };
    trainer.run(|event| watch(event, &stop))
}

/// Everything that a run tells, with losses to the bit.
fn lines_of(
    folder: &Path,
    config: &RunConfig<LmConfig>,
    stop_after: Option<u64>,
) -> (Learner<LanguageModel>, Vec<String>) {
    let mut seen = Vec::new();
    let (learner, outcome) = train(folder, config, |event, stop| match event {
        Event::Train(line) => {
            let bits = [line.loss, line.nll_loss, line.gnorm, line.lr].map(f64::to_bits);
            seen.push(format!("{} {} {bits:?} {:?}", line.num_updates, line.gate_updates, line.gate_loss));
            stop.store(stop_after.is_some_and(|after| line.num_updates >= after), Ordering::Relaxed);
        }
        Event::Valid(valid) => {
            seen.push(format!("{} {} {:?}", valid.num_updates, valid.loss.to_bits(), valid.gate_entropy));
        }
        _ => {}
    })
    .unwrap();
    assert_eq!(outcome == Outcome::Interrupted, stop_after.is_some());
    (learner, seen)
}

#[test]
fn a_resumed_run_continues_bit_for_bit() {
    for (system, extra) in [
        ("mae", &[][..]),
        ("uniform", &["train.sample_break_mode=complete"]),
        ("nobcd", &["model.adaptive_softmax_cutoff=[]", "train.sample_break_mode=eos"]),
        ("base", &["train.optimizer=adam", "train.lr_scheduler=inverse_sqrt"]),
        ("mae", &["train.free=gates+out"]),
    ] {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = config(system, extra);
        let (never_stopped, lines) = lines_of(whole.path(), &config, None);
        assert_eq!(never_stopped.counters().updates, 20);
        let (_, mut seen) = lines_of(parts.path(), &config, Some(9));
        let (resumed, rest) = lines_of(parts.path(), &config, None);
        seen.extend(rest);
        assert_eq!(seen, lines, "{system}: logged losses differ");
        assert_eq!(resumed.counters(), never_stopped.counters());
        assert!(bits(&resumed) == bits(&never_stopped), "{system}: weights or velocities differ");
    }
}

/// Gates learn in every third update, and all systems learn what comes next in the circle.
#[test]
fn every_system_learns() {
    for system in ["base", "uniform", "nobcd", "mae"] {
        let folder = tempfile::tempdir().unwrap();
        let keys = [
            "train.max_update=150",
            "train.save_interval_updates=0",
            "train.validate_interval=1000",
            "model.dropout=0",
            "model.attention_dropout=0",
            "model.activation_dropout=0",
        ];
        let mut losses = Vec::new();
        let (learner, _) = train(folder.path(), &config(system, &keys), |event, _| {
            if let Event::Train(line) = event {
                losses.push(line.nll_loss);
            }
        })
        .unwrap();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < 0.6 * first, "{system}: {first} to {last} bits/token");
        let gate_updates = match system {
            "mae" => 50,
            "nobcd" => 150,
            _ => 0,
        };
        assert_eq!(learner.counters().gate_updates, gate_updates, "{system}");
    }
}

#[test]
fn a_checkpoint_is_a_folder_of_a_language_model() {
    let place = tempfile::tempdir().unwrap();
    let (learner, _) = train(place.path(), &config("mae", &["train.max_update=2"]), |_, _| {}).unwrap();
    let last = place.path().join("checkpoint_last");
    assert_eq!(folder::task(&last).unwrap(), folder::Task::LanguageModeling);
    let loaded = LmFolder::load(&last, &Device::cpu()).unwrap();
    let (loaded_values, values) = (loaded.model.params().snapshot(), learner.model.params().snapshot());
    assert_eq!(loaded_values.unwrap().tensors().unwrap(), values.unwrap().tensors().unwrap());
    assert_eq!(*loaded.dictionary, *text(1, 0).vocab);
    // Another optimiser cannot go on with NAG's memory.
    let adam = config("mae", &["train.optimizer=adam"]);
    let error = train(place.path(), &adam, |_, _| {}).err().unwrap().to_string();
    assert!(error.contains("rest.first") || error.contains("attention_output.first"), "{error}");
    assert!(error.contains("train.optimizer"), "{error}");
    // A run of a translation model is not at home here.
    let error = mae_train::checkpoint::load_last(
        place.path(),
        &mut common::learner(&common::config("mae", &[])),
        Resets::default(),
    );
    assert!(error.unwrap_err().to_string().contains("language model"));
}

#[test]
fn fine_tuning_takes_the_weights() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (trained, _) = train(first.path(), &config("base", &["train.max_update=2"]), |_, _| {}).unwrap();
    let from = format!("train.finetune_from_model=\"{}\"", first.path().join("checkpoint_last").display());
    let mut told = None;
    let frozen = ["train.free=gates", "train.max_update=1", &from];
    let (tuned, _) = train(second.path(), &config("mae", &frozen), |event, _| {
        if let Event::Finetuned { new_gates, .. } = event {
            told = Some(*new_gates);
        }
    })
    .unwrap();
    assert_eq!(told, Some(true));
    for (name, _, values) in trained.model.params().snapshot().unwrap().tensors().unwrap() {
        assert_eq!(tuned.model.params().get(name).unwrap(), values, "{name}");
    }
    let wrong = config("mae", &["model.decoder_ffn_embed_dim=25", &from]);
    let other = tempfile::tempdir().unwrap();
    let error = train(other.path(), &wrong, |_, _| {}).err().unwrap().to_string();
    assert!(error.contains("model.decoder_ffn_embed_dim is 24 there and 25 here"), "{error}");
}

#[test]
fn scores_of_other_blocks_do_not_compare() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), &config("base", &["train.max_update=8"]), |_, _| {}).unwrap();
    // What was the best before cannot be reached from here.
    let state = folder.path().join("checkpoint_last/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["best"] = 0.001.into();
    std::fs::write(&state, value.to_string()).unwrap();
    let best_of = |extra: &[&str]| {
        let (mut reset, mut best) = (false, None);
        train(folder.path(), &config("base", extra), |event, _| match event {
            Event::Reset { what } => reset = what.iter().any(|what| what.contains("best score")),
            Event::Valid(valid) => best = best.or(Some(valid.is_best)),
            _ => {}
        })
        .unwrap();
        (reset, best.unwrap())
    };
    assert_eq!(best_of(&["train.max_update=10"]), (false, false));
    assert_eq!(best_of(&["train.max_update=12", "train.sample_break_mode=eos"]), (true, true));
}
