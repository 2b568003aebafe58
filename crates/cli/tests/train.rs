//! `mae train` and `mae quickstart` as users run them: trained, killed, resumed, misused.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Sandbox, lines};

/// A prepared corpus of short sentences in which every word has its translation.
fn corpus() -> Sandbox {
    let sandbox = Sandbox::new();
    let words = ["eins", "zwei", "drei", "vier", "fünf", "sechs"];
    let sentence = |i: usize, shift: usize| {
        let picked = (0..2 + i % 4).map(|j| words[(i * 5 + j * (1 + i % 3) + shift) % 6]);
        picked.collect::<Vec<_>>().join(" ")
    };
    for (split, from, to) in [("train", 0, 300), ("valid", 300, 320)] {
        for (lang, shift) in [("de", 0), ("en", 1)] {
            let text: Vec<String> = (from..to).map(|i| sentence(i, shift)).collect();
            sandbox.write(&format!("{split}.{lang}"), lines(&text));
        }
    }
    let files = ["--trainpref", "train", "--validpref", "valid", "--destdir", "bin", "--bpe", "20"];
    sandbox.mae(&["preprocess", "-s", "de", "-t", "en"], &files).succeeded();
    sandbox
}

/// A model and a run small enough for a test.
const SMALL: &[&str] = &[
    "train",
    "bin",
    "--recipe",
    "multi30k-mae7",
    "--max-tokens",
    "200",
    "--log-interval",
    "1",
    "--threads",
    "1",
    "--set",
    "model.encoder_embed_dim=32",
    "--set",
    "model.encoder_ffn_embed_dim=48",
    "--set",
    "model.mixture.gate_hidden=16",
    "--set",
    "train.gate_every_updates=3",
    "--set",
    "train.keep_last_epochs=0",
];

fn start(sandbox: &Sandbox, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_mae"))
        .args(SMALL)
        .args(more)
        .current_dir(sandbox.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Waits until the run in `folder` has logged `updates` updates.
fn wait_for(sandbox: &Sandbox, folder: &str, updates: usize) {
    let (log, begun) = (sandbox.path(folder).join("log.jsonl"), Instant::now());
    while std::fs::read_to_string(&log).map_or(0, |text| text.matches("\"train\"").count()) < updates {
        assert!(begun.elapsed() < Duration::from_secs(120), "no {updates} updates in two minutes");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// (update, losses) of every line that the run in `folder` has logged.
fn losses(sandbox: &Sandbox, folder: &str) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path(folder).join("log.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events
        .filter(|event| event["event"] != "epoch")
        .map(|e| format!("{} {} {} {}", e["num_updates"], e["loss"], e["gate_loss"], e["gate_entropy"]))
        .collect()
}

fn last_files(sandbox: &Sandbox, folder: &str) -> [Vec<u8>; 2] {
    let last = sandbox.path(folder).join("checkpoint_last");
    ["model.safetensors", "optimizer.safetensors"].map(|name| std::fs::read(last.join(name)).unwrap())
}

/// SIGTERM finishes the update, saves and exits with 143; SIGKILL loses what was not saved. Either way the same command
/// goes on, and ends with the same bytes and the same log as a run that was left alone.
#[test]
fn killed_runs_resume_bit_for_bit() {
    let sandbox = corpus();
    let limits = ["--max-update", "150", "--save-interval-updates", "20"];
    let run = |folder: &str| sandbox.mae(SMALL, &[&limits[..], &["--save-dir", folder]].concat());
    run("whole").succeeded();
    for (signal, folder) in [("-TERM", "terminated"), ("-KILL", "killed")] {
        let child = start(&sandbox, &[&limits[..], &["--save-dir", folder]].concat());
        wait_for(&sandbox, folder, 25);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        if signal == "-TERM" {
            assert_eq!(output.status.code(), Some(143), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("stopped and saved"), "{output:?}");
        }
        let went_on = run(folder);
        assert!(went_on.succeeded().contains(&format!("resumes from {folder}/checkpoint_last")), "{signal}");
        assert!(went_on.stdout.contains("finished after 150 updates"), "{}", went_on.stdout);
        assert_eq!(losses(&sandbox, folder), losses(&sandbox, "whole"), "{signal}");
        assert!(
            last_files(&sandbox, folder) == last_files(&sandbox, "whole"),
            "{signal}: weights or moments differ"
        );
    }
    let done = run("whole");
    assert!(done.succeeded().contains("nothing left to train: 150 updates"), "{}", done.stdout);
}

/// A run without an end says so; Ctrl-C ends it with the code of programs that SIGINT ends.
#[test]
fn endless_runs_are_interrupted() {
    let sandbox = corpus();
    let child = start(&sandbox, &["--max-epoch", "0", "--max-update", "0", "--save-dir", "endless"]);
    wait_for(&sandbox, "endless", 1);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no end is set"), "{output:?}");
}

#[test]
fn a_trained_model_translates_its_corpus() {
    let sandbox = corpus();
    let more = [
        "--save-dir",
        "run",
        "--max-epoch",
        "12",
        "--lr",
        "5e-3",
        "--warmup-updates",
        "30",
        "--dropout",
        "0",
        "--eval-bleu",
    ];
    let shown = sandbox.mae(SMALL, &more);
    assert!(shown.succeeded().contains("BLEU"), "{}", shown.stdout);
    let out = sandbox.mae(&["generate", "run/checkpoint_best"], &["--source", "valid.de", "--plain"]);
    sandbox.write("out.en", out.succeeded());
    let score = sandbox.mae(&["score", "--sys", "out.en", "--ref", "valid.en"], &["--exact", "--json"]);
    let score: serde_json::Value = serde_json::from_str(score.succeeded()).unwrap();
    assert!(score.to_string().contains("bleu") || score.to_string().contains("score"), "{score}");
    let equal = std::fs::read_to_string(sandbox.path("valid.en")).unwrap();
    let right = equal.lines().zip(out.stdout.lines()).filter(|(a, b)| a == b).count();
    assert!(right >= 15, "{right} of 20 lines are right:\n{}", out.stdout);
}

/// Train on all, fine-tune a part of the parameters on a part of the data, validate.
#[test]
fn fine_tuning_and_validation() {
    let sandbox = corpus();
    let train = |more: &[&str]| sandbox.mae(SMALL, &[&["--max-update", "12"], more].concat());
    let first = train(&["--save-dir", "first", "--batching", "frozen", "--tensorboard-logdir", "board"]);
    assert!(first.succeeded().contains("GiB of main memory"), "{}", first.stdout);
    assert!(sandbox.path("board/valid").exists());
    let tune = |folder: &str, more: &[&str]| {
        let all = ["--finetune-from-model", "first", "--save-dir", folder, "--subset", "10%"];
        train(&[&all[..], more].concat())
    };
    let tuned = tune("tuned", &["--free", "gates", "--keep-best-checkpoints", "1"]);
    let said = tuned.succeeded();
    for part in ["of them trained", "10 % of 300 training pairs", "the weights of first/checkpoint_best"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let averaged = ["average", "tuned", "--num-best-checkpoints", "1", "--output", "mean"];
    sandbox.mae(&averaged, &[]).succeeded();
    let validate = |args: &[&str]| sandbox.mae(&["validate", "tuned/checkpoint_best", "--data", "bin"], args);
    let told = validate(&["--bleu", "--beam", "2", "--json"]);
    let report: serde_json::Value = serde_json::from_str(told.succeeded()).unwrap();
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert!((number("ppl").log2() - number("nll_loss")).abs() < 1e-9 && number("bleu") >= 0.0);
    assert_eq!((&report["sentences"], &report["split"]), (&20.into(), &"valid".into()));
    let log = std::fs::read_to_string(sandbox.path("tuned/log.jsonl")).unwrap();
    let best = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let best = best.rev().find(|event| event["is_best"] == true).unwrap();
    assert_eq!((&best["loss"], &best["gate_entropy"]), (&report["loss"], &report["gate_entropy"]));
    let shown = validate(&[]);
    assert!(
        shown.succeeded().contains("bits/token") && shown.stdout.contains("ln 8 = 2.079"),
        "{}",
        shown.stdout
    );
    assert!(validate(&["--split", "nothing"]).failed().contains("nothing"));

    sandbox.write("other.de", "neun\n");
    sandbox.write("other.en", "nine\n");
    let files = ["--trainpref", "other", "--validpref", "other", "--destdir", "other-bin"];
    sandbox.mae(&["preprocess", "-s", "de", "-t", "en"], &files).succeeded();
    let wrong = sandbox.mae(&["validate", "tuned/checkpoint_best", "--data", "other-bin"], &[]);
    assert!(wrong.failed().contains("source dictionaries differ"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("target dictionaries differ"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--srcdict tuned/checkpoint_best/dict.src.txt"), "{}", wrong.stderr);
    let both = tune("x", &["--reset-optimizer"]);
    assert!(both.failed().contains("--reset-*"), "{}", both.stderr);
    for (args, part) in [
        (&["--subset", "200%"][..], "train.subset"),
        (&["--free", "heads"], "heads"),
        (&["--batching", "sorted"], "sorted"),
        (&["--keep-interval-updates", "3"], "save_interval_updates"),
    ] {
        let run = train(&[&["--save-dir", "x"], args].concat());
        assert!(run.failed().contains(part), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn wrong_keys_systems_and_data_are_refused() {
    let sandbox = corpus();
    for (args, parts) in [
        (&["--set", "lr=1"][..], &["unknown key `lr`; did you mean `train.lr`?"][..]),
        (&["--set", "model.gate_hidden=8"], &["did you mean `model.mixture.gate_hidden`?"]),
        (&["--system", "maee"], &["system `maee`", "as in mae7"]),
        (&["--set", "train.lrr=1"], &["unknown key `train.lrr`", "`lr`"]),
        (&["--set", "train.lr=fast"], &["train", "lr"]),
        (&["--system", "mae9"], &["mae9", "between 1 and 7"]),
        (&["--set", "model.encoder_attention_heads=7"], &["encoder_attention_heads = 7"]),
        (&["--share-all-embeddings"], &["--joined-dictionary"]),
        (&["--set", "train.max_tokens=1"], &["no usable sentence pairs"]),
    ] {
        let run = sandbox.mae(SMALL, &[args, &["--save-dir", "x", "--max-update", "1"]].concat());
        parts.iter().for_each(|part| assert!(run.failed().contains(part), "{args:?}: {}", run.stderr));
    }
    assert!(sandbox.mae(&["train", "--list-recipes"], &[]).succeeded().contains("wmt14-mae6"));
    assert!(
        sandbox
            .mae(&["train", "--recipe", "iwslt14-mae6"], &["--dry-run"])
            .succeeded()
            .contains("dropped_heads = 2")
    );
    let missing = sandbox.mae(&["train", "nowhere"], &[]);
    assert!(missing.failed().contains("nowhere"), "{}", missing.stderr);
    assert!(sandbox.mae(&["train", "bin", "--recipe", "nothing"], &[]).failed().contains("iwslt14-mae7"));
}

#[test]
fn quickstart_tells_its_result_as_json() {
    let sandbox = Sandbox::new();
    let run = sandbox.mae(&["quickstart", "--pairs", "300", "--max-update", "6", "--json"], &["--dir", "qs"]);
    let report: serde_json::Value = serde_json::from_str(run.succeeded()).unwrap();
    for key in ["exact_match", "bleu", "seconds", "entropy", "experts"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    let shares = report["experts"]["encoder.layers.0.self_attn"].as_array().unwrap();
    assert_eq!(shares.len(), 8);
    assert!((shares.iter().map(|share| share.as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-6);
    let shown = sandbox
        .mae(&["quickstart", "--pairs", "300", "--updates", "2", "--system", "base"], &["--dir", "qs"]);
    assert!(shown.succeeded().contains("exact match"), "{}", shown.stdout);
    let record = std::fs::read_to_string(sandbox.path("qs/base/run.toml")).unwrap();
    assert!(record.contains("system = \"base\"") && record.contains("max_update = 2"), "{record}");
    assert!(sandbox.mae(&["quickstart", "--pairs", "0"], &[]).failed().contains("--pairs"));
    assert!(sandbox.mae(&["quickstart", "--updates", "0"], &[]).failed().contains("--max-update"));
    // Without any G step the gates are those that the run began with, and both are shown.
    let gates = ["quickstart", "--pairs", "300", "--updates", "2", "--system", "mae7", "--dir", "gates"];
    let shown = sandbox.mae(&gates, &[]).succeeded().to_owned();
    let row = shown.lines().find(|line| line.contains("encoder.layers.0.self_attn")).expect("a gate");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(words[1].starts_with("2.0") && words[1] == words[2], "{row}");
    let kinds: Vec<&str> = shown.lines().filter(|line| line.contains("; untrained: expert ")).collect();
    assert!(kinds.len() > 3, "{shown}");
    // Another corpus of quickstart replaces the one it made before; where there is no bar, lines tell how far it is.
    let again = ["quickstart", "--pairs", "100", "--updates", "100", "--system", "base"];
    let again = sandbox.mae(&again, &["--dir", "qs"]);
    again.succeeded();
    assert!(again.stderr.contains("training base: update 100 of 100, loss "), "{}", again.stderr);
}

#[test]
fn quickstart_keeps_what_it_did_not_write() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("own")).unwrap();
    std::fs::create_dir_all(sandbox.path("runs/base")).unwrap();
    sandbox.write("own/test.de", "meins\n");
    sandbox.write("runs/base/log.jsonl", "{}\n");
    for (dir, kept) in [("own", "own/test.de"), ("runs", "runs/base/log.jsonl")] {
        let before = std::fs::read(sandbox.path(kept)).unwrap();
        let small = ["quickstart", "--pairs", "100", "--updates", "2", "--system", "base", "--dir", dir];
        let name = kept.trim_end_matches("/log.jsonl");
        assert!(sandbox.mae(&small, &[]).failed().contains(name));
        assert_eq!(std::fs::read(sandbox.path(kept)).unwrap(), before);
    }
    assert!(!sandbox.path("own/train.en").exists());
}
