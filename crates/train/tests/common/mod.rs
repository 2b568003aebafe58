//! A small corpus, a small model, and runs of it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mae_data::files::FolderLock;
use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, Vocab};
use mae_engine::Device;
use mae_model::{Model, Translator, groups};
use mae_train::checkpoint::{Resets, TextSide, Writer};
use mae_train::config::assignment;
use mae_train::log::Event;
use mae_train::{Learner, Outcome, Result, RunConfig, Trainer};

/// Pairs of short sentences, beginning with number `first`.
pub fn data(pairs: usize, first: usize) -> ParallelDataset {
    let word = |i: usize| ["ab", "cd", "ef", "gh", "ij", "kl", "mn"][i % 7];
    let line = |i: usize, n: usize| (0..n).map(|j| word(i * 3 + j * j)).collect::<Vec<_>>().join(" ");
    let sources: Vec<String> = (first..first + pairs).map(|i| line(i, 2 + i % 5)).collect();
    let targets: Vec<String> = (first..first + pairs).map(|i| line(i + 1, 1 + (i * 5) % 6)).collect();
    let counts = (0..7).map(|i| (word(i), 10 - i as u64));
    let vocab = Arc::new(Vocab::from_counts(counts, VocabOptions::default()));
    ParallelDataset::from_lines(&sources, &targets, vocab.clone(), vocab).unwrap()
}

/// A run of 20 updates; `extra` has `key=value` each.
pub fn config(system: &str, extra: &[&str]) -> RunConfig {
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

/// Its dictionaries.
pub fn text() -> TextSide {
    TextSide::of_pairs(&data(1, 0), None, &Default::default())
}

/// A model before its first update.
pub fn learner(config: &RunConfig) -> Learner {
    let types = data(1, 0).src_vocab.len();
    let model = Translator::new(&config.model, [types, types], &Device::cpu(), config.train.seed).unwrap();
    Learner::new(model, &config.train)
}

/// Trains in `folder`. `watch` sees the events, and may set the flag that stops the run.
pub fn train(
    folder: &Path,
    config: &RunConfig,
    resets: Resets,
    mut watch: impl FnMut(&Event, &AtomicBool),
) -> Result<(Learner, Outcome)> {
    let (train, valid, stop) = (data(60, 0), data(10, 100), AtomicBool::new(false));
    let lock = FolderLock::take(folder)?;
    let trainer = Trainer {
        config: config.clone(),
        learner: learner(config),
        train: &train,
        valid: Some(&valid),
        text: text(),
        folder: folder.to_owned(),
        record: None,
        tensorboard: Some(folder.join("board")),
        resets,
        validator: None,
        stop: &stop,
        writer: Writer::new().unwrap(),
        lock: Some(&lock),
    };
    trainer.run(|event| watch(event, &stop))
}

/// All parameters and moments.
pub fn bits<M: Model>(learner: &Learner<M>) -> Vec<u32> {
    let params = groups::ALL.iter().flat_map(|(group, _)| learner.model.params().group_to_host(*group));
    let memory = learner.memory().unwrap();
    let moments = memory.iter().flat_map(|(_, copy)| copy.values().unwrap().iter().copied());
    params.chain(moments).map(f32::to_bits).collect()
}
