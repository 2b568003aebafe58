//! `mae convert` from the outside.

use mae_engine::Device;
use mae_model::config::System;
use mae_model::folder::ModelFolder;

use crate::common;
use crate::common::place::Place;

fn place() -> Place {
    let place = Place::new(None);
    place.model("base", System::BASE, 5, &["x", "y@@", "z", "u@@", "v"], None);
    place.write("valid.a", "a b c\nb\nd a b\n");
    place.write("valid.x", "x z\nv\nz v x\n");
    let made = place.mae(
        "preprocess -s a -t x --validpref valid --srcdict base/dict.src.txt --tgtdict base/dict.tgt.txt --destdir bin",
        "",
    );
    assert!(made.success, "{}", made.err);
    place
}

#[test]
fn gates_come_and_go_without_a_change() {
    let place = place();
    let run = |args: &str| {
        let printed = place.mae(args, "");
        assert!(printed.success, "{args}: {}", printed.err);
        printed.out
    };
    let translate = |model: &str| run(&format!("generate {model} --source src --max-len-b 9 --device cpu"));
    let said = run("convert base --system mae3 --out gated --gate-hidden 5 --device cpu");
    assert!(said.contains("gated: mae3, 4 heads") && said.contains("no bit changes"), "{said}");
    assert_eq!(translate("gated"), translate("base"));
    // A second time, in the place of the first; and back to a plain model.
    run("convert base --system mae2 --out gated --device cpu");
    let said = run("convert gated --system base --out plain --data bin --device cpu --json");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["losses"][0], report["losses"][1], "{said}");
    assert_eq!(translate("plain"), translate("base"));
    for system in ["uni-mae3", "nobcd", "sigmoid", "l0"] {
        run(&format!("convert base --system {system} --out other --device cpu"));
        assert_eq!(translate("other"), translate("base"), "{system}");
    }
    // The exception, and the help says so.
    let said = run("convert base --system moh --out routed --device cpu");
    assert!(said.contains("train the model on"), "{said}");
    assert_ne!(translate("routed"), translate("base"));
    let help = run("convert --help");
    assert!(help.contains("MoH is an exception"), "{help}");
    let load = |name: &str| ModelFolder::load(&place.path(name), &Device::cpu()).unwrap().model;
    assert_eq!(load("plain").params().get("encoder.embed_tokens.weight").unwrap().len(), {
        load("base").params().get("encoder.embed_tokens.weight").unwrap().len()
    });
}

#[test]
fn trained_gates_are_folded_and_heads_removed() {
    let place = place();
    for (args, parts) in [
        ("model --out e --expert 1", &["e: base, 4 heads"][..]),
        ("model --out m --mean-gates --data bin", &["m: base", "bits/token before"]),
        ("base --out s --drop-heads 0.25 --data bin", &["s: base, 3 heads", "without head ", "after"]),
        (
            "model --out g --system mae1 --mean-gates --drop-heads 2 --by weight --data bin",
            &["mae1, 2 heads"],
        ),
    ] {
        let printed = place.mae(&format!("convert {args} --device cpu"), "");
        for part in parts {
            assert!(printed.success && printed.out.contains(part), "{args}: {}{}", printed.out, printed.err);
        }
        let name = args.split(' ').nth(2).unwrap();
        assert!(place.mae(&format!("generate {name} --source src --max-len-b 9 --device cpu"), "").success);
    }
}

#[test]
fn language_models_are_converted_too() {
    let place = common::lm::trained();
    let convert = |args: &[&str]| {
        let run = place.mae(&["convert"], &[args, &["--data", "bin", "--device", "cpu", "--json"]].concat());
        serde_json::from_str::<serde_json::Value>(run.succeeded()).unwrap()
    };
    convert(&["run/checkpoint_last", "--mean-gates", "--out", "mean"]);
    let gated = convert(&["mean", "--system", "mae3", "--out", "gated"]);
    assert_eq!((&gated["losses"][0], &gated["uniform_weight"]), (&gated["losses"][1], &1.0.into()));
    let small = convert(&["mean", "--drop-heads", "1", "--out", "small"]);
    assert_eq!((&small["heads"], small["removed"].as_array().unwrap().len()), (&3.into(), 2));
    place.mae(&["eval-lm", "small", "--data", "bin", "--device", "cpu"], &[]).succeeded();
}

#[test]
fn mistakes_are_explained_and_nothing_is_written() {
    let place = place();
    place.write("notes", "mine");
    std::fs::create_dir(place.path("mine")).unwrap();
    std::fs::rename(place.path("notes"), place.path("mine/notes")).unwrap();
    for (args, parts) in [
        ("model --out new", &["have been trained", "--expert", "--mean-gates"][..]),
        ("model --out new --expert 4", &["no expert 4", "4 experts"]),
        ("base --out new --expert 0", &["no expert 0", "no experts"]),
        ("model --out new --mean-gates", &["--data"]),
        ("base --out new --drop-heads 2", &["--data"]),
        ("base --out new --drop-heads 4 --data bin", &["4 of 4 heads"]),
        ("base --out new --drop-heads 0 --data bin", &["--drop-heads", "1 or more"]),
        ("base --out new --drop-heads 1.5 --data bin", &["between 0 and 1"]),
        ("base --out new --system mae4", &["between 1 and 3 of 4 heads"]),
        ("base --out new --system moe", &["no system is called `moe`"]),
        ("base --out base --system mae3", &["is a model that is read"]),
        ("base --out mine --system mae3", &["other files"]),
        ("base --out mine/notes --system mae3", &["is a file"]),
        ("nowhere --out new", &["nowhere"]),
    ] {
        place.refuse(&format!("convert {args} --device cpu"), parts);
        assert!(!place.path("new").exists(), "{args}");
    }
    assert_eq!(std::fs::read_to_string(place.path("mine/notes")).unwrap(), "mine");
}
