//! `mae doctor`, on machines with and without a GPU.

use std::process::Command;

use crate::common::Sandbox;

#[test]
fn the_machine_is_described_with_or_without_a_gpu() {
    let run = Sandbox::new().mae(&["doctor", "--json"], &[]);
    let text = run.succeeded();
    let machine: serde_json::Value = serde_json::from_str(text).expect("one JSON object");
    assert!(machine["cpu"]["gflop_per_s"].as_f64().is_some_and(|rate| rate > 0.1), "{text}");
    assert!(machine["libraries"].as_array().is_some_and(|libraries| libraries.len() >= 3), "{text}");
    let (reason, measured) = (&machine["no_gpu"], &machine["measured"]);
    assert_ne!(reason.is_null(), measured.is_null(), "either a GPU or why there is none: {text}");
    assert!(reason.as_str().is_none_or(|reason| !reason.contains('\n')), "one sentence: {reason}");
}

#[test]
fn the_suite_needs_a_gpu_and_says_so() {
    let sandbox = Sandbox::new();
    let machine = sandbox.mae(&["doctor"], &[]);
    let suite = sandbox.mae(&["doctor", "--kernels", "--filter", "parameter [67, 13]"], &[]);
    if machine.succeeded().contains("no GPU can be used") {
        assert!(suite.failed().contains("no GPU can be used"), "{}", suite.stderr);
    } else {
        assert!(suite.succeeded().contains("all within their tolerance"), "{}", suite.stdout);
    }
}

#[test]
fn flags_of_the_suite_ask_for_it() {
    let run = Sandbox::new().mae(&["doctor", "--filter", "linear"], &[]);
    assert!(run.failed().contains("--kernels"), "{}", run.stderr);
}

#[test]
fn the_note_about_gpus_comes_once_or_does_not_say_so() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "");
    // A cache that can be written, twice, and one that cannot: the parent of its folder is a file.
    let notes = ["cache", "cache", "file/cache"].map(|cache| {
        // The device is opened before the model is found missing.
        let run = Command::new(env!("CARGO_BIN_EXE_mae"))
            .args(["serve", "nowhere", "--port", "0", "--device", "auto"])
            .env("MAE_CACHE", sandbox.path(cache))
            .output();
        String::from_utf8(run.expect("the program starts").stderr).expect("mae prints UTF-8")
    });
    if notes[0].contains("no GPU can be used") {
        assert!(notes[0].contains("this note is not repeated"), "{notes:?}");
        assert!(!notes[1].contains("no GPU"), "{notes:?}");
        assert!(notes[2].contains("no GPU") && !notes[2].contains("not repeated"), "{notes:?}");
    }
}
