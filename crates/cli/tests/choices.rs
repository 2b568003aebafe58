//! Other choices than plain beam search, ensembles, experts and gates, and `mae interactive`, as a user runs them.

use std::io::{BufRead, BufReader, Write};

use mae_model::config::System;
use serde_json::Value;

use crate::common::place::{Place, TEXT, numbers, objects};

/// All choices keep lines in order and do not depend on batches, nor on the command.
#[test]
fn every_choice_gives_one_line_per_line_whatever_the_batches() {
    let place = Place::new(None);
    let plain = place.translate("--source src --plain").out;
    let sampling = "--sampling --temperature 2 --min-len 4";
    let choices = [
        "--no-repeat-ngram-size 1",
        "--diverse-beam-groups 5 --diverse-beam-strength 2 --min-len 3",
        sampling,
        "--sampling --sampling-topk 3 --beam 2",
        "--sampling --sampling-topp 0.5 --seed 5",
        "--expert argmax",
        "--expert 3",
        "--expert random",
        "--prefix-file begins",
    ];
    place.write("begins", "x z\n\nv v\nu@@ x\nz\n\n");
    for choice in choices {
        let together = place.translate(&format!("--source src --plain {choice}")).out;
        assert_eq!(together.lines().count(), 6, "{choice}");
        let alone = place.translate(&format!("--source src --plain --batch-size 1 --threads 1 {choice}")).out;
        assert_eq!(alone, together, "{choice}");
        if !choice.contains("prefix") {
            for buffer in ["", "--buffer-size 4"] {
                let args = format!("interactive model --max-len-b 9 --plain {buffer} {choice}");
                assert_eq!(place.mae(&args, TEXT).out, together, "{args}");
            }
        }
        assert!(choice.contains("expert") || together != plain, "{choice} changes nothing");
    }
    let other = place.translate(&format!("--source src --plain --seed 2 {sampling}")).out;
    assert_ne!(other, place.translate(&format!("--source src --plain {sampling}")).out);
    assert_eq!(
        place.translate("--source src --plain --beam 1").out,
        place.translate("--source src --plain --beam 1 --sampling --sampling-topk 1").out
    );
}

#[test]
fn prefixes_begin_the_translations() {
    let place = Place::new(None);
    place.write("begins", "x z\n\nv unheard\nu@@ x\nz\nx\n");
    let printed = place.translate("--source src --prefix-file begins --plain --remove-bpe=false");
    let begins = |out: &str, line: usize, words: &str| out.lines().nth(line).unwrap().starts_with(words);
    for (line, words) in [(0, "x z"), (2, "v <unk>"), (3, "u@@ x"), (5, "x")] {
        assert!(begins(&printed.out, line, words), "{}", printed.out);
    }
    assert!(
        printed.err.contains("1 of 8 prefix tokens (12.5 %) are not in the dictionary"),
        "{}",
        printed.err
    );
    let (source, wanted) = (TEXT.lines(), "x z\n\nv unheard\nu@@ x\nz\nx");
    let lines: String =
        source.zip(wanted.lines()).map(|(line, begin)| format!("{line}\t{begin}\n")).collect();
    let typed = "interactive model --max-len-b 9 --prefix-after-tab --plain --remove-bpe=false --buffer-size";
    for buffer in [1, 4] {
        assert_eq!(place.mae(&format!("{typed} {buffer}"), &lines).out, printed.out);
    }
    let free = place.translate("--source src --plain --remove-bpe=false").out;
    assert_eq!(place.mae(&format!("{typed} 2"), TEXT).out, free, "no tab, no prefix");
    place.write("pieces", "x z\n\nz y@@ x\nx x\n\nv\n");
    let printed = place
        .translate("--source src --target pieces --prefix-size 2 --plain --remove-bpe=false --min-len 4");
    for (line, words) in [(0, "x z"), (2, "z y@@"), (3, "x x")] {
        assert!(begins(&printed.out, line, words), "{}", printed.out);
    }
    assert_eq!(
        printed.out.lines().nth(5),
        Some("v"),
        "a reference that ends is the translation, as in fairseq"
    );
    place.refuse("generate model --source src --prefix-size 2", &["--prefix-size", "--target FILE"]);
    place.write("begins", "x\n");
    place.refuse("generate model --source src --prefix-file begins", &["src has 6 lines, begins has 1"]);
    place.refuse("generate model --source - --prefix-file -", &["standard input"]);
}

#[test]
fn ensembles_translate_together() {
    let place = Place::new(None);
    let words = ["x", "y@@", "z", "u@@", "v"];
    place.model("other", System::BASE, 9, &words, None);
    place.model("foreign", System::MAE, 9, &["x", "y@@", "z", "w@@", "v"], None);
    let run = |models: &str, args: &str| {
        let printed = place.mae(&format!("generate {models} --max-len-b 9 --source src {args}"), "");
        assert!(printed.success, "{}", printed.err);
        printed.out
    };
    let alone = run("model", "--plain");
    assert_eq!(run("model:model", "--plain"), alone);
    assert_ne!(run("model:other", "--plain"), alone);
    assert_eq!(run("model:other", "--jsonl --nbest 3").lines().count(), 6);
    // What an ensemble finds scores the same as a reference.
    let found = objects(&run("model:other", "--jsonl"));
    place.write("pieces", &run("model:other", "--plain --remove-bpe=false"));
    let scored = objects(&run("model:other", "--target pieces --score-reference --jsonl"));
    for (found, scored) in found.iter().zip(&scored).filter(|(found, _)| found["source"] != "") {
        let (found, scored) = (numbers(&found["hypotheses"][0]["logprobs"]), numbers(&scored["logprobs"]));
        assert!(found.iter().zip(&scored).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {scored:?}");
    }
    place.refuse(
        "generate model:foreign --source src",
        &[
            "foreign and model cannot translate together",
            "target dictionaries",
            "id 4 is `v` in the one, `u@@` in the other",
        ],
    );
    place.refuse("generate model:nowhere --source src", &["nowhere is not a model folder"]);
    place.refuse("generate model:other --source src --jsonl --gates", &["--gates", "one model"]);
    place.refuse("generate model:other --source src --expert argmax", &["other has none (BASE)"]);
}

#[test]
fn gates_are_in_the_json() {
    let place = Place::new(None);
    let sums_to_one = |row: &Value| {
        let row = numbers(row);
        assert_eq!(row.len(), 4);
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
    };
    for expert in ["mix", "argmax", "random", "2"] {
        let printed = place.translate(&format!("--source src --jsonl --gates --nbest 2 --expert {expert}"));
        for line in objects(&printed.out).iter().filter(|line| line["source"] != "") {
            sums_to_one(&line["gates"]["encoder.layers.0.self_attn"]);
            for hypothesis in line["hypotheses"].as_array().unwrap() {
                let (gates, tokens) = (&hypothesis["gates"], hypothesis["tokens"].as_array().unwrap());
                assert_eq!(gates.as_object().unwrap().len(), 4);
                for layer in ["decoder.layers.0.self_attn", "decoder.layers.1.encoder_attn"] {
                    let rows = gates[layer].as_array().unwrap();
                    assert_eq!(rows.len(), tokens.len());
                    rows.iter().for_each(sums_to_one);
                }
            }
        }
    }
    assert!(!place.translate("--source src --jsonl").out.contains("gates"));
    for style in ["generate model", "generate model --plain", "translate model"] {
        place.refuse(&format!("{style} --source src --gates"), &["--gates", "--jsonl"]);
    }
}

#[test]
fn experts_that_are_not_there_are_refused() {
    let place = Place::new(None);
    place.model("uniform", System::UNIFORM, 4, &["x", "y@@", "z", "u@@", "v"], None);
    place.refuse("generate model --source src --expert 4", &["--expert 4", "has 4 experts, numbers 0 to 3"]);
    place.refuse("generate model --source src --expert best", &["mix, argmax, random"]);
    place.refuse("generate uniform --source src --expert argmax", &["needs gates", "`random`"]);
    let random = place.mae("generate uniform --source src --plain --expert random", "");
    assert!(random.success && random.out.lines().count() == 6, "{}", random.err);
}

#[test]
fn choices_that_contradict_each_other_are_refused() {
    let place = Place::new(None);
    let refuse =
        |args: &str, parts: &[&str]| place.refuse(&format!("generate model --source src {args}"), parts);
    refuse("--diverse-beam-groups 2", &["beam = 5", "2 groups"]);
    refuse("--diverse-beam-groups 5 --sampling", &["--sampling"]);
    refuse("--sampling-topk 3", &["--sampling"]);
    refuse("--sampling --sampling-topp 1.5", &["sampling_topp = 1.5"]);
    refuse("--temperature 0", &["temperature = 0"]);
    place.refuse("interactive model --buffer-size 0", &["--buffer-size 0"]);
}

/// Every line is answered before the next is written.
#[test]
fn interactive_answers_at_once() {
    let place = Place::new(None);
    let plain = place.translate("--source src --plain").out;
    let mut child = place.start("interactive model --max-len-b 9 --plain");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (line, want) in TEXT.lines().zip(plain.lines()) {
        writeln!(stdin, "{line}").unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end_matches('\n'), want);
    }
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && err.contains("Translated 6 sentences ("), "{err}");
    assert!(err.contains("1 of 12 source tokens") && err.contains("1 (line 4)"), "{err}");
    // Numbers go on from buffer to buffer; the blocks are those of generate.
    let blocks = place.mae("interactive model --max-len-b 9 --buffer-size 2", TEXT).out;
    let from_file = place.translate("--source src").out;
    // Scores may differ in their last digits: they are computed with other neighbours.
    let words = |out: &str| -> Vec<String> {
        let number = |field: &str| field.split(' ').all(|part| part.parse::<f64>().is_ok());
        out.lines().flat_map(|line| line.split('\t')).filter(|f| !number(f)).map(str::to_owned).collect()
    };
    assert_eq!(words(&blocks), words(&from_file));
    let from_file = place.mae("interactive model --max-len-b 9 --plain --input src", "");
    assert_eq!(from_file.out, plain);
}
