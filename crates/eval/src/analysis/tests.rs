use std::sync::Arc;

use mae_data::vocab::VocabOptions;
use mae_data::{PackedBatch, Vocab};
use mae_engine::Device;
use mae_model::config::{CrossGate, Mixture, System};
use mae_model::{ExpertMode, ModelConfig};

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
    let found = analyse(&model, (&data, None), ALL, Beside::default(), |sentences| done = sentences).unwrap();
    assert_eq!((found.sentences, found.skipped, done, found.experts, found.heads), (4, 0, 4, 4, 4));
    let labels: Vec<&str> = found.attentions.iter().map(|report| report.label.as_str()).collect();
    assert_eq!(labels, ["encoder 1", "decoder 1", "cross 1", "decoder 2", "cross 2"]);
    for (report, summary) in found.attentions.iter().zip(summarise(&model, &data, None).unwrap()) {
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
    let found = analyse(&model, (&data, None), ALL, Beside::default(), |_| {}).unwrap();
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
    let found =
        analyse(&model, (&data, None), Options { sentences: 2, ..ALL }, Beside::default(), |_| {}).unwrap();
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
        analyse(&model, (&data, None), Options { sentences: 0, ..ALL }, Beside::default(), |_| {})
            .unwrap()
            .examples
            .is_empty()
    );
}

#[test]
fn gates_that_read_the_source_go_with_source_words() {
    let mixture = Mixture { system: System::MAE, cross_gate: CrossGate::Source, ..Mixture::default() };
    let (model, data) = model_and_data(mixture);
    let found = analyse(&model, (&data, None), ALL, Beside::default(), |_| {}).unwrap();
    for report in found.attentions.iter().filter(|report| report.kind == Kind::Cross) {
        assert_eq!((report.rows, report.count), (Rows::Sentences, 4));
        assert!(report.words.iter().flatten().all(|a| ["a", "bc", "d"].contains(&a.word.as_str())));
    }
}

#[test]
fn systems_without_gates_have_nothing_to_report() {
    let (model, data) = model_and_data(Mixture { system: System::UNIFORM, ..Mixture::default() });
    let found = analyse(&model, (&data, None), ALL, Beside::default(), |_| {}).unwrap();
    assert!(found.attentions.is_empty() && found.examples.is_empty() && !found.collapse.collapsed);
    assert_eq!(found.entropy.all, None);
    let random = one_expert::Random { draws: 2, seed: 1 };
    let mut translations = 0;
    let everywhere = one_expert::Where::Everywhere;
    let count = || translations += 1;
    let scores = one_expert::evaluate(&model, &data, None, (1, random, everywhere), count).unwrap();
    assert_eq!((scores.argmax, scores.random.len(), translations), (None, 2, 1 + random.evaluations(false)));
}

/// With the gates that the model has, "untrained" gates are the same; with zeros in the last layer they are uniform.
#[test]
fn untrained_gates_read_the_same_inputs() {
    let (model, data) = model_and_data(Mixture { system: System::MAE, ..Mixture::default() });
    let system = model.config().mixture.system;
    // The seed of the model, which was never trained.
    let mut gates = mae_model::init::untrained_gates(model.params(), system, 3).unwrap();
    let same = Arc::new(mae_model::init::untrained_gates(model.params(), system, 3).unwrap());
    mae_model::init::make_neutral(&mut gates, system).unwrap();
    let tags = tags::Tags::of_lines(&["one", "two", "two", "one"]);
    let with = |untrained: &Arc<Params>| {
        let beside = Beside { untrained: Some(untrained), tags: Some(&tags) };
        analyse(&model, (&data, None), ALL, beside, |_| {}).unwrap()
    };
    let found = with(&same);
    assert_eq!(
        (&found.entropy, &found.information),
        (&found.untrained_entropy, &found.untrained_information)
    );
    for report in &found.attentions {
        let untrained = report.untrained.as_ref().unwrap();
        assert_eq!((&report.leads, &report.words), (&untrained.leads, &untrained.words));
        let tags = report.tags.as_ref().unwrap();
        assert_eq!(report.tags, untrained.tags);
        assert_eq!(tags.rows.iter().sum::<u64>(), report.count);
        assert!(tags.information <= report.information.unwrap() + 1e-9);
    }
    let found = with(&Arc::new(gates));
    assert!((found.untrained_entropy.all.unwrap() - 4f64.ln()).abs() < 1e-6);
    assert!(found.entropy.all.unwrap() < 4f64.ln() - 1e-4);
    let beside = Beside { untrained: None, tags: Some(&tags::Tags::of_lines(&["one"])) };
    let error = analyse(&model, (&data, None), ALL, beside, |_| {}).unwrap_err().to_string();
    assert!(error.contains("1 tags for 4 sentence pairs"), "{error}");
}

/// The oracle gains on the tokens that it sees, and what it says of the mixture is the mixture's loss.
#[test]
fn an_oracle_never_loses_on_the_tokens_that_it_sees() {
    for system in [System::MAE, System::UNIFORM] {
        let (model, data) = model_and_data(Mixture { system, ..Mixture::default() });
        let mut done = 0;
        let found = oracle::split_half(&model, &data, 9, |sentences| done = sentences).unwrap().unwrap();
        assert_eq!((found.sentences, done), (4, 4));
        assert!(found.chosen_seen < found.mixture_seen && found.kept < 1.0, "{found:?}");
        // Target pieces with end marks: 3 + 3 + 4 + 4, of which 8 are odd.
        let whole = (8.0 * found.mixture_seen + 6.0 * found.mixture) / 14.0;
        let config = mae_train::TrainConfig::default();
        let loss = mae_train::validate::development_loss(&model, &data, &config).unwrap().nll_loss;
        assert!((whole - loss).abs() < 1e-5, "{whole} {loss}");
    }
    let (model, data) = model_and_data(Mixture::default());
    assert_eq!(oracle::split_half(&model, &data, 9, |_| {}).unwrap(), None);
}

/// One expert in the encoder alone is neither one expert everywhere nor the mixture.
#[test]
fn one_expert_can_be_in_the_encoder_only() {
    let (model, data) = model_and_data(Mixture { system: System::MAE, ..Mixture::default() });
    let batch = PackedBatch::from_pairs(&data, &[0, 1, 2, 3]);
    let scores = |mode: &ExpertMode| mae_translate::score_references(&[&model], &batch, mode).unwrap();
    let (mix, everywhere) = (scores(&ExpertMode::Mix), scores(&ExpertMode::Fixed(1)));
    let encoder = scores(&ExpertMode::InEncoder(Box::new(ExpertMode::Fixed(1))));
    assert!(encoder != mix && encoder != everywhere);
    // The same, put together from what is known of the two.
    let row = model.config().experts().unwrap().matrix()[4..8].repeat(4);
    let weights = mae_engine::Tensor::from_host(&Device::cpu(), [4, 4], &row);
    let given = [("encoder.layers.0.self_attn".to_owned(), weights)];
    assert_eq!(encoder, scores(&ExpertMode::Weights(given.into())));
}
