//! `mae reproduce` as users run it: whole studies, interrupted ones, several processes, mistakes.

mod fit;
mod language;
mod sittings;

use std::path::Path;

use serde_json::Value;

use crate::common::Sandbox;
use crate::common::page::data_of;
use crate::common::study::{STUDY, place};

/// `mae reproduce tiny.toml --data bin --out OUT …` on the CPU.
fn args<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let all = ["reproduce", "tiny.toml", "--data", "bin", "--out", out, "--device", "cpu", "--threads", "1"];
    [&all[..], more].concat()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What the page of the study in `out` shows.
fn page_data(place: &Sandbox) -> Value {
    data_of(&std::fs::read_to_string(place.path("out/study.html")).unwrap())
}

#[test]
fn a_study_from_training_to_significance() {
    let place = place();
    let told = place.mae(&args("out", &[]), &[]);
    let table = told.succeeded();
    for part in [
        "A tiny study",
        "31.5",
        "+1.5",
        "− base",
        "±",
        "bits per token",
        "not the paper's",
        "Paper: no table",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(told.stderr.contains("run 4 of 4: mae7-2"), "{}", told.stderr);
    // All the seeds of a system agree with its row, and scores with `mae score`.
    let study = json(&place.path("out/study.json"));
    assert!(study["command"].as_str().unwrap().starts_with("mae reproduce tiny.toml --data bin"), "{study}");
    let runs = study["runs"].as_array().unwrap();
    let names: Vec<String> = runs.iter().map(|run| format!("{}-{}", run["system"], run["seed"])).collect();
    assert_eq!(names, ["\"base\"-1", "\"base\"-2", "\"mae7\"-1", "\"mae7\"-2"]);
    let bleu = |run: &Value| run["translation"]["bleu"].as_f64().unwrap();
    let row = &study["comparison"]["rows"][1];
    let near = |a: &Value, b: f64| assert!((a.as_f64().unwrap() - b).abs() < 1e-9, "{a} {b}");
    near(&row["bleu"]["mean"], (bleu(&runs[2]) + bleu(&runs[3])) / 2.0);
    near(
        &row["difference"]["mean"],
        (bleu(&runs[2]) + bleu(&runs[3]) - bleu(&runs[0]) - bleu(&runs[1])) / 2.0,
    );
    let score = |flags: &[&str]| -> Value {
        serde_json::from_str(place.mae(&["score", "--json"], flags).succeeded()).unwrap()
    };
    let sacre = score(&["--sys", "out/mae7-2/hypotheses.txt", "--ref", "test.raw.en"]);
    near(&sacre["score"], bleu(&runs[3]));
    let multi = score(&["--sys", "out/mae7-2/hypotheses.tok", "--ref", "test.en", "--multi-bleu"]);
    near(&multi["score"], runs[3]["translation"]["bleu_tokenised"].as_f64().unwrap());
    assert!(bleu(&runs[3]) > 20.0, "the model has learned nothing: {}", bleu(&runs[3]));
    let paired = place.mae(
        &["score", "--paired-bs", "--json", "--ref", "test.raw.en"],
        &["--sys", "out/base-1/hypotheses.txt", "--sys", "out/mae7-1/hypotheses.txt"],
    );
    assert!(paired.succeeded().contains(&row["p_values"]["1"].to_string()), "{} {row}", paired.stdout);
    assert!(row["p_value"].as_f64().is_some());
    // The page shows the same, with a dot for each run and the paper's numbers, and a curve for each.
    let page = page_data(&place);
    assert_eq!((&page["title"], &page["lead"][1]), (&study["study"]["title"], &study["study"]["caveat"]));
    let cells: Vec<&str> =
        page["tables"][0]["rows"][1].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(cells.len() == 8 && cells.iter().all(|cell| table.contains(cell)), "{cells:?} {table}");
    let figure = page["svg"].as_str().unwrap();
    for run in runs {
        let dot = format!("{} seed {}: {:.2}", run["system"].as_str().unwrap(), run["seed"], bleu(run));
        assert!(figure.contains(&dot), "{dot}: {figure}");
    }
    assert!(figure.contains("the paper's number") && figure.contains("BLEU, test set"), "{figure}");
    let charts = page["charts"].as_array().unwrap();
    let loss = charts.iter().find(|chart| chart["against"] == "epochs").unwrap();
    let names: Vec<&Value> = loss["series"].as_array().unwrap().iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["base-1", "base-2", "mae7-1", "mae7-2"]);
    assert!(
        loss["series"].as_array().unwrap().iter().all(|line| line["points"].as_array().unwrap().len() == 12)
    );
    let legends: Vec<_> =
        loss["series"].as_array().unwrap().iter().map(|line| line["legend"].as_str()).collect();
    assert_eq!(legends, [Some("base"), None, Some("mae7"), None], "one entry per system");
    // What a run leaves, and what it tells.
    let result = &runs[2];
    assert_eq!(result["model"], "mean of 2 checkpoints, epochs 11 to 12");
    assert_eq!(result["translation"]["one_expert"]["random"].as_array().unwrap().len(), 2);
    assert!(result["gates"]["encoder"].as_f64().unwrap() > 0.0 && runs[0]["gates"].is_null());
    assert!(result["parameters"].as_u64() > runs[0]["parameters"].as_u64());
    assert_eq!(result["config"]["train.seed"], "1");
    assert!(place.path("out/mae7-1/average/model.safetensors").exists());
    for gone in ["checkpoint_last", "checkpoint_best", "checkpoint12"] {
        assert!(!place.path("out/mae7-1").join(gone).exists(), "{gone}");
    }
    // Done is done, even where models are gone; --table needs no data.
    std::fs::remove_dir_all(place.path("out/mae7-1/average")).unwrap();
    let again = place.mae(&args("out", &["--max-epoch", "13"]), &[]);
    assert_eq!(again.succeeded(), table);
    assert!(again.stderr.contains("train.max_epoch = 12 (now 13)"), "{}", again.stderr);
    let only = ["reproduce", "tiny.toml", "--out", "out", "--table"];
    assert_eq!(place.mae(&only, &[]).succeeded(), table);
    let shown: Value = serde_json::from_str(place.mae(&only, &["--json"]).succeeded()).unwrap();
    assert_eq!(shown["runs"], study["runs"]);
    fit::results_that_do_not_fit(&place, &only);
}

#[test]
fn wrong_studies_are_refused_before_training() {
    let place = place();
    let listed = place.mae(&["reproduce", "--list"], &[]);
    for name in ["iwslt14", "wmt14", "wikitext103", "europarl160k", "wiki", "decoder-gates"] {
        assert!(listed.succeeded().contains(name), "{name}");
    }
    let refused = |study: &str, more: &[&str], parts: &[&str]| {
        place.write("tiny.toml", study);
        let told = place.mae(&args("out", more), &[]);
        let said = told.failed();
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!place.path("out/base-1/log.jsonl").exists(), "nothing is trained before all is checked");
    };
    refused(&STUDY.replace("seeds =", "seds ="), &[], &["tiny.toml", "seds", "line", "seeds"]);
    refused(&STUDY.replace("beam = 2", "beams = 2"), &[], &["beams", "`beam`"]);
    refused(&STUDY.replace("lr = 1e-2", "rl = 1e-2"), &[], &["system base", "train.rl", "did you mean `lr`"]);
    refused(&STUDY.replace("multi30k-mae7", "multi30k-mae9"), &[], &["system mae7", "multi30k-mae9"]);
    refused(&STUDY.replace("\"mae7\"", "\"base\""), &[], &["two systems are called `base`"]);
    refused(&STUDY.replace("\"mae7\"", "\"../x\""), &[], &["`../x`", "letters"]);
    refused(&STUDY.replace("max_epoch = 12", ""), &[], &["max_epoch or max_update"]);
    refused(&STUDY.replace("[translation]", "[language_model]"), &[], &["beam"]);
    refused(
        &STUDY.replace("test.raw.en", "nowhere.en"),
        &[],
        &["nowhere.en", "--reference", "--tokenised-only"],
    );
    refused(&STUDY.replace("test.raw.en", "train.en"), &[], &["has 200 lines", "has 25 sentences"]);
    // The other direction, and the source side as references.
    refused(&STUDY.replace("\"en\"", "\"de\""), &[], &["scores de", "de into en", "--tokenised-only"]);
    refused(&STUDY.replace("raw.en", "raw.de"), &[], &["test.raw.de is the source side", "--reference FILE"]);
    refused(STUDY, &["--only", "mae9"], &["mae9", "did you mean `mae7`", "base, mae7"]);
    refused(STUDY, &["--set", "train.speed=9"], &["train.speed"]);
    refused(STUDY, &["--set", "train.seed=9"], &["--set", "train.seed", "--seeds"]);
    refused(STUDY, &["--set", "train.max_epoch=9"], &["train.max_epoch", "--max-epoch"]);
    refused(&STUDY.replace("lr = 1e-2", "seed = 3"), &[], &["train.seed", "`seeds`"]);
    refused(&STUDY.replace("[1, 2]", "[1, 2, 1]"), &[], &["`seeds` has 1 twice"]);
    refused(STUDY, &["--stop-after", "0"], &["--stop-after"]);
    let unknown = place.mae(&["reproduce", "iwslt15", "--data", "bin", "--out", "out"], &[]);
    assert!(unknown.failed().contains("did you mean `iwslt14`"), "{}", unknown.stderr);
    let lm = place.mae(&["reproduce", "wiki", "--data", "bin", "--out", "lm", "--device", "cpu"], &[]);
    assert_eq!(lm.failed().matches("parallel text").count(), 1, "{}", lm.stderr);
    let text = ["--trainpref", "train.de", "--validpref", "valid.de", "--destdir", "text"];
    place.mae(&["preprocess", "--only-source"], &text).succeeded();
    let pairs = place.mae(&["reproduce", "iwslt14", "--data", "text", "--out", "lm", "--device", "cpu"], &[]);
    assert!(pairs.failed().contains("holds one text, for language models"), "{}", pairs.stderr);
    assert!(!place.path("lm").exists());
    // A folder holds one test set.
    place.write("tiny.toml", STUDY);
    place.mae(&args("out", &["--seeds", "1", "--only", "base", "--max-epoch", "1"]), &[]).succeeded();
    place.write("other.en", std::fs::read_to_string(place.path("test.raw.en")).unwrap().to_uppercase());
    let other = place.mae(&args("out", &["--reference", "other.en"]), &[]);
    assert!(other.failed().contains("choose another --out"), "{}", other.stderr);
}

/// Every measurement of gates, on a corpus that the program makes; few updates, for a model that need not learn anything.
const CORPUS: &str = r#"
title = "Two tasks"
corpus = "two-tasks"
seeds = [1]
max_update = 3
keys.train.max_tokens = 300

[translation]
split = "valid"
beam = 1
draws = 0
exact_match = true
uniform_gates = true
tags = "task"
oracle = 4

[[system]]
name = "mae7"
recipe = "two-tasks-mae7"
"#;

#[test]
fn a_corpus_of_the_program_needs_no_data() {
    let place = place();
    place.write("corpus.toml", CORPUS);
    let run = ["reproduce", "corpus.toml", "--out", "out", "--device", "cpu", "--threads", "1"];
    let tables = place.mae(&run, &[]);
    for part in ["exact match, %", "largest I(tag; expert)", "uniform gates", "oracle, bits", "alpha"] {
        assert!(tables.succeeded().contains(part), "{part}: {}", tables.stdout);
    }
    let run = json(&place.path("out/mae7-1/result.json"));
    let gates = &run["gates"];
    assert_eq!((&gates["updates"], gates["attentions"].as_array().unwrap().len()), (&3.into(), 3));
    assert!(gates["gradient_norm"].as_f64().unwrap() > 0.0 && gates["tag_entropy"].as_f64().unwrap() > 0.69);
    assert!(gates["attentions"][0]["untrained_tag_information"].is_f64(), "{gates}");
    assert!(run["dev"]["uniform_loss"].is_f64() && run["oracle"]["chosen"].is_f64(), "{run}");
    assert!(run["translation"]["by_tag"]["beta"].is_f64() && run["translation"]["exact_match"].is_f64());
    let data = place.mae(&["reproduce", "iwslt14", "--out", "out", "--device", "cpu"], &[]);
    assert!(data.stderr.contains("--data is needed"), "{}", data.stderr);
}
