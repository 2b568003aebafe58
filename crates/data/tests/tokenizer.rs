//! `tokenizer.json` against golden files of the tokenizers package (`tools/tokenizer_golden.py`), and refusals.

use std::fs;
use std::path::PathBuf;

use mae_data::preprocess::{BpeSource, PreprocessOptions, preprocess};
use mae_data::segmentation::{self, Segmentation};
use mae_data::{ParallelDataset, Tokenizer};

use crate::common::Folder;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizer").join(name)
}

fn golden_lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(golden(name)).unwrap();
    text.trim_end_matches('\n').split('\n').map(str::to_owned).collect()
}

#[test]
fn pieces_and_text_are_those_of_the_package() {
    for name in ["bytelevel", "sequence", "whitespace", "metaspace"] {
        let tokenizer = Tokenizer::load(golden(&format!("{name}.json"))).unwrap();
        let pieces: Vec<_> =
            golden_lines("lines.txt").iter().map(|line| tokenizer.segment_line(line)).collect();
        assert_eq!(pieces, golden_lines(&format!("{name}.pieces")), "{name}");
        for (pieces, text) in pieces.iter().zip(golden_lines(&format!("{name}.text"))) {
            // A blank at the start is the tokeniser's, not the text's.
            assert_eq!(tokenizer.join(pieces).trim_start(), text.trim_start(), "{name}");
        }
    }
}

#[test]
fn folders_carry_the_tokeniser() {
    let folder = Folder::new();
    folder.write("train.de", "zwei Häuser\nzwei  Mäuse!\n");
    folder.write("train.en", "two houses\ntwo mice\n");
    let options = PreprocessOptions {
        trainpref: Some(folder.prefix("train")),
        bpe: BpeSource::Tokenizer(golden("bytelevel.json")),
        ..PreprocessOptions::new("de", "en", folder.path("bin"))
    };
    preprocess(&options, |_| ()).unwrap();
    let segmentation = Segmentation::load(folder.path("bin")).unwrap().expect("a tokeniser");
    let data = ParallelDataset::open(folder.path("bin"), "train", "de", "en").unwrap();
    let line = data.src_vocab.string(&data.src.get(1));
    assert_eq!(segmentation::join(Some(&segmentation), &line), "zwei  Mäuse!");
    assert!(data.src_vocab.id("ĠMÃ¤use").is_some(), "the dictionary holds the pieces of the text");
    assert!(data.src_vocab.id("</s>").is_some_and(|id| id == 2) && data.src_vocab.id("ycl").is_none());
    Segmentation::save(Some(&segmentation), folder.path("bin")).unwrap();
    assert_eq!(folder.read("bin/tokenizer.json"), fs::read_to_string(golden("bytelevel.json")).unwrap());
    folder.write("bin/bpe.codes", "#version: 0.2\n");
    let said = Segmentation::load(folder.path("bin")).unwrap_err().to_string();
    assert!(said.contains("more than one of bpe.codes"), "{said}");
}

#[test]
fn what_is_not_supported_is_named() {
    let model = r#""model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}"#;
    let with = |more: &str| format!("{{{model}, {more}}}");
    assert!(Tokenizer::parse(&with(r#""normalizer": null"#)).is_ok());
    // Forty of these make a letter into a terabyte.
    let twice = r#"{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}"#;
    let doubling =
        format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{}]}}"#, [twice; 40].join(", "));
    for (json, words) in [
        ("nonsense".to_owned(), "not JSON"),
        ("{}".to_owned(), "no `model`"),
        (r#"{"model": {"type": "Unigram"}}"#.to_owned(), "`Unigram` is not supported"),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}"#.to_owned(), "merge 0"),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}}"#.to_owned(), "no piece \"aa\""),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 0}}}"#.to_owned(), "list is missing"),
        (with(r#""normalizer": {"type": "NFKC"}"#), "normalizer `NFKC`"),
        (with(r#""pre_tokenizer": {"type": "Split"}"#), "pre_tokenizer `Split`"),
        (with(&doubling), "times as long"),
        (with(r#""truncation": {"max_length": 3}"#), "`truncation`"),
        (
            r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}"#.to_owned(),
            "`dropout`",
        ),
        (with(r#""decoder": {"type": "WordPiece"}"#), "decoder `WordPiece`"),
        (with(r#""added_tokens": [{"content": "<x>", "special": false}]"#), "\"<x>\""),
    ] {
        let said = Tokenizer::parse(&json).unwrap_err();
        assert!(said.contains(words), "{json}: {said}");
    }
}

#[test]
fn bytes_stand_in_for_unknown_characters() {
    let json = r#"{"model": {"type": "BPE", "vocab": {"<0xC3>": 0, "<0xA4>": 1, "▁": 2, "a": 3, "▁a": 4},
        "merges": [["▁", "a"]], "byte_fallback": true},
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}"#;
    let tokenizer = Tokenizer::parse(json).unwrap();
    assert_eq!(tokenizer.segment_line("a äb a"), "▁a ▁ <0xC3> <0xA4> <unk> ▁a");
    assert_eq!(tokenizer.join("▁a ▁ <0xC3> <0xA4> ▁a"), "a ä a");
}
