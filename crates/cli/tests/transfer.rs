//! `mae transfer` as users run it: the whole study, in sittings, with mistakes.

use std::path::Path;

use serde_json::Value;

use crate::common::{Sandbox, lines};

const WORDS: [&str; 6] = ["eins", "zwei", "drei", "vier", "fünf", "sechs"];

/// Sentences in which word i is translated as word i + `shift`.
fn write_corpus(place: &Sandbox, name: &str, shift: usize) {
    let sentence = |i: usize, shift: usize| {
        let picked = (0..2 + i % 4).map(|j| WORDS[(i * 5 + j * (1 + i % 3) + shift) % 6]);
        picked.collect::<Vec<_>>().join(" ")
    };
    for (split, from, to) in [("train", 0, 200), ("valid", 200, 220)] {
        for (lang, shift) in [("de", 0), ("en", shift)] {
            let text: Vec<String> = (from..to).map(|i| sentence(i, shift)).collect();
            place.write(&format!("{name}.{split}.{lang}"), lines(&text));
        }
    }
}

/// A model in `parent/checkpoint_best`, and other data for it in `ted`.
fn place() -> Sandbox {
    let place = Sandbox::new();
    write_corpus(&place, "wmt", 1);
    write_corpus(&place, "ted", 2);
    let preprocess = |name: &str, more: &[&str]| {
        let (train, valid) = (format!("{name}.train"), format!("{name}.valid"));
        let files = ["--trainpref", &train, "--validpref", &valid, "--destdir", name];
        place.mae(&["preprocess", "-s", "de", "-t", "en"], &[&files[..], more].concat()).succeeded();
    };
    preprocess("wmt", &["--bpe", "20"]);
    let train = ["train", "wmt", "--recipe", "multi30k-mae7", "--save-dir", "parent", "--device", "cpu"];
    let sizes = ["encoder_layers=1", "decoder_layers=1", "encoder_embed_dim=32", "encoder_ffn_embed_dim=48"];
    let sizes: Vec<String> = sizes.iter().map(|size| format!("model.{size}")).collect();
    let mut flags =
        vec!["--max-tokens", "200", "--max-epoch", "12", "--lr", "1e-2", "--warmup-updates", "20"];
    flags.extend(["--dropout", "0", "--set", "model.mixture.gate_hidden=8", "--gate-every-updates", "3"]);
    sizes.iter().for_each(|size| flags.extend(["--set", size]));
    place.mae(&train, &flags).succeeded();
    let model = "parent/checkpoint_best";
    let (source, target) = (format!("{model}/dict.src.txt"), format!("{model}/dict.tgt.txt"));
    let codes = format!("{model}/bpe.codes");
    preprocess("ted", &["--srcdict", &source, "--tgtdict", &target, "--bpe-codes", &codes]);
    place
}

fn args<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let all = ["transfer", "--parent", "parent/checkpoint_best", "--data", "ted", "--out", out];
    let small =
        ["--device", "cpu", "--threads", "1", "--set", "train.max_tokens=200", "--set", "model.dropout=0.0"];
    let budgets =
        ["--updates", "ftg=20,ftg+=20,ftall=60,scratch=30", "--set", "train.save_interval_updates=10"];
    [&all[..], &small[..], &budgets[..], more].concat()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn methods_and_parts() {
    let place = place();
    let rates = ["--set", "train.lr=1e-2", "--set", "train.warmup_updates=10"];
    let told = place.mae(&args("out", &[&["--fractions", "25,100"], &rates[..]].concat()), &[]);
    let table = told.succeeded();
    for part in ["noft", "ftg+", "25 %", "100 %", "paper, 100 %", "31.6", "parameters trained", "valid set"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let found = json(&place.path("out/transfer.json"));
    let run = |name: &str| &found["runs"][name];
    let bleu = |name: &str| run(name)["translation"]["bleu_tokenised"].as_f64().unwrap();
    let trained = |name: &str| run(name)["trained_parameters"].as_u64().unwrap();
    assert_eq!(found["runs"].as_object().unwrap().len(), 1 + 4 * 2);
    // The model as it is says what it said; trained on the other data, it says more.
    let parent =
        ["generate", "parent/checkpoint_best", "ted", "--gen-subset", "valid", "--plain", "--device", "cpu"];
    let parent = place.mae(&parent, &["--beam", "5"]);
    let kept = std::fs::read_to_string(place.path("out/noft/hypotheses.tok")).unwrap();
    assert_eq!(parent.succeeded(), kept);
    assert!(bleu("ftall-100pct-1") > bleu("noft") + 10.0, "{} {}", bleu("ftall-100pct-1"), bleu("noft"));
    assert_eq!((trained("noft"), run("noft")["updates"].as_u64()), (0, Some(0)));
    assert!(0 < trained("ftg-25pct-1") && trained("ftg-25pct-1") < trained("ftg+-25pct-1"));
    assert!(trained("ftg+-25pct-1") < trained("ftall-25pct-1"));
    assert_eq!(trained("ftall-25pct-1"), run("ftall-25pct-1")["parameters"].as_u64().unwrap());
    assert_eq!(run("ftg+-25pct-1")["config"]["train.subset"], "0.25");
    assert_eq!(run("scratch-100pct-1")["config"]["train.finetune_from_model"], "\"\"");
    let svg = std::fs::read_to_string(place.path("out/transfer.svg")).unwrap();
    assert!(svg.contains("per cent of the training set") && svg.contains(">ftg+<"), "{svg}");
    assert!(std::fs::read_to_string(place.path("out/transfer.html")).unwrap().contains("\\u003csvg"));
    // Another seed joins the table; nothing is made again.
    let more = ["--fractions", "100", "--methods", "ftg", "--seeds", "2"];
    let again = place.mae(&args("out", &[&more[..], &rates[..]].concat()), &[]);
    assert!(again.succeeded().contains('±') && !again.stderr.contains("ftall"), "{}", again.stderr);
    let points = json(&place.path("out/transfer.json"))["points"].clone();
    let point = points.as_array().unwrap().iter().find(|p| p["method"] == "ftg" && p["fraction"] == 100.0);
    assert_eq!(point.unwrap()["seeds"], serde_json::json!([1, 2]));
    let shown = place.mae(&["transfer", "--out", "out", "--table"], &["--fractions", "25", "--seeds", "1"]);
    assert!(shown.succeeded().contains("25 %") && !shown.stdout.contains("Not done"), "{}", shown.stdout);
    // Without flags, all that is there and no more.
    let shown = place.mae(&["transfer", "--out", "out", "--table"], &[]);
    for part in ["25 %", "100 %", "±", "valid set", "lowest development loss"] {
        assert!(shown.succeeded().contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("50 %") && !shown.stdout.contains("Not done"), "{}", shown.stdout);
    let none = place.mae(&["transfer", "--out", "out", "--table"], &["--fractions", "77"]);
    assert!(none.failed().contains("out holds none of the runs"), "{}", none.stderr);
    // Asked for another set when all is done: said, and the table is of what was measured.
    let done = [&["--fractions", "25,100,25", "--split", "train"], &rates[..]].concat();
    let asked = place.mae(&args("out", &done), &[]);
    let said = "translation.split = \"valid\" (now \"train\")";
    assert!(asked.succeeded().contains(said) && asked.stderr.contains(said), "{}", asked.stderr);
    assert!(asked.stdout.contains("BLEU of the valid set"), "{}", asked.stdout);
    let shown = place.mae(&["transfer", "--out", "out", "--table"], &[]);
    assert!(shown.succeeded().contains("valid set") && !shown.stdout.contains("train set"), "{shown:?}");
    // Another parent in the place of the first: nothing new is begun beside its runs.
    let weights = place.path("parent/checkpoint_best/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let mixed = place.mae(&args("out", &[&["--fractions", "10"], &rates[..]].concat()), &[]);
    assert!(mixed.failed().contains("was made from another parent"), "{}", mixed.stderr);
    assert!(!place.path("out/ftg-10pct-1").exists());
}

#[test]
fn without_a_development_set_the_last_checkpoint_is_measured() {
    let place = place();
    for end in ["idx", "bin"] {
        for side in ["de", "en"] {
            std::fs::remove_file(place.path(&format!("ted/valid.de-en.{side}.{end}"))).unwrap();
        }
    }
    let told = place.mae(&args("out", &["--methods", "ftg", "--fractions", "20", "--split", "train"]), &[]);
    assert!(told.succeeded().contains("of the last checkpoint, for there was no validation"), "{told:?}");
    let shown = place.mae(&["transfer", "--out", "out", "--table"], &[]);
    for part in ["20 %", "train set", "the last checkpoint"] {
        assert!(shown.succeeded().contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("scratch") && !shown.stdout.contains("50 %"), "{}", shown.stdout);
}

#[test]
fn sittings_lead_to_the_same_models() {
    let place = place();
    let more = ["--fractions", "50", "--methods", "ftg+"];
    place.mae(&args("whole", &more), &[]).succeeded();
    for _ in 0..3 {
        let sitting = place.mae(&args("short", &[&more[..], &["--stop-after", "0.000001"]].concat()), &[]);
        assert!(sitting.succeeded().contains("Not done yet (1): ftg+-50pct-1"), "{}", sitting.stdout);
    }
    place.mae(&args("short", &more), &[]).succeeded();
    let weights = |out: &str| {
        std::fs::read(place.path(out).join("ftg+-50pct-1/checkpoint_best/model.safetensors")).unwrap()
    };
    assert!(weights("short") == weights("whole"), "weights differ");
}

#[test]
fn fractions_are_those_of_the_flag_in_any_order() {
    let place = place();
    let few = ["--methods", "noft,ftg", "--updates", "ftg=1", "--fractions", "50,100,12.5,50"];
    let told = place.mae(&args("out", &few), &[]);
    let columns: Vec<&str> =
        told.succeeded().lines().find(|line| line.contains(" %")).unwrap().split("  ").collect();
    let columns: Vec<&str> = columns.into_iter().map(str::trim).filter(|column| !column.is_empty()).collect();
    assert_eq!(columns, ["method", "12.5 %", "50 %", "100 %", "paper, 100 %"], "{}", told.stdout);
    // The largest part is trained first.
    let begun = |name: &str| told.stderr.find(name).unwrap_or_else(|| panic!("{name}: {}", told.stderr));
    let order = ["ftg-100pct-1", "ftg-50pct-1", "ftg-12.5pct-1"].map(begun);
    assert!(order.is_sorted(), "{}", told.stderr);
    let found = json(&place.path("out/transfer.json"));
    assert_eq!(found["runs"].as_object().unwrap().len(), 1 + 3);
    let part = |name: &str| found["runs"][name]["config"]["train.subset"].clone();
    assert_eq!(["ftg-12.5pct-1", "ftg-50pct-1", "ftg-100pct-1"].map(part), ["0.125", "0.5", "1.0"]);
}

#[test]
fn wrong_methods_fractions_and_keys_are_refused() {
    let place = place();
    let refused = |args: &[&str], parts: &[&str]| {
        let told = place.mae(args, &[]);
        let said = told.failed();
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    refused(
        &args("out", &["--methods", "ftgg"]),
        &["ftgg", "did you mean `ftg`", "noft, ftg, ftg+, ftall, scratch"],
    );
    for wrong in ["0", "-5", "100.1", "NaN", "inf", "5,0"] {
        let wrong = format!("--fractions={wrong}");
        let said = ["fraction ", "parts are in per cent, above 0 and at most 100"];
        refused(&args("out", &[&wrong]), &said);
    }
    for wrong in ["half", "5%", "5;10"] {
        let told = place.mae(&args("out", &["--fractions", wrong]), &[]);
        let said = format!("invalid value '{wrong}' for '--fractions <PERCENT>': expected a number");
        assert!(told.failed().contains(&said), "{}", told.stderr);
    }
    assert!(!place.path("out").exists());
    refused(&args("out", &["--updates", "ftall=0"]), &["ftall", "max_update"]);
    refused(&args("out", &["--updates", "ftall"]), &["METHOD=N"]);
    refused(&args("out", &["--methods", "noft", "--set", "train.speed=9"]), &["train.speed"]);
    for (key, flag) in [
        ("train.seed=2", "--seeds"),
        ("train.subset=0.5", "--fractions"),
        ("train.free=all", "--methods"),
        ("train.max_update=9", "--updates"),
        ("train.finetune_from_model=ted", "--parent"),
    ] {
        refused(&args("out", &["--methods", "noft", "--set", key]), &["--set", flag]);
    }
    refused(&["transfer", "--out", "nowhere", "--table"], &["nowhere"]);
    refused(&["transfer", "--out", "ted", "--table"], &["ted holds no run of a transfer study"]);
    refused(
        &["transfer", "--parent", "ted", "--data", "ted", "--out", "out"],
        &["--parent ted", "config.toml"],
    );
    // Data with other dictionaries: told before anything is done.
    write_corpus(&place, "odd", 3);
    let odd = ["--trainpref", "odd.train", "--validpref", "odd.valid", "--destdir", "odd", "--bpe", "3"];
    place.mae(&["preprocess", "-s", "de", "-t", "en"], &odd).succeeded();
    let model = "parent/checkpoint_best";
    let wrong = ["transfer", "--parent", model, "--data", "odd", "--out", "odd-out", "--device", "cpu"];
    refused(&wrong, &["dictionaries differ", "--srcdict parent/checkpoint_best/dict.src.txt"]);
    assert!(!place.path("odd-out").exists());
}
