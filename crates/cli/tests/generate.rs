//! `mae generate` as a user runs it: the built program on a tiny random model folder.

use std::path::Path;

use mae_data::bpe::Codes;
use mae_data::{DatasetWriter, Vocab};

use crate::common::place::{Place, TEXT, numbers, objects, tagged, vocab};

#[test]
fn one_line_out_for_one_line_in() {
    let place = Place::new(None);
    let plain = place.translate("--source src --plain");
    assert_eq!(plain.out.lines().count(), 6);
    for (i, line) in plain.out.lines().enumerate() {
        assert_eq!(line.is_empty(), [1, 4].contains(&i), "line {i}: {line}");
        assert!(!line.contains("@@"), "{line}");
    }
    assert!(plain.err.contains("1 of 12 source tokens (8.3 %) are not in the dictionary"), "{}", plain.err);
    assert!(plain.err.contains("1 (line 4)"), "{}", plain.err);
    assert!(plain.err.contains("Translated 6 sentences ("), "{}", plain.err);
    assert!(!plain.err.contains("BLEU"), "{}", plain.err);
    let piped = place.mae("generate model --max-len-b 9 --source - --plain", TEXT);
    assert_eq!(piped.out, plain.out);
    // Batches do not matter.
    for batching in ["--batch-size 1", "--max-tokens 1", "--max-tokens 9 --threads 1"] {
        assert_eq!(place.translate(&format!("--source src --plain {batching}")).out, plain.out);
    }
    assert_eq!(place.mae("generate model --source - --plain", "").out, "");
}

#[test]
fn blocks_are_fairseqs() {
    let place = Place::new(None);
    let printed = place.translate("--source src --target tgt");
    let tags: Vec<&str> = printed.out.lines().filter_map(|line| line.split_once('\t')).map(|f| f.0).collect();
    let want: Vec<String> =
        (0..6).flat_map(|i| ["S", "T", "H", "D", "P"].map(|tag| format!("{tag}-{i}"))).collect();
    assert_eq!(tags, want);
    assert_eq!(tagged(&printed.out, "S-3"), ["c <unk> a"]);
    assert_eq!(tagged(&printed.out, "T-2"), ["z yx"]);
    let second = |line: &&str| line.split_once('\t').unwrap().1.to_owned();
    let detokenised: Vec<String> = tagged(&printed.out, "D-").iter().map(second).collect();
    let plain = place.translate("--source src --plain").out;
    assert_eq!(detokenised, plain.lines().collect::<Vec<_>>());
    assert!(printed.err.contains("Generate src with beam=5: BLEU4 = "), "{}", printed.err);
    // A score is the mean of its positions, in base 2.
    for (h, p) in tagged(&printed.out, "H-0").iter().zip(tagged(&printed.out, "P-0")) {
        let each: Vec<f64> = p.split(' ').map(|v| v.parse().unwrap()).collect();
        let score: f64 = h.split_once('\t').unwrap().0.parse().unwrap();
        assert!((score - each.iter().sum::<f64>() / each.len() as f64).abs() < 1e-3, "{h} {p}");
    }
    place.translate("--source src --target tgt --output out.txt");
    assert_eq!(std::fs::read_to_string(place.path("out.txt")).unwrap(), printed.out);
    assert!(!place.path("out.txt.tmp").exists());
}

#[test]
fn json_holds_natural_logarithms() {
    let place = Place::new(None);
    let lines = objects(&place.translate("--source src --nbest 3 --jsonl").out);
    let blocks = place.translate("--source src --nbest 3").out;
    assert_eq!(lines.len(), 6);
    for (id, line) in lines.iter().enumerate() {
        assert_eq!(line["id"], id);
        assert!(line.get("target").is_none());
        let found = line["hypotheses"].as_array().unwrap();
        let printed = tagged(&blocks, &format!("H-{id}"));
        assert_eq!(found.len(), printed.len());
        let mut last = 0.0;
        for (hypothesis, printed) in found.iter().zip(printed) {
            let (base2, text) = printed.split_once('\t').unwrap();
            let score = hypothesis["score"].as_f64().unwrap();
            assert!((score - base2.parse::<f64>().unwrap() * std::f64::consts::LN_2).abs() < 1e-5);
            assert_eq!(hypothesis["text"], text);
            assert!(score <= last, "best first");
            last = score;
            let (tokens, each) = (hypothesis["tokens"].as_array().unwrap(), numbers(&hypothesis["logprobs"]));
            assert_eq!(tokens.len(), each.len());
            assert!(tokens.last().is_none_or(|token| token == "</s>"));
            assert!((score * each.len() as f64 - each.iter().sum::<f64>()).abs() < 1e-4);
        }
    }
}

#[test]
fn references_are_scored() {
    let place = Place::new(None);
    // The model's own translations, as pieces, score what the search said.
    let found = objects(&place.translate("--source src --jsonl").out);
    let pieces = place.translate("--source src --plain --remove-bpe=false").out;
    place.write("pieces", &pieces);
    let scores = objects(&place.translate("--source src --target pieces --score-reference --jsonl").out);
    assert_eq!(scores.len(), 6);
    for (found, scored) in found.iter().zip(&scores).filter(|(found, _)| found["source"] != "") {
        let (found, each) = (numbers(&found["hypotheses"][0]["logprobs"]), numbers(&scored["logprobs"]));
        assert_eq!(found.len(), each.len());
        assert!(found.iter().zip(&each).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {each:?}");
        assert!((each.iter().sum::<f64>() - scored["sum"].as_f64().unwrap()).abs() < 1e-5);
    }
    let plain = place.translate("--source src --target pieces --score-reference --plain");
    let sums: Vec<f64> = plain.out.lines().map(|line| line.parse().unwrap()).collect();
    assert!(sums.iter().zip(&scores).all(|(a, b)| (a - b["sum"].as_f64().unwrap()).abs() < 1e-5));
    assert!(plain.err.contains("Scored 6 sentences"), "{}", plain.err);
    place.refuse("generate model --source src --score-reference", &["--target FILE"]);
}

#[test]
fn long_lines_are_cut_and_counted() {
    let place = Place::new(None);
    let long = ["a"; 40].join(" ");
    place.write("long", &format!("b\n{long}\nc d\n"));
    place.write("cut", &format!("b\n{}\nc d\n", ["a"; 11].join(" ")));
    let run = |source: &str| place.mae(&format!("generate model --source {source} --plain"), "");
    let printed = run("long");
    assert_eq!(printed.out.lines().count(), 3);
    assert_eq!(printed.out, run("cut").out);
    // The longest translation leaves room for its end mark.
    assert!(printed.out.lines().all(|line| line.split(' ').count() <= 11), "{}", printed.out);
    let note = "cut to the 12 tokens that the model can take: 1 (line 2)";
    assert!(printed.err.contains(note), "{}", printed.err);
}

#[test]
fn text_is_segmented_with_the_models_codes() {
    let place = Place::new(Some(Codes { merges: vec![("c".into(), "d</w>".into())], ..Codes::default() }));
    place.write("whole", "ab ba\n");
    place.write("pieces", "a@@ b b@@ a\n");
    let whole = place.translate("--source whole --remove-bpe=false");
    assert_eq!(tagged(&whole.out, "S-0"), ["a@@ b b@@ a"]);
    assert_eq!(place.translate("--source pieces --no-bpe --remove-bpe=false").out, whole.out);
    assert_eq!(tagged(&place.translate("--source whole").out, "S-0"), ["ab ba"]);
}

fn binarise(place: &Place, folder: &str, source: &Vocab) {
    let model = place.path("model");
    let data = place.path(folder);
    std::fs::create_dir(&data).unwrap();
    let target = Vocab::load(model.join("dict.tgt.txt")).unwrap();
    for (lang, vocab, text) in [("de", source, TEXT), ("en", &target, "x z\n\nz y\nx x\n\nv\n")] {
        vocab.save(data.join(format!("dict.{lang}.txt"))).unwrap();
        let mut writer = DatasetWriter::create(data.join(format!("test.de-en.{lang}")), vocab.len()).unwrap();
        text.lines().for_each(|line| writer.push(&vocab.encode_line(line)).unwrap());
        writer.finish().unwrap();
    }
}

#[test]
fn a_binarised_folder_translates_as_its_text() {
    let place = Place::new(None);
    binarise(&place, "data", &Vocab::load(place.path("model/dict.src.txt")).unwrap());
    let from_folder = place.translate("data");
    let from_text = place.translate("--source src");
    assert_eq!(tagged(&from_folder.out, "H-"), tagged(&from_text.out, "H-"));
    assert_eq!(tagged(&from_folder.out, "T-2"), ["z <<unk>>"]);
    assert!(from_folder.err.contains("Generate test with beam=5: BLEU4 = "), "{}", from_folder.err);
    place.refuse("generate model data --gen-subset valid", &["subset `valid`", "valid.de-en.de.idx"]);
    binarise(&place, "other", &vocab(&["a", "b", "other"]));
    place.refuse("generate model other", &["dict.de.txt is not the dictionary", "id ", "--source FILE"]);
}

#[test]
fn faults_are_explained() {
    let place = Place::new(None);
    place.refuse(
        "generate no-such-folder --source src",
        &["no-such-folder is not a model folder", "config.toml"],
    );
    place.refuse("generate model", &["nothing to translate", "--source"]);
    place.refuse("generate model --source nowhere", &["nowhere"]);
    place.refuse("generate model --source src --nbest 9", &["nbest = 9", "beam = 5"]);
    place.refuse("generate model --source src --plain --nbest 2", &["--plain"]);
    place.refuse("generate model --source src --max-tokens 0", &["--max-tokens"]);
    place.refuse("generate model --source - --target -", &["standard input"]);
    place.write("short", "x\n");
    place.refuse("generate model --source src --target short", &["src has 6", "short has 1"]);
    let output = Path::new("no/such/place.txt");
    place.refuse(
        &format!("generate model --source src --output {}", output.display()),
        &["cannot write no/such/place.txt", "no folder no/such"],
    );
    place.refuse("generate model --source src --output model", &["cannot write model: it is a folder"]);
}

/// `mae … 2>&1 | head` ends the program quietly.
#[test]
fn nobody_reads_the_messages() {
    let place = Place::new(None);
    let mut child = place.start("generate model --max-len-b 9 --source src --plain");
    drop(child.stderr.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(141));
}
