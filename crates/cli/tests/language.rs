//! Language models from a text to perplexity and continuations, by the program; and what users get wrong.

use serde_json::Value;

use crate::common::Sandbox;
use crate::common::lm::{json, text, trained};

#[test]
fn the_command_that_preprocess_suggests_trains() {
    let place = Sandbox::new();
    place.write("train.txt", text(80, 0));
    let made =
        place.mae(&["preprocess", "--only-source", "--trainpref", "train.txt", "--destdir", "bin"], &[]);
    let command = made.succeeded().split('`').nth(1).expect("a command").to_owned();
    assert!(command.contains("--adaptive-softmax-cutoff"), "{command}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let kept = place.mae(&words, &["--dry-run"]);
    assert!(kept.succeeded().contains("arch = \"transformer_lm"), "{kept:?}");
    // Without a recipe the data tell the task.
    let by_data = place.mae(&["train", "bin", "--adaptive-softmax-cutoff", "2,8"], &["--dry-run"]);
    assert!(by_data.succeeded().contains("adaptive_softmax_cutoff = [2, 8]"), "{by_data:?}");
}

#[test]
fn from_a_text_to_perplexity_and_continuations() {
    let place = trained();
    let log = std::fs::read_to_string(place.path("run/log.jsonl")).unwrap();
    let valid: Vec<f64> =
        json(&log).iter().filter(|e| e["event"] == "valid").map(|e| e["ppl"].as_f64().unwrap()).collect();
    assert!(valid[valid.len() - 1] < valid[0], "{valid:?}");

    let eval =
        ["eval-lm", "run/checkpoint_best", "--data", "bin", "--tokens-per-sample", "16", "--device", "cpu"];
    let window = ["--context-window", "12", "--log-probs", "tokens.jsonl", "--json"];
    let report = &json(place.mae(&eval, &window).succeeded())[0];
    let lines = json(&std::fs::read_to_string(place.path("tokens.jsonl")).unwrap());
    let of_line = |line: &Value| -> Vec<f64> {
        line["logprobs"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect()
    };
    let log_probs: Vec<f64> = lines.iter().flat_map(of_line).collect();
    assert_eq!((lines.len(), log_probs.len() as u64), (9, report["tokens"].as_u64().unwrap()));
    let mean = -log_probs.iter().sum::<f64>() / log_probs.len() as f64;
    let near = |key: &str, want: f64| {
        let got = report[key].as_f64().unwrap();
        assert!((got - want).abs() < 1e-4 * want, "{key}: {got} for {want}");
    };
    near("ppl_per_token", mean.exp());
    near("bits_per_token", mean / 2f64.ln());
    let bytes = text(9, 100).len() as f64;
    near("bytes", bytes);
    near("bits_per_byte", -log_probs.iter().sum::<f64>() / 2f64.ln() / bytes);
    let said = place.mae(&eval, &["--expert", "argmax"]);
    let said = said.succeeded();
    for part in ["bits/token", "perplexity per word", "bits/byte", "blocks of 16 with 0", "expert argmax"] {
        assert!(said.contains(part), "{said}");
    }

    // The same text, as it is.
    let of_split: Value = json(place.mae(&eval, &["--json"]).succeeded()).remove(0);
    let plain = [
        "eval-lm",
        "run/checkpoint_best",
        "--tokens-per-sample",
        "16",
        "--device",
        "cpu",
        "--json",
        "--text",
    ];
    let of_text: Value = json(place.mae(&plain, &["test.txt"]).succeeded()).remove(0);
    assert_eq!((&of_text["text"], &of_text["split"]), (&"test.txt".into(), &Value::Null));
    assert_eq!(
        (&of_text["tokens"], &of_text["ppl_per_word"]),
        (&of_split["tokens"], &of_split["ppl_per_word"])
    );
    // An unknown word counts with its own letters.
    let strange =
        place.mae_reading("ein Donaudampfschiff\n", &plain, &["-", "--expert", "random", "--seed", "7"]);
    let strange = &json(strange.succeeded())[0];
    assert_eq!((&strange["unknown"], &strange["bytes"]), (&1.into(), &21.into()), "{strange}");
    assert_eq!((&strange["expert"], &strange["seed"]), (&"random".into(), &7.into()), "{strange}");
    let piped = place.mae_reading(&text(9, 100), &plain, &["-"]);
    assert_eq!(json(piped.succeeded())[0]["ppl_per_word"], of_text["ppl_per_word"]);

    let go_on =
        ["continue", "run/checkpoint_best", "--prompt", "ein zwei", "--max-len", "6", "--device", "cpu"];
    let greedy = place.mae(&go_on, &[]).succeeded().to_owned();
    assert!(greedy.starts_with("ein zwei") && greedy.lines().count() == 1, "{greedy}");
    assert_eq!(greedy, place.mae(&go_on, &[]).succeeded());
    let draw = ["--sampling", "--sampling-topk", "5", "--nbest", "3", "--json"];
    let drawn = place.mae(&go_on, &draw).succeeded().to_owned();
    assert_eq!(drawn, place.mae(&go_on, &draw).succeeded());
    assert_eq!(json(&drawn).len(), 3);
    let piped = place.mae_reading(
        "ein\n\ndrei vier\n",
        &["continue", "run/checkpoint_best", "--source", "-", "--max-len", "6"],
        &[],
    );
    assert_eq!(piped.succeeded().lines().count(), 3);
    // 20 of 24 positions: the continuation is shorter, or the end of the prompt is read; all of it is printed.
    let long = ["ein"; 20].join(" ");
    let short = place.mae(&["continue", "run/checkpoint_best", "--json", "--prompt", &long], &[]);
    let found = &json(short.succeeded())[0];
    assert!(found["tokens"].as_array().unwrap().len() <= 4, "{found}");
    assert!(found["text"].as_str().unwrap().starts_with(&long), "{found}");
    assert!(short.stderr.contains("fewer than 50 new tokens"), "{}", short.stderr);
    let cut = place.mae(&go_on[..2], &["--json", "--max-len", "6", "--prompt", &long]);
    assert!(json(cut.succeeded())[0]["text"].as_str().unwrap().starts_with(&long), "{}", cut.stdout);
    assert!(cut.stderr.contains("the last 18 tokens are read"), "{}", cut.stderr);

    let average = ["average", "run", "--num-epoch-checkpoints", "2", "--output", "mean"];
    place.mae(&average, &[]).succeeded();
    place.mae(&["eval-lm", "mean", "--data", "bin", "--split", "valid,test"], &[]).succeeded();
}

#[test]
fn models_and_data_of_the_other_kind_are_refused() {
    let place = trained();
    place.write("de.de", text(20, 0));
    place.write("de.en", text(20, 3));
    place
        .mae(&["preprocess", "-s", "de", "-t", "en", "--trainpref", "de", "--destdir", "pairs"], &[])
        .succeeded();
    let tiny = [
        "--recipe",
        "multi30k-base",
        "--max-update",
        "1",
        "--save-dir",
        "mt",
        "--set",
        "model.encoder_embed_dim=16",
    ];
    place.mae(&["train", "pairs", "--device", "cpu"], &tiny).succeeded();
    let model = "run/checkpoint_last";
    // The folder of a run stands for its best model, and this is told.
    let whole = place.mae(&["eval-lm", "run", "--data", "bin"], &[]);
    whole.succeeded();
    assert!(
        whole.stderr.contains("run is the folder of a run: its checkpoint_best is used"),
        "{}",
        whole.stderr
    );
    for (args, parts) in [
        (
            &["eval-lm", "mt/checkpoint_last", "--data", "bin"][..],
            &["is a translation model", "mae validate"][..],
        ),
        (&["continue", "mt/checkpoint_last", "--prompt", "a"], &["is a translation model", "mae generate"]),
        (&["generate", model, "--source", "train.txt"], &["is a language model", "mae continue"]),
        (&["validate", model, "--data", "bin"], &["is a language model", "mae eval-lm"]),
        (&["eval-lm", model, "--data", "pairs"], &["parallel text", "--only-source"]),
        (&["eval-lm", model, "--data", "bin", "--tokens-per-sample", "25"], &["24 positions"]),
        (
            &["eval-lm", model, "--data", "bin", "--context-window", "24"],
            &["context_window = 24", "--context-window"],
        ),
        (
            &["train", "bin", "--recipe", "lm.toml", "--valid-subset", "dev"],
            &["bin/dev.idx", "test, train, valid"],
        ),
        (
            &["eval-lm", model, "--data", "bin", "--split", "dev"],
            &["bin/dev.idx", "the splits of this folder are test, train, valid"],
        ),
        (&["eval-lm", model, "--text", "nowhere.txt"], &["nowhere.txt"]),
        (&["eval-lm", model, "--text", "train.txt", "--split", "test"], &["--text", "--split"]),
        (&["eval-lm", model, "--data", "bin", "--log-probs", "no/where"], &["there is no folder no"]),
        (&["analyze", model, "--data", "bin", "--html", "bin"], &["cannot write bin: it is a folder"]),
        (&["eval-lm", model], &["--data"]),
        (&["eval-lm", model, "--data", "bin", "--expert", "4"], &["4 experts"]),
        (&["eval-lm", model, "--data", "bin", "--sample-break-mode", "half"], &["none, complete and eos"]),
        (&["eval-lm", "bin", "--data", "bin"], &["bin is not a model folder", "bin/config.toml"]),
        (&["analyze", "nowhere", "--data", "bin"], &["nowhere is not a model folder"]),
        (&["continue", model, "--prompt", "a", "--max-len", "24"], &["24 positions"]),
        (&["continue", model, "--prompt", "a", "--nbest", "2"], &["--sampling"]),
        (&["continue", model, "--prompt", "a", "--sampling", "--temperature", "0"], &["--temperature 0"]),
        (&["continue", model], &["--prompt"]),
        (&["train", "pairs", "--recipe", "lm.toml"], &["parallel text (de-en)", "--only-source"]),
        (&["train", "bin", "--recipe", "multi30k-base"], &["one text", "--task language_modeling"]),
        (
            &["train", "bin", "--task", "translation", "--recipe", "lm.toml"],
            &["--task asks for a translation model"],
        ),
        (
            &["train", "bin", "--recipe", "wikitext2-mae7"],
            &["adaptive_softmax_cutoff = [4000, 12000]", "[2, 8] for example", "none, []"],
        ),
        (&["train", "bin", "--recipe", "lm.toml", "--tokens-per-sample", "30"], &["model.max_positions"]),
        (
            &["train", "bin", "--recipe", "lm.toml", "--set", "train.optimiser=nag"],
            &["did you mean `optimizer`"],
        ),
        (&["average", "--inputs", model, "mt/checkpoint_last", "--output", "x"], &["translation model"]),
        (
            &["preprocess", "--only-source", "--trainpref", "nowhere"],
            &["there is no nowhere, nowhere.gz or nowhere.zst", "--trainpref"],
        ),
        (&["preprocess", "--only-source", "-t", "en", "--trainpref", "train.txt"], &["--target-lang"]),
    ] {
        let run = place.mae(args, &[]);
        let said = run.failed();
        for part in parts {
            assert!(said.contains(part), "{args:?}: {part}: {said}");
        }
    }
}
