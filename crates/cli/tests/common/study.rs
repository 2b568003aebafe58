//! A tiny study and its corpus.

use super::{Sandbox, lines};

/// Two systems and two seeds; `place` has it in `tiny.toml`.
pub const STUDY: &str = r#"
title = "A tiny study"
paper = "Paper: no table."
caveat = "Made-up words, not the paper's."
seeds = [1, 2]
max_epoch = 12
[keys.model]
encoder_layers = 1
decoder_layers = 1
encoder_embed_dim = 32
encoder_ffn_embed_dim = 48
dropout = 0.0
[keys.train]
max_tokens = 200
lr = 1e-2
warmup_updates = 20
log_interval = 5
[translation]
beam = 2
average = 2
draws = 2
language = "en"
reference = "test.raw.en"
[[system]]
name = "base"
recipe = "multi30k-base"
paper = 30.0
[[system]]
name = "mae7"
recipe = "multi30k-mae7"
paper = 31.5
keys.model.mixture.gate_hidden = 8
keys.train.gate_every_updates = 3
"#;

/// A binarised corpus in `bin` in which every word has its translation, and the study beside it.
pub fn place() -> Sandbox {
    let place = Sandbox::new();
    let words = ["eins", "zwei", "drei", "vier", "fünf", "sechs"];
    let sentence = |i: usize, shift: usize| {
        let picked = (0..2 + i % 4).map(|j| words[(i * 5 + j * (1 + i % 3) + shift) % 6]);
        picked.collect::<Vec<_>>().join(" ")
    };
    for (split, from, to) in [("train", 0, 200), ("valid", 200, 215), ("test", 215, 240)] {
        for (lang, shift) in [("de", 0), ("en", 1)] {
            let text: Vec<String> = (from..to).map(|i| sentence(i, shift)).collect();
            place.write(&format!("{split}.{lang}"), lines(&text));
            if split == "test" {
                place.write(&format!("test.raw.{lang}"), lines(&text));
            }
        }
    }
    let files = ["--trainpref", "train", "--validpref", "valid", "--testpref", "test", "--destdir", "bin"];
    place.mae(&["preprocess", "-s", "de", "-t", "en", "--bpe", "20"], &files).succeeded();
    place.write("tiny.toml", STUDY);
    place
}
