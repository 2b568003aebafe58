//! The tables of `docs/fairseq.md`, made from the rules.

use std::fmt::Write;
use std::path::Path;

use super::list::{self, COMMANDS};
use super::rule::{self, Row, Rule};
use super::{common, model, others, training};

/// Marks of the part of the document that is made here.
const MARKS: [&str; 2] = ["<!-- flags: begin -->\n", "<!-- flags: end -->\n"];

/// Tables by their headings, with a command that has their flags.
const TABLES: [(&str, &str, &[Row]); 12] = [
    ("All commands", "train", common::COMMON),
    ("Data and batches", "train", common::DATA),
    ("Processes and devices", "train", common::PROCESSES),
    ("`fairseq-preprocess`", "preprocess", others::PREPROCESS),
    ("`fairseq-train`: optimisation and validation", "train", training::TRAIN),
    ("`fairseq-train`: checkpoints", "train", training::CHECKPOINTS),
    ("`fairseq-train`: models", "train", model::MODEL),
    ("`fairseq-generate` and `fairseq-interactive`", "generate", others::SEARCH),
    ("`fairseq-generate` alone", "generate", others::GENERATE),
    ("`fairseq-interactive` alone", "interactive", others::INTERACTIVE),
    ("`fairseq-eval-lm`", "eval-lm", others::EVAL_LM),
    ("`fairseq-score`, `average_checkpoints.py` and `fairseq-validate`", "score", &[]),
];

fn treatment(rule: &Rule) -> (&'static str, String) {
    match rule {
        Rule::Same => ("same", String::new()),
        Rule::Key(key) => ("translated", format!("`{key}`")),
        Rule::Keys(keys) => ("translated", format!("`{}`", keys.replace('=', " = "))),
        Rule::Words(words) => ("translated", format!("`{words}`")),
        Rule::By(_, text) => ("translated", (*text).to_owned()),
        Rule::Only(value, text) => (
            "not needed",
            format!("only `{value}`: {}", text.trim_start_matches(value).trim_start_matches([':', ';', ' '])),
        ),
        Rule::Unneeded(why) => ("not needed", (*why).to_owned()),
        Rule::Unsupported(instead) => ("not supported", (*instead).to_owned()),
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| flags | here | meaning, or what to write |\n|---|---|---|\n");
    for (names, rule) in rows {
        let flags: Vec<String> = names.split(' ').map(|name| format!("`{name}`")).collect();
        let (kind, meaning) = treatment(rule);
        let meaning = meaning.trim_end_matches([' ', ':']);
        writeln!(text, "| {} | {kind} | {meaning} |", flags.join(" ")).unwrap();
    }
    text
}

/// The whole part.
fn tables() -> String {
    let mut text = String::new();
    for (heading, command, rows) in TABLES {
        let rows = match command {
            "score" => [others::SCORE, others::AVERAGE, others::VALIDATE].concat(),
            _ => rows.to_vec(),
        };
        writeln!(text, "\n### {heading}\n\n{}", table(&rows).trim_end()).unwrap();
    }
    text.push('\n');
    text
}

#[test]
fn the_document_has_every_flag() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fairseq.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).expect("a mark for the tables");
    let (there, after) = rest.split_once(MARKS[1]).expect("a mark for their end");
    if std::env::var_os("MAE_WRITE_DOCS").is_some() {
        let text = format!("{before}{}{}{}{after}", MARKS[0], tables(), MARKS[1]);
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(there, tables(), "run this test with MAE_WRITE_DOCS=1 to write the tables");
    let missing = list::flags().filter(|listed| !there.contains(&format!("`{}`", listed.flag)));
    assert_eq!(missing.count(), 0);
    // Every table that has rules is in the document.
    for (names, _) in COMMANDS.iter().flat_map(|command| rule::tables(command)).flatten() {
        assert!(names.split(' ').all(|name| there.contains(&format!("`{name}`"))), "{names}");
    }
}
