//! `mae import` and `mae export` as a user runs them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Sandbox;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/exchange").join(name)
}

#[test]
fn models_come_in_translate_and_go_out() {
    let sandbox = Sandbox::new();
    let checkpoint = golden("fairseq/zip.pt");
    let imported = sandbox.mae(&["import", "fairseq"], &[checkpoint.to_str().unwrap(), "--out", "model"]);
    assert!(imported.succeeded().contains("12 and 12 types"), "{}", imported.stdout);
    assert!(imported.stdout.contains("text must come in pieces"), "{}", imported.stdout);
    sandbox.write("in", "w1de w2de\n");
    let found = sandbox.mae(&["generate", "model", "--source", "in", "--device", "cpu", "--jsonl"], &[]);
    let found: serde_json::Value = serde_json::from_str(found.succeeded()).expect("one line of JSON");
    assert!(found["hypotheses"][0]["score"].as_f64().unwrap().is_finite());

    let there = sandbox.mae(&["import", "fairseq"], &[checkpoint.to_str().unwrap(), "--out", "model"]);
    assert!(there.failed().contains("--out model exists and is not empty"), "{}", there.stderr);
    for (format, file) in [("ct2", "model.bin"), ("fairseq", "model.pt"), ("hf", "model.safetensors")] {
        sandbox.mae(&["export", format, "model", "--out", format], &[]).succeeded();
        assert!(sandbox.path(format).join(file).is_file());
    }
    sandbox.mae(&["import", "hf", "hf", "--out", "again"], &[]).succeeded();
    let weights = |folder: &str| fs::read(sandbox.path(folder).join("model.safetensors")).unwrap();
    assert!(weights("model") == weights("again"), "a round trip changes no bit");

    let expert = sandbox.mae(&["export", "ct2", "model", "--expert", "3", "--out", "other"], &[]);
    assert!(expert.failed().contains("has no experts"), "{}", expert.stderr);
    assert!(!sandbox.path("other").exists());
}
