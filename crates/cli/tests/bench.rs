//! `mae bench`: every kind of step is measured, beside a peer if there is one.

use serde_json::Value;

use crate::common::Sandbox;

const TINY: [&str; 16] = [
    "--device",
    "cpu",
    "--threads",
    "1",
    "--steps",
    "1",
    "--layers",
    "1",
    "--width",
    "16",
    "--inner",
    "16",
    "--heads",
    "4",
    "--rounds",
    "2",
];

const TINY_LM: [&str; 10] = [
    "bench",
    "train-lm",
    "--max-tokens",
    "64",
    "--tokens-per-sample",
    "16",
    "--vocab",
    "60",
    "--cutoffs",
    "10,30",
];

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
}

fn steps(lines: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    lines.iter().map(|line| format!("{} {}", text(&line["variant"]), text(&line["step"]))).collect()
}

fn assert_measured(lines: &[Value]) {
    for line in lines {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"));
        for key in ["ms_per_update", "tokens_per_s", "tflop_per_update", "peak_memory_gib"] {
            assert!(number(key) > 0.0, "{line}");
        }
        assert!(number("peak_memory_gib") <= number("memory_gib"), "{line}");
    }
}

#[test]
fn every_step_of_language_models_is_measured() {
    let place = Sandbox::new();
    let all = [&TINY[..], &["--variants", "base,mae3,mae2,uni-mae3,nobcd", "--json"]].concat();
    let lines = json(place.mae(&TINY_LM, &all).succeeded());
    let want = ["base F", "mae3 F", "mae3 G", "mae2 F", "mae2 G", "uni-mae3 F", "nobcd joint"];
    assert_eq!(steps(&lines), want);
    assert_measured(&lines);
    assert!(lines.iter().all(|line| line["tokens_per_update"] == 64.0), "{lines:?}");
    assert!(lines.iter().all(|line| line["peer_tokens_per_s"].is_null()), "{lines:?}");
}

#[test]
fn every_step_of_translation_is_measured() {
    let place = Sandbox::new();
    let train = [
        "bench",
        "train",
        "--src-vocab",
        "50",
        "--tgt-vocab",
        "40",
        "--max-tokens",
        "256",
        "--variants",
        "base,mae3",
        "--json",
    ];
    let lines = json(place.mae(&train, &TINY).succeeded());
    assert_eq!(steps(&lines), ["base F", "mae3 F", "mae3 G"]);
    assert_measured(&lines);
}

#[cfg(unix)]
#[test]
fn a_peer_gets_the_flags_and_is_compared() {
    let place = Sandbox::new();
    place.write(
        "peer.sh",
        r#"echo "$@" >> flags
echo some warning
echo '{"step": "F", "target_tokens_per_s": 0.5, "peak_gpu_mib": 512}'
"#,
    );
    let more = [&TINY[..], &["--variants", "base", "--peer", "sh peer.sh"]].concat();
    let said = place.mae(&TINY_LM, &more);
    let said = said.succeeded();
    for part in [
        "base F step, cpu",
        " tokens/s (64 tokens/update)",
        "GiB in use at the peak",
        "peer: 0 tokens/s, 0.50 GiB",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let line = &json(place.mae(&TINY_LM, &[&more[..], &["--json"]].concat()).succeeded())[0];
    let number = |key: &str| line[key].as_f64().expect("a number");
    assert_eq!((number("peer_tokens_per_s"), number("peer_peak_memory_gib")), (0.5, 0.5));
    assert!(number("ratio_to_peer") > 0.0 && number("ratio_of_best") >= number("ratio_to_peer"), "{line}");
    let flags = std::fs::read_to_string(place.path("flags")).expect("the peer has run");
    assert_eq!(flags.lines().count(), 4, "two rounds each: {flags}");
    for flag in [
        "--variant base",
        "--cutoffs 10,30",
        "--max-tokens 64",
        "--tokens-per-sample 16",
        "--device cpu",
        "--json",
    ] {
        assert!(flags.lines().all(|line| line.contains(flag)), "{flag} in {flags}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = Sandbox::new();
    let refused =
        |more: &[&str]| place.mae(&["bench", "train-lm", "--device", "cpu"], more).failed().to_owned();
    assert!(refused(&["--max-tokens", "100"]).contains("a multiple of --tokens-per-sample 512"));
    assert!(refused(&["--profile"]).contains("--profile is for GPUs"));
    assert!(refused(&["--vocab", "300", "--cutoffs", "10,300"]).contains("cutoffs must be below"));
    assert!(refused(&["--vocab", "3"]).contains("--vocab"));
    for (args, words) in [
        (vec!["train", "--src-vocab", "0"], "--src-vocab must be above 4"),
        (vec!["decode", "--tgt-vocab", "4"], "--tgt-vocab must be above 4"),
        (vec!["train", "--heads", "0"], "--heads must be above 0"),
        (vec!["train", "--max-tokens", "10"], "--max-tokens must be at least 175"),
        (vec!["decode", "--length", "5000"], "--length 5000: the model has 1024 positions"),
        (vec!["train-lm", "--layers", "0"], "--layers must be above 0"),
    ] {
        let run = place.mae(&["bench"], &args);
        assert!(run.failed().contains(words), "{args:?}: {}", run.stderr);
    }
}

#[cfg(unix)]
#[test]
fn translation_is_measured_beside_a_peer() {
    let place = Sandbox::new();
    let line = |beam, compute| {
        let rate = r#""target_tokens_per_s": 0.5"#;
        format!(r#"echo '{{"beam": {beam}, "batch": 2, "compute_type": "{compute}", {rate}}}'"#)
    };
    place.write("peer.sh", [line(1, "f32"), line(2, "f32"), line(1, "int8"), line(2, "int8")].join("\n"));
    let decode = ["bench", "decode", "--src-vocab", "50", "--tgt-vocab", "40", "--sentences", "3"];
    let sizes = ["--length", "5", "--beams", "1,2", "--batches", "2", "--peer", "sh peer.sh"];
    let run = |more: &[&str]| {
        // Translation has no steps.
        let run = place.mae(&decode, &[&TINY[..4], &TINY[6..], &sizes, more].concat());
        run.succeeded().to_owned()
    };
    let lines = json(&run(&["--variants", "base,mae3", "--json"]));
    assert_eq!(lines.len(), 8, "{lines:?}");
    for line in &lines {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"));
        assert!(number("tokens_per_s") > 0.0 && number("peer_tokens_per_s") == 0.5, "{line}");
        assert!(number("ratio_to_peer") > 0.0 && number("threads") == 1.0, "{line}");
        // Beside the first variant.
        let beside = line["variant"] == "mae3";
        assert_eq!(line["cost"].as_f64().is_some_and(|cost| cost > 0.0), beside, "{line}");
        assert_eq!(line["costs"].as_array().unwrap().len(), 2 * usize::from(beside), "{line}");
    }
    let text = run(&["--variants", "base,mae3", "--compute-types", "int8"]);
    for part in [
        "base beam 2, batches of 2, cpu int8, 1 thread: ",
        " times as long as base (",
        " in single rounds); peer ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn a_peer_without_a_measurement_is_refused() {
    let place = Sandbox::new();
    place.write("peer.sh", "echo no such flag\n");
    place.write("other.sh", "echo '{\"step\": \"G\", \"target_tokens_per_s\": 1}'\n");
    for (peer, words) in [
        ("true", "--peer true: the peer printed no JSON line with a measurement, but nothing"),
        ("sh peer.sh", "`no such flag"),
        ("sh other.sh", "no measurement of base's F step"),
    ] {
        let run = place.mae(&TINY_LM, &[&TINY[..], &["--variants", "base", "--peer", peer]].concat());
        assert!(run.failed().contains(words), "{peer}: {}", run.stderr);
    }
}
