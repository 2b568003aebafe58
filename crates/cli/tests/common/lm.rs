//! A tiny language model, trained for a few updates.

use serde_json::Value;

use super::Sandbox;

/// Lines that count in a circle, so that a small model can learn them.
pub fn text(lines: usize, first: usize) -> String {
    let word = |i: usize| ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben"][i % 7];
    let line = |i: usize| (0..4 + i % 5).map(|j| word(i + j)).collect::<Vec<_>>().join(" ") + "\n";
    (first..first + lines).map(line).collect()
}

pub const RECIPE: &str = "[model]
arch = \"transformer_lm_tiny\"
decoder_layers = 2
decoder_embed_dim = 16
decoder_ffn_embed_dim = 32
decoder_attention_heads = 4
adaptive_softmax_cutoff = [8]
adaptive_softmax_factor = 2
dropout = 0.0
max_positions = 24
[model.mixture]
system = \"mae\"
gate_hidden = 8
[train]
optimizer = \"nag\"
lr_scheduler = \"cosine\"
max_lr = 0.3
lr = 1e-3
lr_period_updates = 200
warmup_updates = 10
clip_norm = 0.1
tokens_per_sample = 16
max_tokens = 64
max_update = 60
gate_every_updates = 4
keep_last_epochs = 2
log_interval = 10
";

/// A binarised text in `bin`, and a run in `run`.
pub fn trained() -> Sandbox {
    let place = Sandbox::new();
    place.write("train.txt", text(80, 0));
    place.write("test.txt", text(9, 100));
    place.write("lm.toml", RECIPE);
    let texts = ["--trainpref", "train.txt", "--validpref", "test.txt", "--testpref", "test.txt"];
    place.mae(&["preprocess", "--only-source", "--destdir", "bin"], &texts).succeeded();
    let said =
        place.mae(&["train", "bin", "--recipe", "lm.toml", "--save-dir", "run", "--device", "cpu"], &[]);
    let said = said.succeeded();
    assert!(said.contains("training blocks") && said.contains("the largest batch (64 tokens)"), "{said}");
    place
}

pub fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
