//! Conversions: gates in without a changed bit, gates out, heads out; and the importance of heads.

use std::sync::Arc;

use mae_data::vocab::VocabOptions;
use mae_data::{BlockOptions, Blocks, BreakMode, PackedBatch, ParallelDataset, TextDataset, Vocab};
use mae_engine::{Device, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::config::{Activation, Mixture, NormOrder, System};
use mae_model::convert::{Conversion, Fold, Ranking, Removal, convert};
use mae_model::folder::ModelFolder;
use mae_model::importance::of_text;
use mae_model::{ExpertMode, LanguageModel, LmConfig, Model, ModelConfig, Translator, batches};

const WORDS: [&str; 7] = ["ab", "cd", "ef", "gh", "ij", "kl", "mn"];
const WIDTH: usize = 16;
const HEADS: usize = 8;

fn vocab() -> Arc<Vocab> {
    let counts = WORDS.iter().enumerate().map(|(i, word)| (*word, 10 - i as u64));
    Arc::new(Vocab::from_counts(counts, VocabOptions::default()))
}

fn line(i: usize, words: usize) -> String {
    (0..words).map(|j| WORDS[(3 * i + j * j) % 7]).collect::<Vec<_>>().join(" ")
}

fn pairs() -> ParallelDataset {
    let sources: Vec<String> = (0..12).map(|i| line(i, 1 + i % 5)).collect();
    let targets: Vec<String> = (0..12).map(|i| line(i + 1, 1 + (i * 5) % 6)).collect();
    ParallelDataset::from_lines(&sources, &targets, vocab(), vocab()).unwrap()
}

fn config(system: System) -> ModelConfig {
    ModelConfig {
        encoder_layers: 2,
        decoder_layers: 2,
        encoder_embed_dim: WIDTH,
        encoder_ffn_embed_dim: 10,
        encoder_attention_heads: HEADS,
        max_positions: 40,
        mixture: Mixture { system, gate_hidden: 6, ..Mixture::default() },
        ..ModelConfig::arch("transformer_tiny").unwrap()
    }
}

/// A model without zeros: biases and gates are random, too.
fn model(config: &ModelConfig) -> Translator {
    let types = vocab().len();
    let mut model = Translator::new(config, [types, types], &Device::cpu(), 7).unwrap();
    let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
    for (i, name) in names.iter().filter(|name| name.ends_with("bias") || name.contains(".fc2.")).enumerate()
    {
        let stream = Rng::new(3, 1).stream(i as u32);
        let mut values = model.params().get(name).unwrap();
        values.iter_mut().enumerate().for_each(|(j, v)| *v += 0.3 * stream.normal(j as u32, 0));
        model.params_mut().set(name, &values).unwrap();
    }
    model
}

fn to(system: &str) -> Conversion {
    Conversion { system: system.into(), fold: Fold::Uniform, removal: None, gate_hidden: None, seed: 5 }
}

fn logits(model: &Translator, mode: &ExpertMode) -> Vec<f32> {
    let data = pairs();
    let batch = model.upload(&PackedBatch::from_pairs(&data, &(0..12).collect::<Vec<_>>()));
    let mut tape = Tape::evaluation(model.params());
    let features = model.features(&mut Pass { tape: &mut tape, mode, probe: None }, &batch);
    model.logits(&mut tape, &features).to_host()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[track_caller]
fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let most = a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(most <= tolerance, "differs by {most:e}");
}

fn scale_head(model: &mut Translator, attention: &str, head: usize, factor: f32) {
    let name = format!("{attention}.out_proj.weight");
    let (mut values, width) = (model.params().get(&name).unwrap(), WIDTH / HEADS);
    for row in values.chunks_exact_mut(WIDTH) {
        row[head * width..][..width].iter_mut().for_each(|value| *value *= factor);
    }
    model.params_mut().set(&name, &values).unwrap();
}

fn attentions(model: &Translator) -> Vec<String> {
    let names = model.params().named();
    names.filter_map(|p| p.name.strip_suffix(".out_proj.weight").map(str::to_owned)).collect()
}

#[test]
fn gates_come_in_without_a_changed_bit() {
    for norm in [NormOrder::Post, NormOrder::Pre] {
        let base = model(&ModelConfig { norm, ..config(System::BASE) });
        let before = bits(&logits(&base, &ExpertMode::Mix));
        for system in ["mae7", "mae6", "mae5", "uni-mae7", "nobcd", "sigmoid", "base"] {
            let converted = convert(&base, &to(system), None).unwrap();
            assert_eq!(converted.model.config().mixture.name(HEADS), system);
            assert!(converted.uniform_weight.is_none_or(|weight| weight == 1.0), "{system}");
            assert_eq!(bits(&logits(&converted.model, &ExpertMode::Mix)), before, "{system}");
            // And out again.
            let back = convert(&converted.model, &to("base"), None).unwrap().model;
            assert_eq!(bits(&logits(&back, &ExpertMode::Mix)), before, "{system} and back");
        }
    }
}

/// Where the weights of uniform gates are not 1 without rounding, that is all that changes.
#[test]
fn with_twelve_heads_gates_change_the_last_bits() {
    let mut twelve = config(System::BASE);
    (twelve.encoder_embed_dim, twelve.encoder_attention_heads) = (24, 12);
    let base = model(&twelve);
    for (system, weight) in [("mae11", 1.0 + f32::EPSILON), ("sigmoid", 1.0)] {
        let converted = convert(&base, &to(system), None).unwrap();
        assert_eq!(converted.uniform_weight.unwrap_or(1.0), weight, "{system}");
        let (before, after) = (logits(&base, &ExpertMode::Mix), logits(&converted.model, &ExpertMode::Mix));
        assert_eq!(bits(&before) == bits(&after), weight == 1.0, "{system}");
        assert_close(&before, &after, 5e-6);
    }
}

#[test]
fn a_language_model_gets_gates_without_a_changed_bit() {
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    (config.decoder_embed_dim, config.decoder_ffn_embed_dim, config.decoder_layers) = (16, 10, 2);
    (config.adaptive_softmax_cutoff, config.max_positions) = (vec![5, 8], 9);
    let model = LanguageModel::new(&config, vocab().len(), &Device::cpu(), 7).unwrap();
    let lines: Vec<String> = (0..9).map(|i| line(i, 2 + i % 5)).collect();
    let data = TextDataset::from_lines(&lines, vocab(), None);
    let options = BlockOptions { tokens_per_sample: 9, context_window: 0, break_mode: BreakMode::None };
    let text = Blocks::new(data.lines, options).unwrap();
    let converted = convert(&model, &to("mae7"), Some(&text)).unwrap();
    let [before, after] = converted.losses.unwrap();
    assert_eq!(before, after);
    let gone = Removal { heads: 3, by: Ranking::Importance };
    let small = convert(&model, &Conversion { removal: Some(gone), ..to("base") }, Some(&text)).unwrap();
    assert_eq!(small.model.config().decoder_attention_heads, 5);
    assert!(small.losses.unwrap()[1].loss.is_finite());
}

#[test]
fn one_expert_is_folded_away() {
    let mae = model(&config(System::MAE));
    let experts = mae.config().experts().unwrap().count();
    for expert in [0, 3, experts - 1] {
        let folded = convert(&mae, &Conversion { fold: Fold::Expert(expert), ..to("base") }, None).unwrap();
        let want = logits(&mae, &ExpertMode::Fixed(expert as u32));
        assert_close(&logits(&folded.model, &ExpertMode::Mix), &want, 2e-5);
    }
    let message = |fold| {
        let refused = convert(&mae, &Conversion { fold, ..to("base") }, None);
        refused.err().map(|error| error.to_string()).unwrap()
    };
    assert!(message(Fold::Uniform).contains("have been trained"));
    assert!(message(Fold::Expert(experts)).contains("8 experts"));
    assert!(message(Fold::Mean).contains("a text"));
    let removal = Some(Removal { heads: HEADS, by: Ranking::Weight });
    let all = convert(&mae, &Conversion { removal, ..to("base") }, Some(&pairs())).err().unwrap();
    assert!(all.to_string().contains("8 of 8 heads"), "{all}");
}

#[test]
fn mean_gates_are_folded_away() {
    let (mae, text) = (model(&config(System::MAE)), pairs());
    let folded = convert(&mae, &Conversion { fold: Fold::Mean, ..to("base") }, Some(&text)).unwrap();
    let statistics = of_text(&mae, &text).unwrap();
    assert!((statistics.heads.iter().map(|head| head.weights[0]).sum::<f64>() - 6.0).abs() > 1e-3);
    let mut want = convert(&mae, &Conversion { fold: Fold::Expert(0), ..to("base") }, None).unwrap().model;
    for head in &statistics.heads {
        let name = format!("{}.out_proj.weight", head.attention);
        want.params_mut().set(&name, &mae.params().get(&name).unwrap()).unwrap();
        for (j, weight) in head.weights.iter().enumerate() {
            scale_head(&mut want, &head.attention, j, *weight as f32);
        }
    }
    assert_eq!(bits(&logits(&folded.model, &ExpertMode::Mix)), bits(&logits(&want, &ExpertMode::Mix)));
    let [before, after] = folded.losses.unwrap();
    assert!((before.loss - statistics.loss.loss).abs() < 1e-12 && (before.loss - after.loss).abs() > 1e-6);
    // The pass that records gates computes their second layer by another product.
    let evaluated = batches::loss(&mae, &text).unwrap().loss;
    assert!((evaluated - before.loss).abs() < 1e-7, "{evaluated} {}", before.loss);
}

/// Two heads of each attention, others in each, do nothing: they are found, and nothing changes without them.
#[test]
fn heads_that_do_nothing_are_found_and_removed() {
    let mut base = model(&config(System::BASE));
    let idle: Vec<(String, [usize; 2])> =
        attentions(&base).into_iter().enumerate().map(|(i, name)| (name, [i % 4, 4 + (3 * i) % 4])).collect();
    for (attention, heads) in &idle {
        heads.iter().for_each(|&head| scale_head(&mut base, attention, head, 0.0));
    }
    let removal = Some(Removal { heads: 2, by: Ranking::Importance });
    let found = convert(&base, &Conversion { removal, ..to("base") }, Some(&pairs())).unwrap();
    assert_eq!(found.removed.len(), idle.len());
    for removed in &found.removed {
        let (_, heads) = idle.iter().find(|(attention, _)| *attention == removed.attention).unwrap();
        assert_eq!(removed.heads, heads, "{}", removed.attention);
    }
    let small = &found.model;
    assert_eq!((small.config().encoder_attention_heads, small.config().head_dim), (6, 2));
    assert_eq!(small.params().find("encoder.layers.1.self_attn.q_proj.weight").unwrap().shape, [12, WIDTH]);
    assert_eq!(
        small.params().find("decoder.layers.0.encoder_attn.out_proj.weight").unwrap().shape,
        [WIDTH, 12]
    );
    assert!(small.size() < base.size());
    assert_close(&logits(small, &ExpertMode::Mix), &logits(&base, &ExpertMode::Mix), 1e-5);
    let [before, after] = found.losses.unwrap();
    assert!((before.loss - after.loss).abs() < 1e-6);
    // The same, with gates over the heads that are left, through a folder.
    let removal = Some(Removal { heads: 2, by: Ranking::Importance });
    let gated = convert(&base, &Conversion { removal, ..to("mae5") }, Some(&pairs())).unwrap().model;
    let folder = tempfile::tempdir().unwrap();
    let (want, path) = (logits(&gated, &ExpertMode::Mix), folder.path().join("model"));
    ModelFolder { model: gated, source: vocab(), target: vocab(), codes: None, text: Default::default() }
        .save(&path)
        .unwrap();
    let read = ModelFolder::load(&path, &Device::cpu()).unwrap().model;
    assert_eq!(read.config().mixture.name(6), "mae5");
    assert_eq!(bits(&logits(&read, &ExpertMode::Mix)), bits(&want));
    assert_eq!(bits(&logits(small, &ExpertMode::Mix)), bits(&want));
}

/// With one token on each side an attention has one row, and the importance of a head is the derivative of the loss by
/// the factor of its output.
#[test]
fn importances_are_derivatives() {
    for system in [System::BASE, System::MAE, System::SIGMOID] {
        // Without the corners of ReLU, where differences mean nothing.
        let mut model = model(&ModelConfig { activation: Activation::Gelu, ..config(system) });
        let text = ParallelDataset::from_lines(&[""], &[""], vocab(), vocab()).unwrap();
        let statistics = of_text(&model, &text).unwrap();
        assert_eq!(statistics.loss.tokens, 1);
        assert_eq!(
            statistics.heads.iter().map(|head| head.attention.clone()).collect::<Vec<_>>(),
            attentions(&model)
        );
        for head in &statistics.heads {
            assert_eq!(head.rows, 1);
            assert!((head.normalised().iter().map(|i| i * i).sum::<f64>() - 1.0).abs() < 1e-9);
            for j in [0, 5] {
                let name = format!("{}.out_proj.weight", head.attention);
                let before = model.params().get(&name).unwrap();
                let mut at = |factor: f32| {
                    scale_head(&mut model, &head.attention, j, factor);
                    let loss = batches::loss(&model, &text).unwrap().loss * std::f64::consts::LN_2;
                    model.params_mut().set(&name, &before).unwrap();
                    loss
                };
                let slope = (at(1.02) - at(0.98)) / 0.04;
                assert!(
                    (slope.abs() - head.importances[j]).abs() < 1e-3 * (1.0 + slope.abs()),
                    "{system:?}, {} head {j}: {}, differences give {slope}",
                    head.attention,
                    head.importances[j]
                );
            }
        }
    }
}
