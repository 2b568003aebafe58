//! `mae import` and `mae export` as a user runs them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{self, Sandbox};

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
    fs::copy(&checkpoint, sandbox.path("alone.pt")).unwrap();
    let alone = sandbox.mae(&["import", "fairseq", "alone.pt", "--out", "other"], &[]);
    assert!(alone.failed().contains("--dicts DIR names the folder"), "{}", alone.stderr);
    for (format, file) in [("hf", "config.json"), ("ct2", "model.bin")] {
        let ours = sandbox.mae(&["import", format, "model", "--out", "other"], &[]);
        assert!(ours.failed().contains(&format!("there is no {file}")), "{}", ours.stderr);
    }
    for (format, file) in [("ct2", "model.bin"), ("fairseq", "model.pt"), ("hf", "model.safetensors")] {
        sandbox.mae(&["export", format, "model", "--out", format], &[]).succeeded();
        assert!(sandbox.path(format).join(file).is_file());
    }
    sandbox.mae(&["import", "hf", "hf", "--out", "again"], &[]).succeeded();
    let weights = |folder: &str| fs::read(sandbox.path(folder).join("model.safetensors")).unwrap();
    assert!(weights("model") == weights("again"), "a round trip changes no bit");

    let expert = sandbox.mae(&["export", "ct2", "model", "--expert", "3", "--out", "other"], &[]);
    assert!(expert.failed().contains("this BASE model has no experts"), "{}", expert.stderr);
    assert!(!sandbox.path("other").exists());
}

#[test]
fn models_of_fsmt_read_text_as_their_tokeniser_does() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("fsmt")).unwrap();
    for name in ["config.json", "merges.txt", "model.safetensors", "vocab-src.json", "vocab-tgt.json"] {
        fs::copy(golden("fsmt").join(name), sandbox.path("fsmt").join(name)).unwrap();
    }
    // Its word for `the` is a comma, so that there is something to detokenise.
    let words = fs::read_to_string(golden("fsmt/vocab-tgt.json")).unwrap();
    sandbox.write("fsmt/vocab-tgt.json", words.replace("\"the</w>\"", "\",</w>\""));
    sandbox.write("fsmt/tokenizer_config.json", r#"{"langs": ["de", "en"], "do_lower_case": true}"#);
    sandbox.mae(&["import", "hf", "fsmt", "--out", "model"], &[]).succeeded();
    let record = |folder: &str| fs::read_to_string(sandbox.path(folder).join("text.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&record("model")).unwrap();
    assert_eq!((&json["source_lang"], &json["target_lang"]), (&"de".into(), &"en".into()), "{json}");
    let rules = &json["rules"];
    assert!(rules["normalize"] == true && rules["lowercase"] == true, "{json}");
    assert_eq!(rules["tokenize"], "moses-split-dashes", "{json}");

    sandbox.write("in", "HAUS-Haus\n");
    sandbox.write("tokens", "haus @-@ haus\n");
    sandbox.write("ref", "A, a\n");
    sandbox.write("ref.tokens", "a , a\n");
    let generate = |source: &str, reference: &str, more: &[&str]| {
        // Translations begin as their references do.
        let fixed = ["--prefix-size", "2", "--max-len-b", "6", "--device", "cpu", "--beam", "1"];
        let args = ["generate", "model", "--source", source, "--target", reference];
        sandbox.mae(&args, &[&fixed[..], more].concat())
    };
    let line = |found: &str, tag: &str| -> String {
        let line = found.lines().find(|line| line.starts_with(tag)).unwrap_or_else(|| panic!("{found}"));
        line.rsplit('\t').next().unwrap().to_owned()
    };
    let plain = generate("in", "ref", &[]);
    let tokens = generate("tokens", "ref.tokens", &["--tokenized"]);
    for tag in ["S-", "T-", "H-", "P-"] {
        assert_eq!(line(plain.succeeded(), tag), line(tokens.succeeded(), tag));
    }
    assert!(line(&plain.stdout, "S-").starts_with("haus "), "{}", plain.stdout);
    assert!(line(&plain.stdout, "D-").starts_with("a, "), "{}", plain.stdout);
    assert!(line(&tokens.stdout, "D-").starts_with("a , "), "{}", tokens.stdout);
    let unruled = generate("in", "ref.tokens", &["--tokenized"]);
    assert!(line(unruled.succeeded(), "S-").starts_with("<unk>"), "{}", unruled.stdout);

    // There and back, and languages without rules: what must be done is said.
    sandbox.mae(&["export", "hf", "model", "--out", "again"], &[]).succeeded();
    sandbox.mae(&["import", "hf", "again", "--out", "back"], &[]).succeeded();
    assert_eq!(record("back"), record("model"));
    sandbox.write("fsmt/tokenizer_config.json", r#"{"langs": ["xx", "en"]}"#);
    let told = sandbox.mae(&["import", "hf", "fsmt", "--out", "other"], &[]);
    assert!(told.succeeded().contains("text must be tokenised by Moses' rules"), "{}", told.stdout);
    assert!(!record("other").contains("rules"), "{}", record("other"));
}

/// The trained gates of a model, made up: zeros in `fc2` would weigh all heads the same.
fn with_gates(sandbox: &Sandbox) {
    let checkpoint = golden("fairseq/zip.pt");
    sandbox.mae(&["import", "fairseq"], &[checkpoint.to_str().unwrap(), "--out", "model"]).succeeded();
    sandbox.mae(&["convert", "model", "--system", "mae1", "--out", "gated"], &[]).succeeded();
    let path = sandbox.path("gated/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    for (name, tensor) in header.as_object().unwrap() {
        if name.contains("gate.fc2") {
            let at = |i: usize| tensor["data_offsets"][i].as_u64().unwrap() as usize + 8 + length;
            for (i, value) in bytes[at(0)..at(1)].chunks_exact_mut(4).enumerate() {
                value.copy_from_slice(&((i as f32 * 0.7).sin() * 3.0).to_le_bytes());
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn one_expert_goes_out_as_it_is_converted() {
    let sandbox = Sandbox::new();
    with_gates(&sandbox);
    let refused = sandbox.mae(&["export", "hf", "gated", "--out", "hf"], &[]);
    assert!(refused.failed().contains("--expert N exports one expert"), "{}", refused.stderr);
    let weights = |folder: &str| -> Vec<(String, Vec<f32>)> {
        let bytes = fs::read(sandbox.path(folder).join("model.safetensors")).unwrap();
        let tensors = mae_exchange::import::hf::safetensors(&bytes).unwrap();
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.read())).collect()
    };
    for expert in ["0", "1"] {
        let [out, back, base] = ["hf", "back", "base"].map(|name| format!("{name}{expert}"));
        sandbox.mae(&["export", "hf", "gated", "--expert", expert, "--out", &out], &[]).succeeded();
        sandbox.mae(&["import", "hf", &out, "--out", &back], &[]).succeeded();
        sandbox
            .mae(&["convert", "gated", "--system", "base", "--expert", expert, "--out", &base], &[])
            .succeeded();
        assert!(weights(&back) == weights(&base), "expert {expert}");
    }
    assert!(weights("back0") != weights("back1"));
}

#[test]
fn graphs_of_onnx_have_the_parts_that_they_name() {
    let sandbox = Sandbox::new();
    with_gates(&sandbox);
    sandbox.mae(&["export", "onnx", "gated", "--out", "onnx"], &[]).succeeded();
    let facts: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.path("onnx/model.json")).unwrap()).unwrap();
    assert_eq!((&facts["system"], &facts["gates"]), (&"mae1".into(), &true.into()), "{facts}");
    assert!(sandbox.path("onnx/dict.tgt.txt").is_file());
    let size = fs::metadata(sandbox.path("onnx/weights.bin")).unwrap().len();
    for name in ["encoder", "first_step", "step"] {
        let graph = fs::read(sandbox.path(&format!("onnx/{name}.onnx"))).unwrap();
        let text = String::from_utf8_lossy(&graph);
        assert!(text.contains("gate.fc2.weight") && text.contains("LayerNormalization"), "{name}");
        assert!(graph.len() as u64 * 2 < size.max(1 << 20), "{name}: weights are in a file of their own");
    }
    let plain = sandbox.mae(&["export", "onnx", "gated", "--expert", "1", "--out", "plain"], &[]);
    plain.succeeded();
    assert!(!String::from_utf8_lossy(&fs::read(sandbox.path("plain/step.onnx")).unwrap()).contains("gate"));
    let there = sandbox.mae(&["export", "onnx", "gated", "--out", "onnx"], &[]);
    assert!(there.failed().contains("not empty"), "{}", there.stderr);
}

#[test]
fn graphs_of_onnx_compute_the_same() {
    let program = env!("CARGO_BIN_EXE_mae");
    let args = [program, "random", "--lines", "6"];
    common::tool::check(
        &common::tool::python(),
        ("onnx_check.py", "MAE_CHECK_ONNX"),
        &args,
        "the graphs compute what mae computes",
    );
}
