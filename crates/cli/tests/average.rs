//! `mae average` from the outside.

use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::config::{Mixture, System};
use mae_model::folder::ModelFolder;
use mae_model::{ModelConfig, Translator};

use crate::common::Sandbox;

fn save(place: &Sandbox, name: &str, words: &[&str], seed: u64) {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (8, 12);
    config.encoder_attention_heads = 2;
    config.mixture = Mixture { system: System::MAE, gate_hidden: 6, ..Mixture::default() };
    let vocab =
        std::sync::Arc::new(Vocab::from_counts(words.iter().map(|w| (*w, 1)), VocabOptions::default()));
    let model = Translator::new(&config, [vocab.len(), vocab.len()], &Device::cpu(), seed).unwrap();
    let folder =
        ModelFolder { model, source: vocab.clone(), target: vocab, codes: None, text: Default::default() };
    folder.save(&place.path(name)).unwrap();
}

fn values(place: &Sandbox, name: &str) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let snapshot =
        ModelFolder::load(&place.path(name), &Device::cpu()).unwrap().model.params().snapshot().unwrap();
    let owned =
        |(name, shape, values): (&str, &[usize], &[f32])| (name.to_owned(), shape.to_vec(), values.to_vec());
    snapshot.tensors().unwrap().into_iter().map(owned).collect()
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
fn checkpoints_are_chosen_by_update_or_score() {
    let place = Sandbox::new();
    std::fs::create_dir(place.path("run")).unwrap();
    for (name, seed) in [
        ("checkpoint_1_100", 1),
        ("checkpoint_1_900", 2),
        ("checkpoint_2_1000", 3),
        ("checkpoint.best_bleu_9.5000_900", 4),
        ("checkpoint.best_bleu_10.2500_100", 5),
        ("checkpoint.best_bleu_11.0000_1000", 6),
    ] {
        save(&place, &format!("run/{name}"), &["a", "b"], seed);
    }
    let average = |args: &[&str]| {
        let run = place.mae(&["average", "run", "--output", "mean"], args);
        run.succeeded().lines().skip(1).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        average(&["--num-update-checkpoints", "2"]),
        ["run/checkpoint_1_900", "run/checkpoint_2_1000"]
    );
    let bounded = average(&["--num-update-checkpoints", "2", "--checkpoint-upper-bound", "999"]);
    assert_eq!(bounded, ["run/checkpoint_1_100", "run/checkpoint_1_900"]);
    let best = ["run/checkpoint.best_bleu_10.2500_100", "run/checkpoint.best_bleu_11.0000_1000"];
    assert_eq!(average(&["--num-best-checkpoints", "2"]), best);
    let few = place.mae(&["average", "run", "--output", "x"], &["--num-update-checkpoints", "4"]);
    assert!(few.failed().contains("(updates 100, 900, 1000) but 4 are needed"), "{}", few.stderr);
    assert!(few.stderr.contains("keep_interval_updates"), "{}", few.stderr);
    save(&place, "run/checkpoint.best_loss_3.2500_100", &["a", "b"], 7);
    let both = place.mae(&["average", "run", "--output", "x"], &["--num-best-checkpoints", "1"]);
    assert!(both.failed().contains("--best-checkpoint-metric"), "{}", both.stderr);
    let loss = average(&["--num-best-checkpoints", "1", "--best-checkpoint-metric", "loss"]);
    assert_eq!(loss, ["run/checkpoint.best_loss_3.2500_100"]);
    place.mae(&["average", "run", "--output", "x"], &[]).failed();
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
    assert!(told(&["average", "--inputs", "a", "nowhere"]).starts_with("mae: nowhere is not a model folder"));
    assert!(!place.path("out").exists(), "nothing is written");
    place.write("out", "");
    assert!(told(&["average", "--inputs", "a", "a"]).contains("--output out is a file"));
}

#[test]
fn a_folder_of_other_things_is_not_replaced() {
    let place = Sandbox::new();
    save(&place, "run/checkpoint1", &["a", "b"], 1);
    save(&place, "run/checkpoint2", &["a", "b"], 2);
    std::fs::create_dir(place.path("texts")).unwrap();
    place.write("texts/train.de", "haus\n");
    for (out, words) in [
        ("texts", "--output texts is a folder with other files"),
        ("run", "--output run is a folder with other files"),
        ("run/checkpoint2", "--output run/checkpoint2 is a model that is read"),
    ] {
        let done = place.mae(&["average", "run", "--num-epoch-checkpoints", "2", "--output", out], &[]);
        assert!(done.failed().contains(words), "{}", done.stderr);
    }
    assert_eq!(std::fs::read_to_string(place.path("texts/train.de")).unwrap(), "haus\n");
    for _ in 0..2 {
        place
            .mae(&["average", "run", "--num-epoch-checkpoints", "2", "--output", "run/average"], &[])
            .succeeded();
    }
}
