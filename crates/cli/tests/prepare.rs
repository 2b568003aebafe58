//! `mae prepare` as a user runs it, and what follows it: nothing is done by hand from raw text to a score.

use std::fs;
use std::path::Path;

use crate::common::{Sandbox, gzip, lines};

fn corpus() -> Sandbox {
    let sandbox = Sandbox::new();
    let (german, english) = (["Hund", "Haus", "Tag", "Kind"], ["dog", "house", "day", "child"]);
    let pair = |i: usize| (i % 4, (i / 4) % 4, i % 7);
    let text = |words: [&str; 4], and: &str| -> Vec<String> {
        let line = |(a, b, n): (usize, usize, usize)| format!("{} {and} {}, {n}!", words[a], words[b]);
        (0..400).map(|i| line(pair(i))).collect()
    };
    sandbox.write("raw.de.gz", gzip(&lines(&text(german, "und"))));
    sandbox.write("raw.en", lines(&text(english, "and")));
    sandbox
}

const PREPARE: [&str; 6] = ["prepare", "parallel", "-s", "de", "-t", "en"];
/// A model and a run small enough for a test.
const SMALL: [&str; 12] = [
    "--recipe",
    "multi30k-base",
    "--max-epoch",
    "1",
    "--max-tokens",
    "400",
    "--threads",
    "1",
    "--set",
    "model.encoder_embed_dim=32",
    "--set",
    "model.encoder_ffn_embed_dim=48",
];

/// Trains on what was prepared, translates the test set and the raw test text, scores.
fn go_on(sandbox: &Sandbox, raw: &str) {
    sandbox.mae(&["train", "out/data-bin", "--save-dir", "run"], &SMALL).succeeded();
    let generate = ["generate", "run/checkpoint_last", "--plain", "--beam", "2", "--max-len-b", "12"];
    sandbox.mae(&generate, &["out/data-bin", "--output", "set.out"]).succeeded();
    sandbox.mae(&generate, &["--source", raw, "--tokenized", "--output", "text.out"]).succeeded();
    let read = |name: &str| fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(read("set.out"), read("text.out"), "text is cut as the set was");
    assert!(!read("set.out").contains("@@") && !read("set.out").contains('Ġ'), "{}", read("set.out"));
    assert_eq!(read("set.out").lines().count(), 30);
    let score = sandbox.mae(&["score", "--sys", "set.out", "--ref", "out/test.raw.en"], &[]);
    assert!(score.succeeded().contains("BLEU"), "{}", score.stdout);
}

#[test]
fn from_raw_text_to_a_score() {
    let sandbox = corpus();
    let flags = ["--train", "raw", "--out", "out", "--valid-size", "20", "--test-size", "30", "--bpe", "30"];
    let run = sandbox.mae(&PREPARE, &flags);
    for part in [
        "read raw.de.gz",
        "training pairs read: 400; held out: 20 for valid, 30 for test",
        "train after cleaning: 400 of 400 pairs",
        "test: 30 lines, 30 pairs written",
        "mae train out/data-bin --recipe",
    ] {
        assert!(run.succeeded().contains(part), "no `{part}` in:\n{}", run.stdout);
    }
    go_on(&sandbox, "out/tmp/test.de");
}

#[test]
fn a_model_knows_the_languages_and_rules_of_its_text() {
    let sandbox = corpus();
    let flags = ["--train", "raw", "--out", "out", "--valid-size", "20", "--test-size", "30", "--bpe", "30"];
    sandbox.mae(&PREPARE, &flags).succeeded();
    // Splits that join later do not change what is known of the others.
    let joining =
        ["preprocess", "-s", "de", "-t", "en", "--testpref", "out/test", "--destdir", "out/data-bin"];
    let dicts = ["--srcdict", "out/data-bin/dict.de.txt", "--tgtdict", "out/data-bin/dict.en.txt"];
    sandbox.mae(&joining, &[&dicts[..], &["--bpe-codes", "out/code"]].concat()).succeeded();
    let joined = fs::read_to_string(sandbox.path("out/data-bin/text.json")).unwrap();
    assert!(
        joined.contains("\"tokenize\": \"moses\"") && joined.contains("\"lowercase\": false"),
        "{joined}"
    );
    sandbox.mae(&PREPARE, &[&flags[..], &["--lowercase"]].concat()).succeeded();
    sandbox.mae(&["train", "out/data-bin", "--save-dir", "run"], &SMALL).succeeded();
    sandbox
        .mae(&["average", "--inputs", "run/checkpoint_last", "run/checkpoint_best", "--output", "mean"], &[])
        .succeeded();
    sandbox.mae(&["convert", "mean", "--system", "mae7", "--out", "gated"], &[]).succeeded();
    sandbox.mae(&["quantize", "gated", "--out", "small"], &[]).succeeded();
    let read = |name: &str| fs::read_to_string(sandbox.path(name)).unwrap();
    let known = read("out/data-bin/text.json");
    for part in ["\"source_lang\": \"de\"", "\"tokenize\": \"moses\"", "\"lowercase\": true"] {
        assert!(known.contains(part), "{known}");
    }
    for folder in ["run/checkpoint_last", "mean", "gated", "small"] {
        assert_eq!(read(&format!("{folder}/text.json")), known, "{folder}");
    }

    // The raw test set is read as the binarised one was, and comes out as plain text.
    let generate = ["generate", "run", "--beam", "2", "--max-len-b", "12"];
    let set = sandbox.mae(&generate, &["out/data-bin"]);
    let text = sandbox.mae(&generate, &["out/test.raw.de", "--target", "out/test.raw.en"]);
    assert!(set.stderr.contains("is the folder of a run: its checkpoint_best is used"), "{}", set.stderr);
    let said =
        "goes through the rules of the model's text.json: tokenised (Moses), lower case, and translations";
    assert!(text.stderr.contains(said) && !set.stderr.contains(said), "{}", text.stderr);
    let bleu =
        |run: &str| run.lines().find_map(|line| line.split_once("BLEU4").map(|(_, score)| score.to_owned()));
    assert_eq!(bleu(&set.stderr), bleu(&text.stderr), "scores are those of tokens");
    assert_eq!(set.succeeded(), text.succeeded());
    let piped = sandbox.mae_reading(&read("out/test.raw.de"), &["interactive", "run"], &generate[2..]);
    let texts = |out: &str, tag: &str| -> Vec<String> {
        let lines = out.lines().filter(|line| line.starts_with(tag));
        lines.map(|line| line.rsplit('\t').next().unwrap().to_owned()).collect()
    };
    for tag in ["S-", "H-", "D-"] {
        assert_eq!(texts(piped.succeeded(), tag), texts(&set.stdout, tag));
    }

    assert!(texts(&set.stdout, "S-").contains(&"haus und haus , 4 !".to_owned()));
    assert_ne!(texts(&set.stdout, "H-"), texts(&set.stdout, "D-"));
    let plain = sandbox.mae(&generate, &["out/test.raw.de", "--plain"]);
    assert_eq!(plain.succeeded(), lines(&texts(&set.stdout, "D-")));

    // Tokens go in and come out; a folder of version 0.1 takes text as it is.
    let tokens = sandbox.mae(&generate, &["out/tmp/test.de", "--tokenized", "--plain"]);
    assert_eq!(tokens.succeeded(), lines(&texts(&set.stdout, "H-")));
    fs::remove_file(sandbox.path("run/checkpoint_best/text.json")).unwrap();
    let old = sandbox.mae(&generate, &["out/tmp/test.de", "--plain"]);
    assert_eq!(old.succeeded(), tokens.stdout);
    assert!(!old.stderr.contains("text.json"), "{}", old.stderr);
    sandbox.write("run/checkpoint_best/text.json", "{\"format\": 1, \"source_lang\": \"de\"}");
    let broken = sandbox.mae(&generate, &["out/tmp/test.de"]);
    assert!(broken.failed().contains("text.json: missing field `target_lang`"), "{}", broken.stderr);
}

#[test]
fn from_raw_text_with_a_tokenizer_json_or_a_sentencepiece_model() {
    for (flag, fixture, name) in [
        ("--tokenizer", "tokenizer/bytelevel.json", "tokenizer.json"),
        ("--spm", "sentencepiece/unigram.model", "sentencepiece.model"),
    ] {
        let sandbox = corpus();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let flags = ["--source", "raw.de.gz", "--target", "raw.en", "--out", "out", "--valid-size", "20"];
        let more = ["--test-size", "30", flag, model.to_str().unwrap(), "--json"];
        let run = sandbox.mae(&PREPARE, &[flags.as_slice(), &more].concat());
        let report: serde_json::Value = serde_json::from_str(run.succeeded()).expect("one JSON object");
        assert_eq!(report["held_out_test"], 30);
        assert!(sandbox.path("out/data-bin").join(name).exists());
        go_on(&sandbox, "out/test.raw.de");
    }
}

#[test]
fn separate_codes_and_dropout_reach_the_folder() {
    let sandbox = corpus();
    let flags = ["-s", "de", "-t", "en", "--trainpref", "raw", "--validpref", "raw", "--bpe", "20"];
    let preprocess = |more: &[&str]| sandbox.mae(&["preprocess"], &[flags.as_slice(), more].concat());
    preprocess(&["--separate-bpe", "--bpe-dropout", "0.3", "--destdir", "one", "--threads", "1"]).succeeded();
    preprocess(&["--separate-bpe", "--bpe-dropout", "0.3", "--destdir", "two", "--threads", "3"]).succeeded();
    preprocess(&["--separate-bpe", "--destdir", "plain"]).succeeded();
    let read = |dir: &str, file: &str| fs::read(sandbox.path(&format!("{dir}/{file}"))).unwrap();
    for file in ["bpe.src.codes", "bpe.tgt.codes", "dict.de.txt", "train.de-en.de.bin", "valid.de-en.en.bin"]
    {
        assert!(read("one", file) == read("two", file), "{file}");
    }
    assert!(read("one", "train.de-en.de.bin").len() > read("plain", "train.de-en.de.bin").len());
    assert_eq!(read("one", "valid.de-en.de.bin").len(), read("plain", "valid.de-en.de.bin").len());
    let codes =
        ["--bpe-codes", "one/bpe.src.codes", "--target-bpe-codes", "one/bpe.tgt.codes", "--destdir", "three"];
    sandbox.mae(&["preprocess"], &[&flags[..8], &codes].concat()).succeeded();
    assert!(read("three", "train.de-en.de.bin") == read("plain", "train.de-en.de.bin"));
    let run = sandbox.mae(&["preprocess"], &[&flags[..8], &["--bpe-dropout", "0.1"]].concat());
    assert!(run.failed().contains("--bpe-codes"), "{}", run.stderr);
}

#[test]
fn dropout_cuts_the_training_split_alone() {
    let sandbox = corpus();
    let flags = ["--train", "raw", "--valid-size", "20", "--test-size", "30", "--bpe", "30", "--out"];
    let prepare = |more: &[&str]| sandbox.mae(&PREPARE, &[&flags[..], more].concat());
    prepare(&["one", "--bpe-dropout", "0.3", "--threads", "1"]).succeeded();
    prepare(&["two", "--bpe-dropout", "0.3", "--threads", "3"]).succeeded();
    prepare(&["other", "--bpe-dropout", "0.3", "--seed", "2"]).succeeded();
    prepare(&["plain"]).succeeded();
    let read = |name: &str| fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(read("one/train.de"), read("two/train.de"));
    assert!(read("one/train.de") != read("other/train.de"));
    assert!(read("one/train.de").len() > read("plain/train.de").len(), "more pieces");
    assert_eq!(read("one/train.de").replace("@@ ", ""), read("plain/tmp/train.de"), "of the same words");
    for name in ["valid.de", "test.en", "code"] {
        assert_eq!(read(&format!("one/{name}")), read(&format!("plain/{name}")));
    }
    let run = prepare(&["three", "--bpe-dropout", "1.5"]);
    assert!(run.failed().contains("from 0 to 1"), "{}", run.stderr);
}

#[test]
fn splits_of_an_earlier_run_do_not_stay_beside_new_dictionaries() {
    let sandbox = corpus();
    let prepare = |more: &[&str]| {
        let args = [&["--train", "raw", "--out", "o", "--valid-size", "9"], more].concat();
        sandbox.mae(&PREPARE, &args)
    };
    let first = prepare(&["--test-size", "9", "--bpe", "40"]);
    first.succeeded();
    let test = sandbox.path("o/data-bin/test.de-en.de.idx");
    assert!(test.exists() && !first.stderr.contains("removed"), "{}", first.stderr);
    let second = prepare(&["--test-size", "0", "--bpe", "20"]);
    second.succeeded();
    assert!(!test.exists() && second.stderr.contains("data-bin/test.de-en.de.idx"), "{}", second.stderr);
    assert!(sandbox.path("o/data-bin/valid.de-en.de.idx").exists());
}

#[test]
fn corpora_that_cannot_be_prepared_are_refused() {
    let sandbox = corpus();
    sandbox.write("bad.en", b"g\xffod\n");
    sandbox.write("odd.json", "{}");
    std::fs::create_dir(sandbox.path("mine")).unwrap();
    sandbox.write("mine/train.de", "mein text\n");
    for (args, words) in [
        (vec!["--train", "elsewhere", "--out", "o"], "elsewhere.de.gz"),
        (vec!["--out", "o"], "--train PREFIX"),
        (vec!["--train", "raw", "--out", "."], "lies in the folder --out"),
        (
            vec![
                "--source",
                "raw.en",
                "--target",
                "bad.en",
                "--out",
                "o",
                "--valid-size",
                "0",
                "--test-size",
                "0",
            ],
            "--replace-bad-utf8",
        ),
        (vec!["--train", "raw", "--out", "o"], "cannot be held out of 400"),
        (
            vec![
                "--train",
                "raw",
                "--out",
                "o",
                "--valid-size",
                "1",
                "--test-size",
                "1",
                "--tokenizer",
                "odd.json",
            ],
            "odd.json: not a tokenizer.json",
        ),
        (
            vec!["--train", "raw", "--out", "mine", "--valid-size", "1", "--test-size", "1"],
            "mine/train.de would be replaced, and its folder was not made by an earlier run",
        ),
    ] {
        let run = sandbox.mae(&PREPARE, &args);
        assert!(run.failed().contains(words), "{args:?}: {}", run.stderr);
    }
    assert_eq!(std::fs::read(sandbox.path("mine/train.de")).unwrap(), b"mein text\n");
    let run = sandbox.mae(
        &["prepare", "parallel", "-s", "xx", "-t", "en", "--source", "raw.en", "--target", "raw.en"],
        &["--out", "o"],
    );
    assert!(run.failed().contains("`xx`") && run.stderr.contains("--tokenize none"), "{}", run.stderr);
    let run =
        sandbox.mae(&["prepare", "iwslt14", "-s", "de", "-t", "en", "--archive", ".", "--out", "o"], &[]);
    assert!(run.failed().contains("train.tags.de-en.de"), "{}", run.stderr);
}
