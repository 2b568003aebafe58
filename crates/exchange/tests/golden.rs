//! Models of other programs (`tools/exchange_golden.py`): they compute here what they compute there, and survive round
//! trips.

use std::fs;
use std::path::{Path, PathBuf};

use mae_data::{EOS, PackedBatch, Vocab};
use mae_engine::{Device, Tape};
use mae_exchange::export::{self, Folder, HeadWeights};
use mae_exchange::import;
use mae_exchange::import::hf::safetensors;
use mae_model::config::{DecoderStart, Positions, Sharing};
use mae_model::folder::ModelFolder;
use mae_model::lm::LmFolder;
use mae_model::{ExpertMode, Model, Pass};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/exchange").join(name)
}

fn batch(folder: &ModelFolder, source: &str, target: &str) -> PackedBatch {
    let (src, tgt) = (folder.source.encode_line(source), folder.target.encode_line(target));
    let prev = [&[EOS][..], &tgt[..tgt.len() - 1]].concat();
    let (src_starts, tgt_starts) = (vec![0, src.len() as u32], vec![0, tgt.len() as u32]);
    PackedBatch { src, src_starts, prev, tgt, tgt_starts, ids: vec![0] }
}

/// Largest difference between log-probabilities of a folder's model and those of the golden cases.
fn difference(folder: &Path, cases: &Path) -> f32 {
    let folder = ModelFolder::load(folder, &Device::cpu()).unwrap();
    let cases: Value = serde_json::from_slice(&fs::read(cases).unwrap()).unwrap();
    let mut worst = 0_f32;
    for case in cases.as_array().unwrap() {
        let packed = batch(&folder, case["source"].as_str().unwrap(), case["target"].as_str().unwrap());
        let mut tape = Tape::evaluation(folder.model.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        let found = folder.model.loss(&mut pass, &folder.model.upload(&packed), 0.0, 1.0).log_probs.to_host();
        let wanted = case["log_probs"].as_array().unwrap();
        assert_eq!(found.len(), wanted.len(), "{case}");
        for (found, wanted) in found.iter().zip(wanted) {
            worst = worst.max((found - wanted.as_f64().unwrap() as f32).abs());
        }
    }
    worst
}

fn assert_same_files(a: &Path, b: &Path, names: &[&str]) {
    for name in names {
        assert!(fs::read(a.join(name)).unwrap() == fs::read(b.join(name)).unwrap(), "{name} differs");
    }
}

const FILES: [&str; 4] = ["model.safetensors", "config.toml", "dict.src.txt", "dict.tgt.txt"];

#[test]
fn marian_computes_what_transformers_computes() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let imported = import::hf::import(&golden("marian"), &at("half")).unwrap();
    // Eleven symbols, `<unk>`, `</s>`, `<pad>`, and `<s>`, which Marian does not have.
    assert_eq!(imported.types, [14, 14]);
    let worst = difference(&at("half"), &golden("marian/cases.json"));
    assert!(worst < 1e-4, "{worst}");
    let folder = ModelFolder::load(&at("half"), &Device::cpu()).unwrap();
    let config = folder.model.config();
    assert_eq!((config.positions, config.decoder_start), (Positions::Marian, DecoderStart::Pad));
    assert_eq!(config.share_embeddings, Sharing::All);
    // A language code and pieces of SentencePiece.
    let ids = folder
        .source
        .encode_line(&folder.codes.as_ref().unwrap().segmenters()[0].segment_line(">>fra<< the"));
    assert_eq!(folder.source.symbol(ids[0]), ">>fra<<");

    // The same weights from a pickle.
    fs::create_dir(at("bin")).unwrap();
    for name in ["config.json", "vocab.json", "source.spm", "target.spm", "pytorch_model.bin"] {
        fs::copy(golden("marian").join(name), at("bin").join(name)).unwrap();
    }
    import::hf::import(&at("bin"), &at("pickled")).unwrap();
    assert_same_files(&at("half"), &at("pickled"), &FILES);

    // There and back.
    let folder = Folder::open(&at("half")).unwrap();
    let kind = export::hf::export(&folder, &HeadWeights::Ones, ["en", "fr"], &at("again")).unwrap();
    assert_eq!(kind, export::hf::Kind::Marian);
    import::hf::import(&at("again"), &at("back")).unwrap();
    assert_same_files(&at("half"), &at("back"), &FILES);
}

#[test]
fn fsmt_computes_what_transformers_computes() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    import::hf::import(&golden("fsmt"), &at("model")).unwrap();
    let worst = difference(&at("model"), &golden("fsmt/cases.json"));
    assert!(worst < 1e-4, "{worst}");
    let dictionary = Vocab::load(at("model").join("dict.src.txt")).unwrap();
    assert_eq!((dictionary.symbol(4), dictionary.symbol(5)), ("ha@@", "us"));
    assert!(fs::read_to_string(at("model").join("bpe.codes")).unwrap().contains("\nh a\n"));

    let folder = Folder::open(&at("model")).unwrap();
    let kind = export::hf::export(&folder, &HeadWeights::Ones, ["de", "en"], &at("again")).unwrap();
    assert_eq!(kind, export::hf::Kind::Fsmt);
    import::hf::import(&at("again"), &at("back")).unwrap();
    assert_same_files(&at("model"), &at("back"), &FILES);
    assert_same_files(&at("model"), &at("back"), &["bpe.codes"]);
}

#[test]
fn ctranslate2_computes_the_same() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    import::ct2::import(&golden("ct2"), &at("model")).unwrap();
    let worst = difference(&at("model"), &golden("ct2/cases.json"));
    assert!(worst < 1e-4, "{worst}");
    let folder = Folder::open(&at("model")).unwrap();
    export::ct2::export(&folder, &HeadWeights::Ones, &at("again")).unwrap();
    import::ct2::import(&at("again"), &at("back")).unwrap();
    // `<blank>` may not be produced there, as `<pad>` is not here.
    assert_same_files(&at("model"), &at("back"), &["config.toml", "dict.src.txt", "dict.tgt.txt"]);
    let values = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    let (before, after) = (values(&at("model")), values(&at("back")));
    let (before, after) = (safetensors(&before).unwrap(), safetensors(&after).unwrap());
    for (name, tensor) in &before {
        let mut expected = tensor.read();
        if name == "decoder.output_projection.bias" {
            expected[1] = -1e4;
        }
        assert_eq!(after[name].read(), expected, "{name}");
    }
    let refused = export::ct2::export(&folder, &HeadWeights::Ones, &at("again")).unwrap_err().to_string();
    assert!(refused.contains("not empty"), "{refused}");
}

fn weights(folder: &Path) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let bytes = fs::read(folder).unwrap();
    let tensors = safetensors(&bytes).unwrap();
    tensors.iter().map(|(name, t)| (name.clone(), t.shape().to_vec(), t.read())).collect()
}

#[test]
fn checkpoints_of_fairseq_have_their_weights() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let truth = weights(&golden("fairseq/truth.safetensors"));
    for name in ["zip", "legacy", "views", "half"] {
        let from = golden("fairseq").join(format!("{name}.pt"));
        let imported = import::fairseq::import(&from, &golden("fairseq"), &at(name)).unwrap();
        assert_eq!(imported.types, [12, 12], "{name}");
        let found = weights(&at(name).join("model.safetensors"));
        if name != "half" {
            assert!(found == truth, "{name}");
            continue;
        }
        for ((name, shape, a), (_, wanted, b)) in found.iter().zip(&truth) {
            assert_eq!(shape, wanted, "{name}");
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2e-3), "{name}");
        }
    }
    let folder = Folder::open(&at("zip")).unwrap();
    export::fairseq::export(&folder, &HeadWeights::Ones, ["de", "en"], &at("again")).unwrap();
    import::fairseq::import(&at("again").join("model.pt"), &at("again"), &at("back")).unwrap();
    assert!(weights(&at("back").join("model.safetensors")) == truth);

    // To CTranslate2 and back: the same weights, with fairseq's positions recognised.
    export::ct2::export(&folder, &HeadWeights::Ones, &at("ct2")).unwrap();
    import::ct2::import(&at("ct2"), &at("from_ct2")).unwrap();
    let [here, there] =
        [at("zip"), at("from_ct2")].map(|folder| Folder::open(&folder).unwrap().config().clone());
    assert_eq!(
        (there.positions, there.share_embeddings, there.norm),
        (here.positions, here.share_embeddings, here.norm)
    );
    assert!(weights(&at("from_ct2").join("model.safetensors")) == truth);
}

#[test]
fn codes_beside_a_model_are_taken_along() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    import::fairseq::import(&golden("fairseq/zip.pt"), &golden("fairseq"), &at("model")).unwrap();
    let files = ["bpe.src.codes", "bpe.tgt.codes", "text.json"];
    let rules = r#"{"tokenize": "moses"}"#;
    let text = format!(r#"{{"format": 1, "source_lang": "de", "target_lang": "en", "rules": {rules}}}"#);
    for (name, content) in files.iter().zip(["#version: 0.2\na b\n", "#version: 0.2\nc d\n", &text]) {
        fs::write(at("model").join(name), content).unwrap();
    }
    let folder = Folder::open(&at("model")).unwrap();
    export::fairseq::export(&folder, &HeadWeights::Ones, ["de", "en"], &at("fairseq")).unwrap();
    import::fairseq::import(&at("fairseq").join("model.pt"), &at("fairseq"), &at("from_fairseq")).unwrap();
    export::ct2::export(&folder, &HeadWeights::Ones, &at("ct2")).unwrap();
    let imported = import::ct2::import(&at("ct2"), &at("from_ct2")).unwrap();
    assert!(imported.notes.is_empty(), "{:?}", imported.notes);
    assert_same_files(&at("from_fairseq"), &at("from_ct2"), &files);
    assert_same_files(&at("ct2"), &at("from_ct2"), &files[..2]);

    // Under the names that OPUS-MT uses.
    files.iter().for_each(|name| fs::remove_file(at("ct2").join(name)).unwrap());
    for name in ["source.spm", "target.spm"] {
        fs::copy(golden("marian").join(name), at("ct2").join(name)).unwrap();
    }
    import::ct2::import(&at("ct2"), &at("pieces")).unwrap();
    assert!(
        fs::read_dir(at("pieces"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("sentencepiece.") })
    );
}

#[test]
fn an_adaptive_language_model_has_its_weights() {
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("lm");
    import::fairseq::import(&golden("fairseq_lm/lm.pt"), &golden("fairseq_lm"), &out).unwrap();
    assert!(weights(&out.join("model.safetensors")) == weights(&golden("fairseq_lm/truth.safetensors")));
    let folder = LmFolder::load(&out, &Device::cpu()).unwrap();
    let config = folder.model.config();
    assert_eq!(config.adaptive_softmax_cutoff, [6, 9]);
    assert!(config.tie_adaptive_weights && config.tie_adaptive_proj && !config.final_norm);
}
