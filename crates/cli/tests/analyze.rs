//! `mae analyze` and `mae report` as users run them: tables, JSON, pages that need no network, and mistakes.

use mae_model::config::System;
use serde_json::Value;

use crate::common::page::{assert_self_contained, assert_well_formed, data_of};
use crate::common::place::Place;

/// A model whose target words would be markup if a page let them, with data made for it.
fn place(system: System) -> Place {
    let place = Place::new(None);
    place.model("model", system, 3, &["x", "</script>", "z@@", "<b>&", "v"], None);
    place.write("test.de", "a b@@ c\nd a\nb@@ c d\na\na a d\nc\n");
    place.write("test.en", "x </script>\nz@@ x\n<b>& x\nv v\nx x x\nz@@ v\n");
    let done = place.mae(
        "preprocess -s de -t en --testpref test --srcdict model/dict.src.txt --tgtdict model/dict.tgt.txt --destdir bin",
        "",
    );
    assert!(done.success, "{}", done.err);
    place
}

const ANALYZE: &str = "analyze model --data bin --device cpu --min-count 1";

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap()
}

#[test]
fn tables_json_and_page_tell_the_same() {
    let place = place(System::MAE);
    let tables = place.mae(&format!("{ANALYZE} --html page.html"), "");
    assert!(tables.success, "{}", tables.err);
    for part in ["6 sentence pairs", "ln 4 = 1.386", "encoder 1", "cross 2", "mean all", "head weights"] {
        assert!(tables.out.contains(part), "`{part}` is not in {}", tables.out);
    }
    let json = place.mae(&format!("{ANALYZE} --json"), "");
    let found: Value = serde_json::from_str(&json.out).unwrap();
    let page = read(&place, "page.html");
    assert_self_contained(&page);
    assert_eq!(data_of(&page), found, "the page holds what --json prints");
    let analysis = &found["analysis"];
    assert_eq!((analysis["sentences"].as_u64(), analysis["experts"].as_u64()), (Some(6), Some(4)));
    let attentions = analysis["attentions"].as_array().unwrap();
    assert_eq!(attentions.len(), 5);
    for attention in attentions {
        let total: f64 =
            attention["leads"].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).sum();
        assert!((total - 1.0).abs() < 1e-9);
        let untrained = &attention["untrained"];
        assert!(untrained["entropy"].is_f64() && untrained["words"].is_array(), "{untrained}");
    }
    assert!(tables.out.contains("untrained"), "{}", tables.out);
    assert_eq!(analysis["examples"].as_array().unwrap().len(), 6);
    assert_eq!(analysis["examples"][0]["target"], serde_json::json!(["x", "</script>", "</s>"]));
    assert!(!page.contains("x</script>") && found["one_expert"].is_null());
}

/// A tag for each pair: what gates tell of it stands beside what untrained gates do.
#[test]
fn gates_are_reported_by_tag() {
    let place = place(System::MAE);
    place.write("tags", "short\nshort\nlong\nshort\nlong\nshort\n");
    let done = place.mae(&format!("{ANALYZE} --tags tags --untrained-seed 3 --html page.html"), "");
    assert!(done.success, "{}", done.err);
    for part in ["I(tag; expert)", "mean gate of each tag in", "long"] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    let page = read(&place, "page.html");
    assert_self_contained(&page);
    let analysis = &data_of(&page)["analysis"];
    assert_eq!(analysis["tags"], serde_json::json!(["short", "long"]));
    // The model was made with seed 3 and never trained.
    let encoder = &analysis["attentions"][0];
    assert_eq!(encoder["tags"], encoder["untrained"]["tags"]);
    assert_eq!(encoder["tags"]["rows"], serde_json::json!([4, 2]));
    place.write("tags", "short\n");
    place.refuse(&format!("{ANALYZE} --tags tags"), &["--tags: there are 1 tags for 6 sentence pairs"]);
}

#[test]
fn a_page_that_cannot_be_written_loses_nothing() {
    let place = place(System::MAE);
    place.refuse(
        &format!("{ANALYZE} --html no/such/folder.html"),
        &["cannot write no/such/folder.html", "no folder no/such"],
    );
    // What shows only when it is written.
    let long = "x".repeat(251) + ".html";
    let done = place.mae(&format!("{ANALYZE} --html {long}"), "");
    assert!(!done.success && done.err.contains(&long), "{}", done.err);
    assert!(done.out.contains("mean all"), "{}", done.out);
}

#[test]
fn one_expert_is_compared_with_the_mixture() {
    let place = place(System::MAE);
    let done = place.mae(&format!("{ANALYZE} --bleu --draws 2 --beam 1 --json --sentences 0"), "");
    let found: Value = serde_json::from_str(&done.out).unwrap();
    let scores = &found["one_expert"];
    assert!(scores["mixture"].is_f64() && scores["argmax"].is_f64(), "{scores}");
    assert_eq!(scores["random"].as_array().unwrap().len(), 2);
    assert_eq!(found["analysis"]["examples"], serde_json::json!([]));
}

#[test]
fn systems_without_gates_are_told_apart() {
    let uniform = place(System::UNIFORM);
    let done = uniform.mae(&format!("{ANALYZE} --bleu --draws 2 --beam 1 --html page.html"), "");
    assert!(done.success, "{}", done.err);
    assert!(
        done.out.contains("no gates: all experts weigh alike") && done.out.contains("random, 2 draws"),
        "{}",
        done.out
    );
    assert!(!done.out.contains("favourite"), "{}", done.out);
    assert_self_contained(&read(&uniform, "page.html"));
    let base = place(System::BASE);
    base.refuse(ANALYZE, &["has no experts", "BASE", "--importance"]);
    base.refuse(&format!("{ANALYZE} --importance --html page.html"), &["--html", "BASE"]);
}

/// Gates that weigh heads are no distributions: no entropy is made up for them.
#[test]
fn gates_that_weigh_heads_have_weights_and_no_entropy() {
    let place = place(System::SIGMOID);
    let done = place.mae(&format!("{ANALYZE} --html page.html"), "");
    assert!(done.success, "{}", done.err);
    for part in
        ["4 heads with a weight each", "entropy and experts in use are not defined", "1.00 ± 0.00", "H3"]
    {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    assert!(!done.out.contains("NaN") && !done.out.contains("nats ("), "{}", done.out);
    let page = read(&place, "page.html");
    assert_self_contained(&page);
    let analysis = &data_of(&page)["analysis"];
    assert_eq!((&analysis["gates"], &analysis["experts"]), (&"weights".into(), &0.into()));
    assert!(analysis["attentions"][0]["entropy"].is_null() && analysis["uniform_entropy"].is_null());
    place.refuse(&format!("{ANALYZE} --one-expert"), &["--one-expert needs experts", "sigmoid"]);
    place.write("line", "a d\n");
    place.refuse(
        "generate model --source line --expert 0 --device cpu",
        &["--expert needs a mixture", "sigmoid"],
    );
    let done = place.mae("generate model --source line --gates --jsonl --device cpu", "");
    assert!(done.success, "{}", done.err);
    let line: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(line["gates"]["encoder.layers.0.self_attn"], serde_json::json!([1.0, 1.0, 1.0, 1.0]));
}

/// Routed heads are used by some rows only, and heads that a penalty has closed by none.
#[test]
fn heads_that_are_not_in_use_are_counted() {
    let moh = place(System::MOH);
    let done = moh.mae(&format!("{ANALYZE} --json"), "");
    assert!(done.success, "{}", done.err);
    let found: Value = serde_json::from_str(&done.out).unwrap();
    let heads = found["analysis"]["attentions"][0]["head_weights"].as_array().unwrap();
    let used: Vec<f64> = heads.iter().map(|head| head["used"].as_f64().unwrap()).collect();
    // One head of four is shared, and of the others a row uses two.
    assert!(used[0] == 1.0 && (used.iter().sum::<f64>() - 3.0).abs() < 1e-9, "{used:?}");
    let tables = moh.mae(ANALYZE, "").out;
    assert!(
        tables.contains("weighs more than 0, %") && tables.contains("of 20 heads are never used"),
        "{tables}"
    );
    let l0 = place(System::L0);
    let tables = l0.mae(ANALYZE, "").out;
    assert!(tables.contains("1.00 ± 0.00") && !tables.contains("never used"), "{tables}");
}

/// Heads of any system: what each is worth, and the loss without the least of them.
#[test]
fn heads_have_an_importance_and_are_left_out_in_steps() {
    for system in [System::BASE, System::MAE, System::MOH] {
        let place = place(system);
        let done = place.mae(&format!("{ANALYZE} --importance --json"), "");
        assert!(done.success, "{}", done.err);
        let found: Value = serde_json::from_str(&done.out).unwrap();
        let importance = &found["importance"];
        assert_eq!(importance["heads"], 20);
        for attention in importance["attentions"].as_array().unwrap() {
            let values = attention["normalised"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
            assert!((values.map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-6, "{attention}");
        }
        let curve = importance["pruning"].as_array().unwrap();
        let removed: Vec<u64> = curve.iter().map(|point| point["removed"].as_u64().unwrap()).collect();
        assert_eq!(removed, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
        let loss = |at: usize| curve[at]["loss"]["loss"].as_f64().unwrap();
        let tables = place.mae(&format!("{ANALYZE} --importance"), "").out;
        for part in ["importance of heads", "least important of 20 heads", &format!("{:.3}", loss(9))] {
            assert!(tables.contains(part), "{part}: {tables}");
        }
        // Heads really are left out: every step changes the loss. (Of an untrained model nothing says in which direction.)
        assert!((1..removed.len()).all(|at| loss(at) != loss(at - 1)), "{curve:?}");
    }
}

#[test]
fn analyses_of_wrong_models_and_data_are_refused() {
    let place = place(System::MAE);
    place.refuse("analyze nowhere --data bin --device cpu", &["nowhere"]);
    place.refuse("analyze model --data nowhere --device cpu", &["nowhere"]);
    place.refuse(&format!("{ANALYZE} --split valid"), &["valid.de-en"]);
    place.refuse(&format!("{ANALYZE} --bleu --beam 0"), &["--beam 0"]);
    place.refuse(&format!("{ANALYZE} --context-window 4"), &["is a translation model", "--context-window"]);
    place.refuse("analyze model --text test.de --device cpu", &["is a translation model", "--text"]);
    place.model("other", System::MAE, 3, &["x", "q"], None);
    place.refuse(
        "analyze other --data bin --device cpu",
        &["was not made for other", "the target dictionaries differ", "--tgtdict other/dict.tgt.txt"],
    );
}

/// Two runs, the second without run.toml and with a line cut off.
fn two_runs() -> Place {
    let place = Place::new(None);
    let lines = |loss: f64| {
        format!(
            "{{\"event\":\"epoch\",\"epoch\":1,\"updates\":4,\"done\":0}}\n\
             {{\"event\":\"train\",\"epoch\":1,\"num_updates\":2,\"loss\":{loss},\"nll_loss\":7.0,\"wps\":50.0,\"seconds\":1.5}}\n\
             {{\"event\":\"train\",\"epoch\":1,\"num_updates\":4,\"loss\":6.5,\"nll_loss\":6.0,\"wps\":50.0,\"seconds\":1.5}}\n\
             {{\"event\":\"valid\",\"epoch\":1,\"num_updates\":4,\"loss\":6.25,\"nll_loss\":5.5,\"gate_entropy\":1.75}}\n"
        )
    };
    for name in ["one", "two"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.write("one/log.jsonl", &lines(8.0));
    place.write("one/run.toml", "# data: <bin>\n[train]\nlr = 0.5\n");
    place.write("two/log.jsonl", &format!("{}{{\"event\":\"tr", lines(9.0)));
    place
}

#[test]
fn runs_are_reported() {
    let place = two_runs();
    let done = place.mae("report one two --html page.html --svg loss.svg --curve loss --against epochs", "");
    assert!(done.success, "{}", done.err);
    for part in ["6.250 at 4", "1.750", "3 s", "750.0", "left out: 1", "no run.toml"] {
        assert!(done.out.contains(part), "`{part}` is not in {}", done.out);
    }
    let (page, svg) = (read(&place, "page.html"), read(&place, "loss.svg"));
    assert_self_contained(&page);
    assert_well_formed(&svg);
    assert!(svg.contains(">epochs<") && svg.contains("two (dev)") && svg.matches("<polyline").count() == 4);
    let data = data_of(&page);
    let charts = data["charts"].as_array().unwrap();
    let named: Vec<&str> = charts.iter().map(|chart| chart["curve"].as_str().unwrap()).collect();
    assert!(named.contains(&"gate entropy, nats") && !named.contains(&"BLEU, development set"), "{named:?}");
    assert!(charts.iter().all(|chart| chart["series"][0]["colour"].as_str().unwrap().starts_with('#')));
    assert_eq!(charts[0]["series"][0]["points"], serde_json::json!([[2.0, 8.0], [4.0, 6.5]]));
    place.write("two/run.toml", "[train]\nlr = 0.25\n");
    let json: Value = serde_json::from_str(&place.mae("report one two --json", "").out).unwrap();
    assert_eq!(json["runs"][0]["best_dev_loss"], 6.25);
    assert_eq!(json["changes"], serde_json::json!([{"key": "train.lr", "values": ["0.5", "0.25"]}]));
}

#[test]
fn reports_of_runs_that_cannot_be_read_are_refused() {
    let place = two_runs();
    place.refuse("report nowhere", &["nowhere holds no log.jsonl", "--save-dir"]);
    let nothing = place.mae("report one --svg x.svg --curve bleu", "");
    assert!(!nothing.success && nothing.err.contains("no run has logged BLEU"), "{}", nothing.err);
    let late = place.mae("report one --svg x.svg --from 1e9", "");
    assert!(!late.success && late.err.contains("--from 1000000000: no run has come so far"), "{}", late.err);
    assert!(!place.path("x.svg").exists());
    assert!(place.mae("report one two --svg x.svg --curve dev-loss --from 3", "").success);
    let chart = std::fs::read_to_string(place.path("x.svg")).unwrap();
    assert_eq!(chart.matches("<polyline").count(), 2);
    place.refuse("report one --svg x.svg --from=-1", &["--from", "0 or more"]);
    place.refuse("report one --curve bleu", &["--svg"]);
    place.write("one/run.toml", "lr = \n");
    place.refuse("report one", &["run.toml"]);
    place.write("two/log.jsonl", "{\"event\":\"valid\",\"epoch\":1,\"num_updates\":4,\"loss\":6.25}\n");
    let short = place.mae("report two", "");
    assert!(short.success && !short.out.contains("0 s"), "{}", short.out);
    place.write("two/log.jsonl", "");
    place.refuse("report two", &["two/log.jsonl", "no update"]);
    place.write("two/log.jsonl", "epoch 1\n\n| loss 8.1\n");
    place.refuse("report two", &["two/log.jsonl cannot be read", "not JSON objects: 2 (line 1, 3)"]);
    place.refuse("report two --html one", &["cannot write one: it is a folder"]);
    place.refuse("report two --svg no/x.svg", &["no folder no"]);
    place.refuse("report two --svg x.png", &["--svg x.png", ".svg", "Save as PNG"]);
}

/// Neither a chart that cannot be drawn nor a run that cannot be read costs the rest.
#[test]
fn what_can_be_reported_is_reported() {
    let place = two_runs();
    let done = place.mae("report one two --svg x.svg --curve bleu --html page.html --json", "");
    assert!(!done.success && done.err.contains("no run has logged BLEU"), "{}", done.err);
    assert_eq!(data_of(&read(&place, "page.html"))["runs"].as_array().unwrap().len(), 2);
    assert!(done.out.contains("\"best_dev_loss\":6.25") && !place.path("x.svg").exists());

    std::fs::create_dir(place.path("young")).unwrap();
    place.write("two/log.jsonl", "garbage\n");
    let done = place.mae("report one young two --html page.html", "");
    assert!(done.success && done.out.contains("6.250 at 4"), "{}", done.err);
    for part in ["left out: young holds no log.jsonl", "left out: two/log.jsonl cannot be read", "(line 1)"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    assert_eq!(data_of(&read(&place, "page.html"))["runs"].as_array().unwrap().len(), 1);
    place.refuse("report young two", &["young holds no log.jsonl", "two/log.jsonl cannot be read"]);
}
