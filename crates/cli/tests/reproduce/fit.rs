//! Results that are not what the study asks for, and systems that cannot be told apart.

use serde_json::Value;

use super::{STUDY, args, json};
use crate::common::Sandbox;

/// Of a finished study in `out`: what was asked for later is not said of what was measured before.
pub fn results_that_do_not_fit(place: &Sandbox, only: &[&str]) {
    // Fewer rows, the same baseline.
    let row = place.mae(only, &["--only", "mae7"]);
    assert!(row.succeeded().contains("− base") && row.stdout.contains("+1.5"), "{}", row.stdout);
    assert!(!row.stdout.contains("\nbase"), "{}", row.stdout);
    let seed: Value =
        serde_json::from_str(place.mae(only, &["--only", "mae7", "--seeds", "2", "--json"]).succeeded())
            .unwrap();
    assert!(seed["comparison"]["rows"][0]["difference"]["mean"].is_f64(), "{seed}");
    assert_eq!(seed["runs"].as_array().unwrap().len(), 1);
    // Another protocol; less of the same one is none.
    let less = place.mae(only, &["--tokenised-only"]);
    assert!(less.succeeded().contains("tokenised BLEU") && !less.stdout.contains("now asks"), "{less:?}");
    place.write("tiny.toml", STUDY.replace("beam = 2", "beam = 3"));
    let said = "base-1, base-2, mae7-1, mae7-2, with translation.beam = 2 (now 3)";
    let asked = place.mae(&args("out", &[]), &[]);
    assert!(asked.succeeded().contains(said) && asked.stdout.contains("Beam 2,"), "{}", asked.stdout);
    assert!(asked.stderr.contains("mae7-2 was made with translation.beam = 2 (now 3)"), "{}", asked.stderr);
    assert!(place.mae(only, &[]).succeeded().contains(said));
    assert!(std::fs::read_to_string(place.path("out/study.json")).unwrap().contains(said));
    assert!(std::fs::read_to_string(place.path("out/study.html")).unwrap().contains(said));
    // A result of before this was kept.
    let path = place.path("out/base-1/result.json");
    let mut old = json(&path);
    let keys = old.as_object_mut().unwrap();
    assert!(keys.remove("measured").is_some() && keys.remove("made_from").is_some());
    std::fs::write(&path, old.to_string()).unwrap();
    assert!(place.mae(only, &[]).succeeded().contains("asks: base-2, mae7-1"));
    place.write("tiny.toml", STUDY.replace("[translation]", "[translation]\nsplit = \"valid\""));
    assert!(place.mae(only, &[]).succeeded().contains("translation.split = \"test\" (now \"valid\")"));
    place.write("tiny.toml", STUDY);
    // The same data elsewhere is the same; other data is not.
    std::fs::rename(place.path("bin"), place.path("moved")).unwrap();
    let with = |data: &str, more: &[&str]| {
        let all = ["reproduce", "tiny.toml", "--out", "out", "--device", "cpu", "--data", data];
        place.mae(&all, more)
    };
    let moved = with("moved", &[]);
    assert!(moved.succeeded().contains("mae7") && moved.stderr.is_empty(), "{}", moved.stderr);
    let files = ["--trainpref", "valid", "--validpref", "valid", "--testpref", "test", "--destdir", "other"];
    let dictionaries = ["--srcdict", "moved/dict.de.txt", "--tgtdict", "moved/dict.en.txt"];
    let codes = ["-s", "de", "-t", "en", "--bpe-codes", "moved/bpe.codes"];
    place.mae(&["preprocess"], &[&files[..], &dictionaries, &codes].concat()).succeeded();
    let other = with("other", &[]);
    other.succeeded();
    assert!(other.stderr.contains("base-2 was made with another training set;"), "{}", other.stderr);
    let begun = with("other", &["--seeds", "3"]);
    assert!(begun.failed().contains("another training set: results in one folder"), "{}", begun.stderr);
    assert!(!place.path("out/base-3").exists());
    let mut mixed = json(&place.path("out/mae7-1/result.json"));
    mixed["made_from"]["train"] = "0".into();
    place.write("out/mae7-1/result.json", mixed.to_string());
    let mixed = place.mae(only, &[]);
    assert!(mixed.succeeded().contains("the same training set: mae7-1; base-2, mae7-2."), "{}", mixed.stdout);
    // Equal translations are not told apart.
    std::fs::copy(place.path("out/base-1/hypotheses.txt"), place.path("out/mae7-1/hypotheses.txt")).unwrap();
    let equal: Value = serde_json::from_str(place.mae(only, &["--json"]).succeeded()).unwrap();
    assert_eq!(equal["comparison"]["rows"][1]["p_values"]["1"], 1.0);
}
