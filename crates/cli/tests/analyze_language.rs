//! `mae analyze` of language models, as users run it: numbers that other commands give as well, pages, and mistakes.

use serde_json::Value;

use crate::common::Sandbox;
use crate::common::lm::{RECIPE, json, text, trained};
use crate::common::page::{assert_self_contained, data_of};
use crate::common::place::numbers;

const MODEL: &str = "run/checkpoint_last";

fn analyze(place: &Sandbox, more: &[&str]) -> Value {
    let args = ["analyze", MODEL, "--device", "cpu", "--min-count", "1", "--json"];
    json(place.mae(&args, more).succeeded()).remove(0)
}

/// eval-lm's report, and ln p of every token.
fn eval(place: &Sandbox, more: &[&str]) -> (Value, Vec<f64>) {
    let args = ["eval-lm", MODEL, "--data", "bin", "--device", "cpu", "--json", "--log-probs", "p.jsonl"];
    let report = json(place.mae(&args, more).succeeded()).remove(0);
    let lines = json(&std::fs::read_to_string(place.path("p.jsonl")).unwrap());
    (report, lines.iter().flat_map(|line| numbers(&line["logprobs"])).collect())
}

fn near(got: &Value, want: f64) {
    let got = got.as_f64().unwrap();
    assert!((got - want).abs() <= 1e-5 * want.abs(), "{got} for {want}");
}

#[test]
fn numbers_are_those_of_other_commands() {
    let place = trained();
    let window = ["--tokens-per-sample", "16", "--context-window", "12"];
    let found = analyze(&place, &[&window[..], &["--data", "bin", "--one-expert", "--draws", "2"]].concat());
    let analysis = &found["analysis"];
    let (report, log_probs) = eval(&place, &window);
    for key in ["tokens", "words", "lines", "unknown", "ppl_per_token", "ppl_per_word", "context_window"] {
        near(&analysis["text"][key], report[key].as_f64().unwrap());
    }

    let layers = analysis["attentions"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for (layer, label) in layers.iter().zip(["layer 1", "layer 2"]) {
        assert_eq!(layer["label"], label);
        assert_eq!(layer["count"], report["tokens"], "every token once, whatever the context");
        assert!((numbers(&layer["leads"]).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let weights: f64 =
            layer["head_weights"].as_array().unwrap().iter().map(|w| w["mean"].as_f64().unwrap()).sum();
        assert!((weights - 4.0).abs() < 1e-4, "head weights sum to the heads: {weights}");
    }

    // One expert, computed a second way.
    let one = &found["one_expert"];
    assert_eq!(
        (&one["metric"], &one["mixture"]),
        (&"perplexity_per_word".into(), &analysis["text"]["ppl_per_word"])
    );
    let per_word =
        |log_probs: &[f64]| (-log_probs.iter().sum::<f64>() / report["words"].as_f64().unwrap()).exp();
    near(&one["mixture"], per_word(&log_probs));
    near(&one["argmax"], per_word(&eval(&place, &[&window[..], &["--expert", "argmax"]].concat()).1));
    for (draw, seed) in ["1", "2"].into_iter().enumerate() {
        let random = eval(&place, &[&window[..], &["--expert", "random", "--seed", seed]].concat());
        near(&one["random"][draw], per_word(&random.1));
    }
    assert_ne!(one["random"][0], one["random"][1]);

    // Passages are pieces of the text, with a gate for each token and layer.
    let stream: Vec<String> = text(9, 100)
        .lines()
        .flat_map(|line| line.split(' ').chain(["</s>"]).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for passage in analysis["examples"].as_array().unwrap() {
        let first = passage["number"].as_u64().unwrap() as usize - 1;
        let length = passage["target"].as_array().unwrap().len();
        assert_eq!(passage["target"], serde_json::json!(stream[first..first + length]));
        for (got, want) in numbers(&passage["log_probs"]).iter().zip(&log_probs[first..]) {
            assert!((got - want).abs() < 6e-4, "{got} for {want}");
        }
        for gates in passage["gates"].as_array().unwrap() {
            assert_eq!(gates.as_array().unwrap().len(), length);
        }
    }
    assert_eq!(analysis["examples"][0]["number"], 1);
}

#[test]
fn entropy_is_that_of_validation() {
    let place = trained();
    let log = json(&std::fs::read_to_string(place.path("run/log.jsonl")).unwrap());
    let valid = log.iter().rev().find(|event| event["event"] == "valid").unwrap();
    let found = analyze(&place, &["--data", "bin", "--split", "valid", "--tokens-per-sample", "16"]);
    near(&found["analysis"]["entropy"]["all"], valid["gate_entropy"].as_f64().unwrap());
    near(&found["analysis"]["text"]["ppl_per_token"], valid["ppl"].as_f64().unwrap());
}

#[test]
fn tables_and_page_tell_the_same() {
    let place = trained();
    let args = ["analyze", MODEL, "--data", "bin", "--device", "cpu", "--min-count", "1"];
    let more = ["--tokens-per-sample", "16", "--one-expert", "--draws", "2"];
    let said = place.mae(&args, &[&more[..], &["--html", "page.html"]].concat());
    let said = said.succeeded();
    for part in [
        "blocks of 16 with 0 tokens of context",
        "perplexity per token",
        "ln 4 = 1.386",
        "layer 1",
        "mean all",
        "positions",
        "head weights",
        "random, 2 draws",
        "per block",
    ] {
        assert!(said.contains(part), "`{part}` is not in {said}");
    }
    assert!(!said.contains("sentence") && !said.contains("mean decoder"), "{said}");
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert_self_contained(&page);
    let printed = place.mae(&args, &[&more[..], &["--json"]].concat());
    assert_eq!(data_of(&page), json(printed.succeeded())[0], "the page holds what --json prints");
}

/// Pieces are joined to words, and a text gives what its binarised folder gives.
#[test]
fn words_are_whole_and_texts_are_read_as_they_are() {
    let place = Sandbox::new();
    place.write("train.txt", text(80, 0));
    place.write("test.txt", text(9, 100) + "nie gehört\n");
    place.write("lm.toml", RECIPE);
    let texts = ["--trainpref", "train.txt", "--validpref", "test.txt", "--testpref", "test.txt"];
    let to = ["preprocess", "--only-source", "--bpe", "3", "--destdir", "bin"];
    place.mae(&to, &texts).succeeded();
    let train = ["train", "bin", "--recipe", "lm.toml", "--save-dir", "run", "--device", "cpu"];
    place.mae(&train, &["--max-update", "8"]).succeeded();

    // Blocks of five tokens end in the middle of words.
    let blocks = ["--tokens-per-sample", "5", "--top-words", "99"];
    let binarised = analyze(&place, &[&blocks[..], &["--data", "bin"]].concat());
    let as_it_is = analyze(&place, &[&blocks[..], &["--text", "test.txt"]].concat());
    assert_eq!(binarised["analysis"], as_it_is["analysis"]);
    assert_eq!((&as_it_is["data"], &as_it_is["split"]), (&"test.txt".into(), &Value::Null));
    let analysis = &binarised["analysis"];
    let counts = &analysis["text"];
    assert!(counts["tokens"].as_u64() > counts["words"].as_u64(), "words have several pieces: {counts}");
    let real = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben"];
    for layer in analysis["attentions"].as_array().unwrap() {
        for word in layer["words"].as_array().unwrap().iter().flat_map(|words| words.as_array().unwrap()) {
            let spelled = word["word"].as_str().unwrap();
            if real.contains(&spelled) {
                let times = text(9, 100).split_whitespace().filter(|&other| other == spelled).count();
                assert_eq!(word["count"], times, "{word}");
            } else {
                assert!(
                    spelled.contains("<unk>") || !real.iter().any(|word| word.contains(spelled)),
                    "{word}"
                );
            }
        }
    }
    let piped = place.mae_reading(
        &text(2, 3),
        &["analyze", MODEL, "--text", "-", "--device", "cpu", "--sentences", "0", "--json"],
        &[],
    );
    assert_eq!(json(piped.succeeded())[0]["analysis"]["text"]["lines"], 2);
    place.write("odd.txt", b"ein zwei\nein \xff zwei\n");
    let odd = place.mae(&["analyze", MODEL, "--text", "odd.txt", "--device", "cpu", "--json"], &[]);
    assert_eq!(json(odd.succeeded())[0]["analysis"]["text"]["lines"], 2);
    assert!(odd.stderr.contains("odd.txt") && odd.stderr.contains("UTF-8"), "{}", odd.stderr);
}

#[test]
fn systems_without_gates_have_random_experts_only() {
    let place = Sandbox::new();
    place.write("train.txt", text(80, 0));
    place.write("lm.toml", RECIPE);
    let texts = ["--trainpref", "train.txt", "--validpref", "train.txt"];
    place.mae(&["preprocess", "--only-source", "--destdir", "bin"], &texts).succeeded();
    for system in ["uni-mae3", "base"] {
        let train = ["train", "bin", "--recipe", "lm.toml", "--device", "cpu", "--max-update", "2"];
        place.mae(&train, &["--system", system, "--save-dir", system]).succeeded();
    }
    let args = ["--data", "bin", "--split", "valid", "--device", "cpu", "--one-expert", "--draws", "1"];
    let said = place.mae(&["analyze", "uni-mae3/checkpoint_last", "--html", "page.html"], &args);
    let said = said.succeeded();
    for part in ["no gates: all experts weigh alike", "random, 1 draws", "perplexity per token"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("favourite"), "{said}");
    assert_self_contained(&std::fs::read_to_string(place.path("page.html")).unwrap());
    let refused = place.mae(&["analyze", "base/checkpoint_last"], &args);
    assert!(refused.failed().contains("has no experts"), "{}", refused.stderr);
}

#[test]
fn analyses_that_a_language_model_cannot_give_are_refused() {
    let place = trained();
    place.write("empty.txt", "");
    for (args, parts) in [
        (&["--data", "bin", "--beam", "3", "--one-expert"][..], &["is a language model", "--beam"][..]),
        (&["--data", "bin", "-s", "de", "-t", "en"], &["is a language model", "languages"]),
        (&["--data", "bin", "--tokens-per-sample", "25"], &["24 positions"]),
        (&["--data", "bin", "--context-window", "24"], &["context_window = 24", "--context-window"]),
        (&["--data", "bin", "--max-tokens", "0"], &["--max-tokens"]),
        (&["--data", "bin", "--split", "dev"], &["dev.idx"]),
        (&["--text", "empty.txt"], &["empty.txt is empty"]),
        (&["--text", "nowhere.txt"], &["nowhere.txt"]),
        (&["--text", "empty.txt", "--split", "test"], &["--split"]),
        (&[], &["--data"]),
    ] {
        let run = place.mae(&["analyze", MODEL, "--device", "cpu"], args);
        let said = run.failed();
        for part in parts {
            assert!(said.contains(part), "{args:?}: {part}: {said}");
        }
    }
}
