//! Pages of every kind, made by the program and opened in a browser, which compares what they show with their data and uses
//! their controls (`tools/check_pages.js`). Needs Node, playwright-core (NODE_PATH) and Chromium; where one is missing the test
//! says so, and fails if `MAE_CHECK_PAGES` is 1.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common::study::place;
use crate::common::{Sandbox, lm};

/// Runs `tools/check_pages.js`; what it said, as an error if it failed.
fn check_pages(args: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, String> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check_pages.js");
    let run = Command::new("node").arg(tool).args(args).output();
    let run = run.map_err(|error| format!("node does not start: {error}"))?;
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if run.status.success() { Ok(said) } else { Err(said) }
}

/// Runs of a study with two systems in `study`, and its page: two epochs are enough to look at.
fn study() -> Sandbox {
    let place = place();
    let args = ["reproduce", "tiny.toml", "--data", "bin", "--out", "study", "--max-epoch", "2"];
    place.mae(&args, &["--device", "cpu"]).succeeded();
    place
}

#[test]
fn pages_show_their_data_in_a_browser() {
    if let Err(why) = check_pages(&["--ready"]) {
        let required = std::env::var_os("MAE_CHECK_PAGES").is_some_and(|value| value == "1");
        assert!(!required, "MAE_CHECK_PAGES is 1 and no browser can be driven: {why}");
        // Not by `eprintln!`, which tests that pass keep to themselves.
        let text =
            format!("NOT RUN: no page was opened in a browser: {}\n", why.lines().next().unwrap_or(""));
        return std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    }
    let place = study();
    let [base, mae7] = ["study/base-1", "study/mae7-1"];
    let model = "study/mae7-1/average";
    let analyze = ["analyze", model, "--data", "bin", "--device", "cpu", "--min-count", "1"];
    place.mae(&analyze, &["--one-expert", "--draws", "2", "--beam", "1", "--html", "gates.html"]).succeeded();
    place.mae(&["report", base, mae7, "--html", "report.html"], &[]).succeeded();
    let small = ["--set", "train.max_tokens=400", "--set", "train.save_interval_updates=2"];
    let plan = ["--methods", "noft,ftg,scratch", "--fractions", "50,100", "--updates", "ftg=2,scratch=2"];
    let transfer = ["transfer", "--parent", model, "--data", "bin", "--out", "transfer", "--device", "cpu"];
    place.mae(&transfer, &[&plan[..], &small].concat()).succeeded();
    let text = lm::trained();
    let analyze = ["analyze", "run/checkpoint_last", "--data", "bin", "--device", "cpu", "--min-count", "1"];
    text.mae(&analyze, &["--tokens-per-sample", "16", "--html", "text.html"]).succeeded();
    let pages = ["gates.html", "report.html", "study/study.html", "transfer/transfer.html"];
    let pages: Vec<_> = pages.iter().map(|page| place.path(page)).chain([text.path("text.html")]).collect();
    assert_eq!(check_pages(&pages).as_deref(), Ok("5 pages are in order"));

    // The checks can fail: a page without anything, and one with other numbers and without curves.
    let page = std::fs::read_to_string(&pages[1]).unwrap();
    let page = page.replace("String(value))", "String(value) + 1)");
    place.write("spoiled.html", page.replace("draw(\"polyline\"", "draw(\"polygon\""));
    place.write("empty.html", "<!doctype html><p>nothing");
    let said = check_pages(&["empty.html", "spoiled.html"].map(|name| place.path(name))).unwrap_err();
    for part in ["is no page of mae", "the summary: shows", "points of smoothed loss"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(check_pages(&[place.path("nowhere.html")]).unwrap_err().contains("no such file"));
}
