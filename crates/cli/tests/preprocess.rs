//! `mae preprocess` as a user runs it.

use std::fs;

use mae_data::{IndexedDataset, Vocab};

use crate::common::{Sandbox, gzip, lines};

const GERMAN: [&str; 4] = ["ein Haus", "das Haus ist alt", "", "ein altes Haus"];
const ENGLISH: [&str; 4] = ["a house", "the house is old", "nothing", "an old house"];
const PAIR: [&str; 5] = ["preprocess", "-s", "de", "-t", "en"];

fn corpus() -> Sandbox {
    let sandbox = Sandbox::new();
    for split in ["train", "valid"] {
        sandbox.write(&format!("{split}.de"), lines(&GERMAN));
        sandbox.write(&format!("{split}.en"), lines(&ENGLISH));
    }
    sandbox
}

#[test]
fn writes_what_fairseq_writes_and_reports() {
    let sandbox = corpus();
    let output = sandbox.mae(&PAIR, &["--trainpref", "train", "--validpref", "valid", "--destdir", "bin"]);
    let report = output.succeeded();
    for part in [
        "train: 4 lines, 3 pairs written, 1 (line 3) skipped",
        "valid: 4 lines, 4 pairs written",
        "train.de: 12 tokens, 0.000% replaced by <unk>; empty: 1 (line 3)",
    ] {
        assert!(report.contains(part), "no `{part}` in:\n{report}");
    }
    let vocab = Vocab::load(sandbox.path("bin/dict.de.txt")).unwrap();
    assert_eq!(vocab.id("Haus"), Some(4), "the most frequent type comes first");
    assert_eq!(vocab.len() % 8, 0);
    let train = IndexedDataset::open(sandbox.path("bin/train.de-en.de")).unwrap();
    assert_eq!(train.len(), 3);
    assert_eq!(IndexedDataset::open(sandbox.path("bin/valid.de-en.en")).unwrap().len(), 4);
    assert!(!sandbox.path("bin/bpe.codes").exists());
}

#[test]
fn texts_are_cut_by_a_sentencepiece_model() {
    let sandbox = corpus();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sentencepiece/merges.model");
    let flags = ["--trainpref", "train", "--destdir", "bin", "--spm", model];
    sandbox.mae(&PAIR, &flags).succeeded();
    assert_eq!(fs::read(sandbox.path("bin/sentencepiece.model")).unwrap(), fs::read(model).unwrap());
    let vocab = Vocab::load(sandbox.path("bin/dict.de.txt")).unwrap();
    assert!(vocab.id("▁").is_some(), "the dictionary holds pieces");
    let dropout = sandbox.mae(&PAIR, &[&flags[..], &["--bpe-dropout", "0.1"]].concat());
    assert!(dropout.failed().contains("--bpe-dropout"), "{}", dropout.stderr);
    sandbox.mae(&PAIR, &[&flags[..], &["--target-spm", model]].concat()).succeeded();
    assert!(!sandbox.path("bin/sentencepiece.model").exists());
    assert!(sandbox.path("bin/sentencepiece.tgt.model").exists());
}

/// A folder has one set of codes, so it has one data set; the same one may be made again.
#[test]
fn another_data_set_is_not_written_over() {
    let sandbox = corpus();
    let bpe = ["--trainpref", "train", "--destdir", "bin", "--bpe", "5"];
    sandbox.mae(&PAIR, &bpe).succeeded();
    let codes = || fs::read(sandbox.path("bin/bpe.codes")).unwrap();
    let before = codes();
    let text = ["preprocess", "--only-source", "--trainpref", "train.de", "--destdir"];
    for other in [
        sandbox.mae(&text, &["bin"]),
        sandbox.mae(&["preprocess", "-s", "en", "-t", "de", "--trainpref", "train", "--destdir", "bin"], &[]),
    ] {
        assert!(other.failed().contains("bin holds another data set already (de-en)"), "{}", other.stderr);
        assert!(other.stderr.contains("--destdir"), "{}", other.stderr);
        assert_eq!(codes(), before);
    }
    sandbox.mae(&PAIR, &bpe).succeeded();
    sandbox.mae(&text, &["text"]).succeeded();
    sandbox.mae(&text, &["text"]).succeeded();
    let pair = sandbox.mae(&PAIR, &["--trainpref", "train", "--destdir", "text"]);
    assert!(pair.failed().contains("already (one text)"), "{}", pair.stderr);
}

#[test]
fn json_is_one_object_and_quiet_is_silent() {
    let sandbox = corpus();
    let flags = ["--trainpref", "train", "--destdir", "bin", "--bpe", "5", "--joined-dictionary", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(sandbox.mae(&PAIR, &flags).succeeded()).expect("one JSON object");
    assert_eq!(report["bpe_merges"], 5);
    assert_eq!(report["splits"][0]["written"], 3);
    assert_eq!(report["src_vocab"], report["tgt_vocab"]);
    assert!(fs::read_to_string(sandbox.path("bin/bpe.codes")).unwrap().starts_with("#version: 0.2\n"));

    let quiet =
        sandbox.mae(&PAIR, &["--trainpref", "train", "--destdir", "bin", "--quiet", "--workers", "2"]);
    assert_eq!(quiet.succeeded(), "");
    assert_eq!(quiet.stderr, "");
}

#[test]
fn codes_and_dictionaries_of_another_run_are_used() {
    let sandbox = corpus();
    sandbox.mae(&PAIR, &["--trainpref", "train", "--destdir", "one", "--bpe", "9"]).succeeded();
    let again = ["--testpref", "valid", "--destdir", "two", "--bpe-codes", "one/bpe.codes"];
    let dicts = ["--srcdict", "one/dict.de.txt", "--tgtdict", "one/dict.en.txt"];
    sandbox.mae(&PAIR, &[again.as_slice(), &dicts].concat()).succeeded();
    for file in ["bpe.codes", "dict.de.txt"] {
        let read = |dir: &str| fs::read(sandbox.path(&format!("{dir}/{file}"))).unwrap();
        assert!(read("one") == read("two"), "{file}");
    }
    let run = sandbox.mae(&PAIR, &again);
    assert!(run.failed().contains("--srcdict, --tgtdict"), "{}", run.stderr);
}

#[test]
fn gzip_is_read_as_if_it_were_plain() {
    let sandbox = corpus();
    for (lang, text) in [("de", lines(&GERMAN)), ("en", lines(&ENGLISH))] {
        sandbox.write(&format!("packed.{lang}.gz"), gzip(&text));
    }
    sandbox.mae(&PAIR, &["--trainpref", "train", "--destdir", "plain"]).succeeded();
    let run = sandbox.mae(&PAIR, &["--trainpref", "packed", "--destdir", "gz"]);
    assert!(run.succeeded().contains("packed.de.gz: 12 tokens"), "{}", run.stdout);
    for file in ["dict.de.txt", "dict.en.txt", "train.de-en.de.bin", "train.de-en.en.idx"] {
        let read = |dir: &str| fs::read(sandbox.path(&format!("{dir}/{file}"))).unwrap();
        assert!(read("plain") == read("gz"), "{file}");
    }
}

#[test]
fn bad_utf8_is_refused_with_its_place_or_replaced() {
    let sandbox = corpus();
    sandbox.write("train.en", b"a house\nthe h\xf6use is old\nnothing\nan old house\n");
    let flags = ["--trainpref", "train", "--destdir", "bin"];
    let run = sandbox.mae(&PAIR, &flags);
    assert!(run.failed().contains("train.en, line 2: byte 6"), "{}", run.stderr);
    assert!(run.stderr.contains("--bad-utf8 replace"), "{}", run.stderr);
    assert_eq!(fs::read_dir(sandbox.path("bin")).unwrap().count(), 0, "a failed run leaves no files");

    let run = sandbox.mae(&PAIR, &[flags.as_slice(), &["--bad-utf8", "replace"]].concat());
    assert!(run.succeeded().contains("invalid UTF-8 replaced: 1 (line 2)"), "{}", run.stdout);
}

#[test]
fn policies_are_obeyed() {
    let sandbox = corpus();
    let train = ["--trainpref", "train", "--destdir", "bin"];
    let with = |flags: &[&str]| sandbox.mae(&PAIR, &[train.as_slice(), flags].concat());
    let run = with(&["--empty-train", "error"]);
    assert!(run.failed().contains("train.de, line 3: the line is empty"), "{}", run.stderr);
    assert!(run.stderr.contains("--empty-train"), "{}", run.stderr);
    let run = with(&["--empty-train", "keep"]);
    assert!(run.succeeded().contains("4 pairs written"), "{}", run.stdout);
    let run = with(&["--max-line-tokens", "3", "--long-train", "skip"]);
    assert!(run.succeeded().contains("2 pairs written, 2 (line 2, 3) skipped"), "{}", run.stdout);
    assert!(run.stdout.contains("over-long: 1 (line 2)"), "{}", run.stdout);
}

#[test]
fn sides_of_different_length_and_missing_files_are_errors() {
    let sandbox = corpus();
    sandbox.write("train.en", lines(&ENGLISH[..2]));
    let run = sandbox.mae(&PAIR, &["--trainpref", "train"]);
    assert!(run.failed().contains("train.de has 4, train.en has 2"), "{}", run.stderr);
    assert_eq!(fs::read_dir(sandbox.path("data-bin")).unwrap().count(), 0, "a failed run leaves no files");

    let run = sandbox.mae(&PAIR, &["--trainpref", "elsewhere"]);
    assert!(run.failed().contains("cannot open elsewhere.de"), "{}", run.stderr);
    assert!(run.stderr.contains("elsewhere.de.gz"), "{}", run.stderr);

    let run = sandbox.mae(&PAIR, &["--trainpref", "valid", "--destdir", "valid.de"]);
    assert_eq!(
        run.failed().matches("a file has this name").count(),
        1,
        "a cause is told once: {}",
        run.stderr
    );

    let run = sandbox.mae(&PAIR, &[]);
    assert!(run.failed().contains("--trainpref"), "{}", run.stderr);
}
