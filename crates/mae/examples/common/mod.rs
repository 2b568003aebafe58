//! A made-up corpus and a small model of it, for the examples.
#![allow(dead_code, reason = "not every example uses all of it")]

use std::error::Error;
use std::path::{Path, PathBuf};

use mae::Device;
use mae::data::preprocess::{PreprocessOptions, preprocess};
use mae::engine::Rng;
use mae::train::{Recipe, Run};

/// Digits in words, and their translations.
const WORDS: [(&str, &str); 9] = [
    ("one", "eins"),
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
];

/// Sentences of two to four digits; line `i` of a text is a function of its seed and `i`.
fn pair(seed: u64, i: u32) -> (String, String) {
    let stream = Rng::new(seed, 0).stream(0);
    let below = |n: usize, at: u32| (stream.uniform(i, at) * n as f32) as usize;
    let words = (0..2 + below(3, 0) as u32).map(|at| WORDS[below(WORDS.len(), 1 + at)]);
    let (source, target): (Vec<&str>, Vec<&str>) = words.unzip();
    (source.join(" "), target.join(" "))
}

/// Writes a corpus of digits in words and binarises it; returns the folder of the data set.
pub fn corpus(place: &Path) -> Result<PathBuf, Box<dyn Error>> {
    for (split, seed, pairs) in [("train", 1, 6000), ("valid", 2, 50)] {
        let (source, target): (Vec<String>, Vec<String>) = (0..pairs).map(|i| pair(seed, i)).unzip();
        std::fs::write(place.join(format!("{split}.en")), source.join("\n") + "\n")?;
        std::fs::write(place.join(format!("{split}.de")), target.join("\n") + "\n")?;
    }
    let prefix = |split: &str| Some(place.join(split).display().to_string());
    let data = place.join("data");
    let options = PreprocessOptions {
        trainpref: prefix("train"),
        validpref: prefix("valid"),
        ..PreprocessOptions::new("en", "de", &data)
    };
    preprocess(&options, |_| {})?;
    Ok(data)
}

/// A recipe for a small mixture: four experts of three heads each.
pub fn recipe() -> Result<Recipe, mae::Error> {
    let keys = [
        "model.arch=transformer_tiny",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "model.encoder_embed_dim=64",
        "model.encoder_ffn_embed_dim=128",
        "model.encoder_attention_heads=4",
        "model.dropout=0.0",
        "model.mixture.gate_hidden=32",
        "train.lr=5e-3",
        "train.warmup_updates=40",
        "train.max_tokens=600",
        "train.max_update=160",
        "train.gate_every_updates=5",
        "train.log_interval=20",
        "train.eval_bleu_beam=2",
    ];
    let recipe = keys.into_iter().try_fold(Recipe::default(), Recipe::set)?;
    Ok(recipe.with_system("mae3")?)
}

/// A run of that recipe.
pub fn run<'a>(data: &Path, place: &Path, device: &Device) -> Result<Run<'a>, mae::Error> {
    Ok(mae::train::run(data, recipe()?, device).save_dir(place.join("run")))
}

/// The model folder that the command line names, or that of a small model which is trained in `place` first.
pub fn model(place: &Path, device: &Device) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(folder) = std::env::args_os().nth(1) {
        return Ok(folder.into());
    }
    println!("no model folder was given: training a small model on a made-up corpus first");
    Ok(run(&corpus(place)?, place, device)?.train().map_err(mae::Error::from)?.model)
}
