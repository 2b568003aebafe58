use std::sync::Arc;

use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::ModelConfig;
use mae_model::config::{CrossGate, Mixture, System};

use super::*;
use crate::gates::summarise;

const SOURCE: [&str; 4] = ["a b@@ c", "d a", "b@@ c b@@ c a d", "a"];
const TARGET: [&str; 4] = ["x y", "z@@ x", "y y x", "x z@@ y"];

fn model_and_data(mixture: Mixture) -> (Translator, ParallelDataset) {
    let vocab = |lines: &[&str]| {
        let words = lines.iter().flat_map(|line| line.split(' ')).map(|word| (word, 1));
        Arc::new(Vocab::from_counts(words, VocabOptions::default()))
    };
    let (source, target) = (vocab(&["a b@@ c d"]), vocab(&["x y z@@"]));
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 2);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (16, 20);
    (config.encoder_attention_heads, config.max_positions) = (4, 12);
    config.mixture = Mixture { gate_hidden: 6, ..mixture };
    let types = [source.len(), target.len()];
    let model = Translator::new(&config, types, &Device::cpu(), 3).unwrap();
    (model, ParallelDataset::from_lines(&SOURCE, &TARGET, source, target).unwrap())
}

const ALL: Options = Options { min_count: 1, top_words: 99, sentences: 99 };

#[test]
fn every_attention_is_reported_and_agrees_with_the_summary() {
    let (model, data) = model_and_data(Mixture { system: System::MAE, ..Mixture::default() });
    let mut done = 0;
    let found = analyse(&model, &data, None, ALL, |sentences| done = sentences).unwrap();
    assert_eq!((found.sentences, found.skipped, done, found.experts, found.heads), (4, 0, 4, 4, 4));
    let labels: Vec<&str> = found.attentions.iter().map(|report| report.label.as_str()).collect();
    assert_eq!(labels, ["encoder 1", "decoder 1", "cross 1", "decoder 2", "cross 2"]);
    for (report, summary) in found.attentions.iter().zip(summarise(&model, &data).unwrap()) {
        assert!((report.entropy.unwrap() - summary.entropy.unwrap()).abs() < 1e-9);
        assert_eq!(report.leads, summary.shares);
        // Target pieces with end marks: 3 + 3 + 4 + 4.
        assert_eq!(report.count, if report.rows == Rows::Sentences { 4 } else { 14 });
        let weights: f64 = report.head_weights.iter().map(|head| head.mean).sum();
        assert!((weights - 4.0).abs() < 1e-4 && report.information.unwrap() >= 0.0);
    }
    let encoder = &found.attentions[0];
    assert_eq!((encoder.kind, encoder.rows), (Kind::Encoder, Rows::Sentences));
    assert_eq!(found.entropy.encoder, encoder.entropy);
}

#[test]
fn words_of_the_side_that_gates_read_are_counted_with_their_leaders() {
    let (model, data) = model_and_data(Mixture { system: System::MAE, ..Mixture::default() });
    let found = analyse(&model, &data, None, ALL, |_| {}).unwrap();
    let counted = |report: &AttentionReport, word: &str| {
        report.words.iter().flatten().find(|a| a.word == word).map(|a| a.count)
    };
    // Where a single expert leads everything, no word goes with it more than chance has it.
    for report in found.attentions.iter().filter(|report| report.leads.iter().all(|&share| share < 1.0)) {
        let (own, other) = if report.kind == Kind::Encoder { (["a", "bc"], "x") } else { (["x", "zx"], "a") };
        assert!(counted(report, own[0]).is_some() || counted(report, own[1]).is_some(), "{}", report.label);
        assert_eq!(counted(report, other), None);
        assert!(report.words.iter().flatten().all(|a| a.together <= a.count && !a.word.contains("@@")));
    }
}

#[test]
fn sentences_are_kept_with_their_gates() {
    let (model, data) = model_and_data(Mixture { system: System::MAE, ..Mixture::default() });
    let found = analyse(&model, &data, None, Options { sentences: 2, ..ALL }, |_| {}).unwrap();
    let numbers: Vec<u64> = found.examples.iter().map(|sentence| sentence.number).collect();
    assert_eq!(numbers, [1, 3], "evenly spread");
    let first = &found.examples[0];
    assert_eq!(first.source, ["a", "b@@", "c", "</s>"]);
    assert_eq!(first.target, ["x", "y", "</s>"]);
    for (report, rows) in found.attentions.iter().zip(&first.gates) {
        assert_eq!(rows.len(), if report.rows == Rows::Sentences { 1 } else { 3 });
        for row in rows {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 0.003);
        }
    }
    assert!(
        analyse(&model, &data, None, Options { sentences: 0, ..ALL }, |_| {}).unwrap().examples.is_empty()
    );
}

#[test]
fn gates_that_read_the_source_go_with_source_words() {
    let mixture = Mixture { system: System::MAE, cross_gate: CrossGate::Source, ..Mixture::default() };
    let (model, data) = model_and_data(mixture);
    let found = analyse(&model, &data, None, ALL, |_| {}).unwrap();
    for report in found.attentions.iter().filter(|report| report.kind == Kind::Cross) {
        assert_eq!((report.rows, report.count), (Rows::Sentences, 4));
        assert!(report.words.iter().flatten().all(|a| ["a", "bc", "d"].contains(&a.word.as_str())));
    }
}

#[test]
fn systems_without_gates_have_nothing_to_report() {
    let (model, data) = model_and_data(Mixture { system: System::UNIFORM, ..Mixture::default() });
    let found = analyse(&model, &data, None, ALL, |_| {}).unwrap();
    assert!(found.attentions.is_empty() && found.examples.is_empty() && !found.collapse.collapsed);
    assert_eq!(found.entropy.all, None);
    let random = one_expert::Random { draws: 2, seed: 1 };
    let mut translations = 0;
    let scores = one_expert::evaluate(&model, &data, None, (1, random), || translations += 1).unwrap();
    assert_eq!((scores.argmax, scores.random.len(), translations), (None, 2, 1 + random.evaluations(false)));
}
