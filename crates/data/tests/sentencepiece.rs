//! SentencePiece models against golden files of the sentencepiece package (`tools/sentencepiece_golden.py`), and
//! refusals.

use std::fs;
use std::path::{Path, PathBuf};

use mae_data::preprocess::{BpeSource, PreprocessOptions, preprocess};
use mae_data::segmentation::{self, Segmentation};
use mae_data::{ParallelDataset, SentencePiece};
use serde_json::Value;

use crate::common::Folder;

fn goldens() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sentencepiece")
}

/// Holds a model against the cases of a file; returns their number.
fn check(model: &Path, cases: &Path) -> usize {
    let model = SentencePiece::load(model).unwrap();
    let text = fs::read_to_string(cases).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let found = model.encode(case["in"].as_str().unwrap());
        let pieces: Vec<Value> = found.iter().map(|piece| piece.text.clone().into()).collect();
        assert_eq!(pieces, list(&case["pieces"]), "{}: {}", cases.display(), case["in"]);
        let ids: Vec<Value> = found.iter().map(|piece| piece.id.into()).collect();
        assert_eq!(ids, list(&case["ids"]), "{}: {}", cases.display(), case["in"]);
        let pieces: Vec<&str> = found.iter().map(|piece| model.piece(piece.id).unwrap()).collect();
        assert_eq!(
            model.decode(&pieces),
            case["dec"].as_str().unwrap(),
            "{}: {}",
            cases.display(),
            case["in"]
        );
    }
    text.lines().count()
}

/// Holds all models of a folder against `expected/FOLDER__MODEL.jsonl`.
fn check_all(folder: &Path) -> usize {
    let mut total = 0;
    for entry in fs::read_dir(folder.join("expected")).unwrap() {
        let cases = entry.unwrap().path();
        let name = cases.file_stem().unwrap().to_str().unwrap().replace("__", "/");
        total += check(&folder.join(name), &cases);
    }
    total
}

#[test]
fn pieces_ids_and_text_are_those_of_the_package() {
    assert!(check_all(&goldens()) > 300);
}

/// More models and more lines, where the variable names a folder of them.
#[test]
fn other_models_and_lines_agree_too() {
    if let Some(folder) = std::env::var_os("MAE_SENTENCEPIECE_CASES") {
        println!("{} cases", check_all(Path::new(&folder)));
    }
}

#[test]
fn folders_carry_the_model() {
    let model = goldens().join("unigram.model");
    let folder = Folder::new();
    folder.write("train.de", "zwei Häuser\nzwei  Mäuse!\n");
    folder.write("train.en", "two houses\ntwo\u{a0}mice <s>\n");
    let options = PreprocessOptions {
        trainpref: Some(folder.prefix("train")),
        bpe: BpeSource::SentencePiece(model.clone()),
        ..PreprocessOptions::new("de", "en", folder.path("bin"))
    };
    preprocess(&options, |_| ()).unwrap();
    let segmentation = Segmentation::load(folder.path("bin")).unwrap().expect("a model");
    let data = ParallelDataset::open(folder.path("bin"), "train", "de", "en").unwrap();
    let line = data.src_vocab.string(&data.src.get(1));
    assert_eq!(segmentation::join(Some(&segmentation), &line), "zwei Mäuse!");
    assert!(!data.tgt.get(1).contains(&0), "a text never becomes a special symbol");
    assert_eq!(fs::read(folder.path("bin/sentencepiece.model")).unwrap(), fs::read(model).unwrap());

    // A folder of ids keeps the model that made them; a model's folder takes any.
    fs::remove_file(folder.path("bin/preprocess.json")).unwrap();
    let load = |name: &str| SentencePiece::load(goldens().join(name)).unwrap();
    let both = Segmentation::SentencePieces { src: load("unigram.model"), tgt: load("merges.model") };
    Segmentation::save(Some(&both), folder.path("bin")).unwrap();
    assert!(!folder.path("bin/sentencepiece.model").exists());
    assert_eq!(Segmentation::load(folder.path("bin")).unwrap(), Some(both));
    let words = segmentation::words(Some(&segmentation), &["▁zw", "ei", "▁H", "aus"]);
    assert_eq!(words, [("zwei".to_owned(), 0), ("Haus".to_owned(), 2)]);
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn what_is_wrong_is_named() {
    let piece = |text: &str, kind: u8| field(1, &[field(1, text.as_bytes()), vec![3 << 3, kind]].concat());
    let unknown = piece("<unk>", 2);
    let good = [unknown.clone(), piece("a", 1)].concat();
    assert_eq!(SentencePiece::parse(&good).unwrap().segment_line("ab a"), "▁ a b▁ a");
    let with = |more: Vec<u8>| [good.clone(), more].concat();
    for (bytes, words) in [
        (Vec::new(), "no pieces"),
        (b"nonsense".to_vec(), "not a whole"),
        (good[..good.len() - 1].to_vec(), "cut off"),
        (piece("a", 1), "no unknown piece"),
        (with(unknown), "another"),
        (with(piece("a", 1)), "same text"),
        (with(piece("", 1)), "empty"),
        (with(piece("b", 9)), "unknown type 9"),
        (with(field(2, &[3 << 3, 3])), "`word` are not supported"),
        (with(field(2, &[3 << 3, 7])), "model type 7"),
        (with(field(2, &[0x98, 2, 1])), "<0x00> is missing"),
        (with(field(3, &field(2, &[255, 255, 255, 255, 0]))), "normalisation map"),
        (with(vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), "cut off"),
        (with(vec![0xff; 12]), "ten bytes"),
        (with(field(1, &[field(1, b"x"), vec![2 << 3 | 5, 0, 0, 0xc0, 0x7f]].concat())), "no number"),
        (with(field(1, &field(1, &[0xff]))), "not UTF-8"),
    ] {
        let said = SentencePiece::parse(&bytes).unwrap_err();
        assert!(said.contains(words), "{words}: {said}");
    }
}
