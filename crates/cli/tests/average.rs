//! `mae average` from the outside.

mod common;

use common::Sandbox;
use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::config::{Mixture, System};
use mae_model::folder::ModelFolder;
use mae_model::{ModelConfig, Translator};

fn save(place: &Sandbox, name: &str, words: &[&str], seed: u64) {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (8, 12);
    config.encoder_attention_heads = 2;
    config.mixture = Mixture { system: System::Mae, gate_hidden: 6, ..Mixture::default() };
    let vocab =
        std::sync::Arc::new(Vocab::from_counts(words.iter().map(|w| (*w, 1)), VocabOptions::default()));
    let model = Translator::new(&config, [vocab.len(), vocab.len()], &Device::cpu(), seed).unwrap();
    let folder = ModelFolder { model, source: vocab.clone(), target: vocab, codes: None };
    folder.save(&place.path(name)).unwrap();
}

fn values(place: &Sandbox, name: &str) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    ModelFolder::load(&place.path(name), &Device::cpu()).unwrap().model.params().snapshot()
}

#[test]
fn every_parameter_is_the_mean() {
    let place = Sandbox::new();
    std::fs::create_dir(place.path("run")).unwrap();
    for epoch in 1..=4 {
        save(&place, &format!("run/checkpoint{epoch}"), &["a", "b"], epoch);
    }
    save(&place, "run/checkpoint_best", &["a", "b"], 9);
    let done = place.mae(&["average", "run", "--num-epoch-checkpoints", "2", "--output", "mean"], &[]);
    assert!(done.stdout.contains("checkpoint3") && done.stdout.contains("checkpoint4"), "{}", done.stderr);
    let (third, fourth) = (values(&place, "run/checkpoint3"), values(&place, "run/checkpoint4"));
    for ((mean, a), b) in values(&place, "mean").iter().zip(&third).zip(&fourth) {
        for ((mean, a), b) in mean.2.iter().zip(&a.2).zip(&b.2) {
            assert_eq!(*mean, ((f64::from(*a) + f64::from(*b)) / 2.0) as f32);
        }
    }
    place.mae(&["average", "--inputs", "run/checkpoint3", "run/checkpoint4", "--output", "again"], &[]);
    assert_eq!(values(&place, "again"), values(&place, "mean"));
}

#[test]
fn what_cannot_be_averaged_is_told() {
    let place = Sandbox::new();
    save(&place, "a", &["a", "b"], 1);
    save(&place, "b", &["a", "c"], 1);
    let told = |args: &[&str]| place.mae(args, &["--output", "out"]).stderr;
    assert!(told(&["average", "--inputs", "a", "b"]).contains("the source dictionary differs"));
    let few = told(&["average", ".", "--num-epoch-checkpoints", "3"]);
    assert!(few.contains("holds 0 epoch checkpoints") && few.contains("keep_last_epochs"), "{few}");
    assert!(told(&["average", "--inputs", "a", "nowhere"]).contains("nowhere"));
    assert!(!place.path("out").exists(), "nothing is written");
}
