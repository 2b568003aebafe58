//! A tiny random model folder with text beside it, and the built program run there.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use mae_data::Vocab;
use mae_data::bpe::Codes;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::config::{Mixture, System};
use mae_model::folder::ModelFolder;
use mae_model::{ModelConfig, Translator};
use serde_json::Value;

/// Lines to translate: ordinary ones, empty ones, one with an unknown word.
pub const TEXT: &str = "a b c\n\nd a b d a\nc never-seen a\n   \nb\n";

/// A folder with a model in `model`, and text files beside it; removed at the end of the test.
pub struct Place(tempfile::TempDir);

/// What a run printed.
pub struct Printed {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Whether it ended well.
    pub success: bool,
}

pub fn vocab(words: &[&str]) -> Arc<Vocab> {
    Arc::new(Vocab::from_counts(words.iter().map(|word| (*word, 1)), VocabOptions::default()))
}

impl Place {
    pub fn new(codes: Option<Codes>) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.model("model", System::MAE, 3, &["x", "y@@", "z", "u@@", "v"], codes);
        place.write("src", TEXT);
        place.write("tgt", "x z\n\nz yx\nx x\n\nv\n");
        place
    }

    /// Saves a random model.
    pub fn model(&self, name: &str, system: System, seed: u64, words: &[&str], codes: Option<Codes>) {
        let mut config = ModelConfig::arch("transformer_tiny").unwrap();
        (config.encoder_layers, config.decoder_layers) = (1, 2);
        (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (16, 20);
        (config.encoder_attention_heads, config.max_positions) = (4, 12);
        config.mixture = Mixture { system, gate_hidden: 6, ..Mixture::default() };
        let (source, target) = (vocab(&["a", "b", "c", "d", "a@@", "b@@"]), vocab(words));
        let types = [source.len(), target.len()];
        let model = Translator::new(&config, types, &Device::cpu(), seed).unwrap();
        ModelFolder { model, source, target, codes: codes.map(Into::into), text: Default::default() }
            .save(&self.path(name))
            .unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn start(&self, args: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_mae"))
            .current_dir(self.0.path())
            .args(args.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub fn mae(&self, args: &str, stdin: &str) -> Printed {
        let mut child = self.start(args);
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Printed { out: text(done.stdout), err: text(done.stderr), success: done.status.success() }
    }

    pub fn translate(&self, args: &str) -> Printed {
        let printed = self.mae(&format!("generate model --max-len-b 9 {args}"), "");
        assert!(printed.success, "{}", printed.err);
        printed
    }

    #[track_caller]
    pub fn refuse(&self, args: &str, parts: &[&str]) {
        let printed = self.mae(args, "");
        assert!(!printed.success && printed.out.is_empty(), "{args} was accepted");
        for part in parts {
            assert!(printed.err.contains(part), "{args}: `{part}` is not in: {}", printed.err);
        }
    }
}

/// The fields after the tag of lines that begin with it.
pub fn tagged<'a>(out: &'a str, tag: &str) -> Vec<&'a str> {
    out.lines()
        .filter(|line| line.starts_with(tag))
        .filter_map(|line| line.split_once('\t'))
        .map(|f| f.1)
        .collect()
}

pub fn objects(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}
