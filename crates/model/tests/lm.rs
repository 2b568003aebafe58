//! What must hold of any language model: the paper's parameter counts, generation that equals the full pass, blocks that
//! know nothing of each other, systems that coincide where they should, and folders that come back.

use std::sync::Arc;

use mae_data::vocab::VocabOptions;
use mae_data::{EOS, PackedBatch, Vocab};
use mae_engine::ops::decode::Room;
use mae_engine::{Device, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::config::{GateReads, Mixture, System};
use mae_model::folder::{self, ModelFolder, Task};
use mae_model::lm::{LmBatch, LmFolder};
use mae_model::{ExpertMode, LanguageModel, LmConfig, Model, ModelConfig, Translator, groups};

const TYPES: usize = 37;

fn tiny(system: System) -> LmConfig {
    LmConfig {
        decoder_layers: 2,
        decoder_embed_dim: 12,
        decoder_ffn_embed_dim: 14,
        decoder_attention_heads: 3,
        dropout: 0.0,
        attention_dropout: 0.0,
        activation_dropout: 0.0,
        adaptive_softmax_cutoff: vec![11, 20],
        adaptive_softmax_factor: 3,
        max_positions: 40,
        mixture: Mixture { system, gate_hidden: 5, gate_dropout: 0.0, gate_window: 4, ..Mixture::default() },
        ..LmConfig::arch("transformer_lm_tiny").unwrap()
    }
}

fn new(config: &LmConfig, seed: u64) -> LanguageModel {
    let mut model = LanguageModel::new(config, TYPES, &Device::cpu(), seed).unwrap();
    // Initial gates are near uniform; make them matter.
    let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
    for name in names.iter().filter(|name| name.ends_with("gate.fc2.weight")) {
        let sharper: Vec<f32> = model.params().get(name).unwrap().iter().map(|v| 8.0 * v).collect();
        model.params_mut().set(name, &sharper).unwrap();
    }
    for name in names.iter().filter(|name| name.ends_with("gate.proj.weight")) {
        let draws = Rng::new(seed, 1).stream(name.len() as u32);
        let values: Vec<f32> = (0..3 * 12).map(|i| draws.normal(i, 0)).collect();
        model.params_mut().set(name, &values).unwrap();
    }
    model
}

/// A text of random words, the same wherever it stands.
fn text(length: usize) -> Vec<u32> {
    let draws = Rng::new(length as u64, 0).stream(0);
    (0..length).map(|i| 2 + (draws.uniform(i as u32, 0) * (TYPES - 2) as f32) as u32).collect()
}

fn batch(lengths: &[usize]) -> PackedBatch {
    let mut batch = PackedBatch { tgt_starts: vec![0], ..PackedBatch::default() };
    for &length in lengths {
        let text = text(length);
        batch.prev.extend([EOS].iter().chain(&text[..length - 1]));
        batch.tgt.extend(text);
        batch.tgt_starts.push(batch.tgt.len() as u32);
    }
    batch
}

/// Numbers for the next word at every position, `[N, V]`.
fn logits(model: &LanguageModel, lengths: &[usize], mode: &ExpertMode) -> Vec<f32> {
    let on_device = LmBatch::new(&Device::cpu(), model.bands(), &batch(lengths));
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode, probe: None };
    let features = model.features(&mut pass, &on_device.previous, &on_device.rows);
    model.logits(&mut tape, &features).to_host()
}

fn differ_by(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

fn plain(config: LmConfig) -> LmConfig {
    LmConfig { adaptive_softmax_cutoff: Vec::new(), ..config }
}

fn untied(config: LmConfig) -> LmConfig {
    LmConfig { tie_adaptive_weights: false, tie_adaptive_proj: false, final_norm: true, ..config }
}

#[test]
fn parameter_counts_are_the_papers() {
    let count = |system, dropped, hidden| {
        let mut config = LmConfig::arch("transformer_lm_wiki103").unwrap();
        config.mixture.system = system;
        (config.mixture.dropped_heads, config.mixture.gate_hidden) = (dropped, hidden);
        LanguageModel::size_of(&config, 267_744).unwrap()
    };
    assert_eq!(count(System::BASE, 1, 256), 246_933_504);
    assert_eq!(count(System::UNIFORM, 1, 256), 246_933_504);
    assert_eq!(count(System::MAE, 1, 256), 251_197_568);
    assert_eq!(count(System::NOBCD, 1, 256), 251_197_568);
    // 20 more experts, 257 parameters each, in 16 layers.
    assert_eq!(count(System::MAE, 2, 256), 251_197_568 + 16 * 20 * 257);
    for config in [tiny(System::MAE), plain(tiny(System::BASE)), untied(tiny(System::MAE))] {
        assert_eq!(LanguageModel::size_of(&config, TYPES).unwrap(), new(&config, 1).size());
    }
}

/// Texts that are read a token at a time, change places and leave, against the whole text at once.
#[test]
fn cached_steps_equal_the_full_pass() {
    let running =
        LmConfig { mixture: Mixture { gate_window: 0, ..tiny(System::MAE).mixture }, ..tiny(System::MAE) };
    let two_out = LmConfig {
        mixture: Mixture { dropped_heads: 2, ..tiny(System::NOBCD).mixture },
        ..tiny(System::NOBCD)
    };
    let by_position = LmConfig {
        mixture: Mixture { gate_input: GateReads::Position, ..tiny(System::SIGMOID).mixture },
        ..tiny(System::SIGMOID)
    };
    for config in [
        tiny(System::BASE),
        tiny(System::UNIFORM),
        tiny(System::MAE),
        running,
        two_out,
        plain(tiny(System::MAE)),
        untied(tiny(System::MAE)),
        tiny(System::SIGMOID),
        by_position,
        tiny(System::MOH),
        tiny(System::L0),
    ] {
        let model = new(&config, 2);
        for mode in [ExpertMode::Mix, ExpertMode::Argmax, ExpertMode::Fixed(1)] {
            let lengths = [9, 12, 11];
            let mut state = model.state(Room { rows: 3, steps: 12 });
            // Twice: nothing of the first time is left.
            for _ in 0..2 {
                model.start(&mut state, 3);
                let mut order = vec![0, 1, 2];
                for step in 0..12 {
                    let parents: &[u32] = match step {
                        5 => &[2, 0, 1],
                        9 => &[0, 2],
                        11 => &[1],
                        _ => &[],
                    };
                    if !parents.is_empty() {
                        order = parents.iter().map(|&parent| order[parent as usize]).collect();
                        model.reorder(&mut state, parents);
                    }
                    let tokens: Vec<u32> =
                        order.iter().map(|&at: &usize| batch(&[lengths[at]]).prev[step]).collect();
                    let rows = model.step(&mut state, &tokens, &mode).unwrap().to_host();
                    for (row, &at) in rows.chunks_exact(TYPES).zip(&order) {
                        let full = logits(&model, &lengths[at..=at], &mode);
                        let by = differ_by(row, &full[step * TYPES..][..TYPES]);
                        assert!(by < 1e-4, "text {at}, step {step}: differs by {by:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn blocks_know_nothing_of_each_other() {
    for config in [tiny(System::BASE), tiny(System::MAE), plain(tiny(System::MAE))] {
        let model = new(&config, 3);
        let together = logits(&model, &[7, 1, 13], &ExpertMode::Mix);
        let alone: Vec<f32> =
            [7, 1, 13].iter().flat_map(|&n| logits(&model, &[n], &ExpertMode::Mix)).collect();
        assert!(differ_by(&together, &alone) < 1e-5);
    }
}

#[test]
fn systems_coincide_where_they_should() {
    let lengths = [9, 4];
    let base = logits(&new(&tiny(System::BASE), 4), &lengths, &ExpertMode::Mix);
    let uniform = logits(&new(&tiny(System::UNIFORM), 4), &lengths, &ExpertMode::Mix);
    assert!(differ_by(&base, &uniform) < 1e-6, "uni-MAE at test time is BASE");
    let mae = new(&tiny(System::MAE), 4);
    let gated = logits(&mae, &lengths, &ExpertMode::Mix);
    assert!(differ_by(&base, &gated) > 1e-3, "gates make a difference");
    let wide =
        LmConfig { mixture: Mixture { gate_window: 100, ..tiny(System::MAE).mixture }, ..tiny(System::MAE) };
    let unlimited = LmConfig { mixture: Mixture { gate_window: 0, ..wide.mixture.clone() }, ..wide.clone() };
    let wide = logits(&new(&wide, 4), &lengths, &ExpertMode::Mix);
    assert!(differ_by(&gated, &wide) > 1e-4, "the window makes a difference");
    assert_eq!(wide, logits(&new(&unlimited, 4), &lengths, &ExpertMode::Mix));
}

#[test]
fn a_step_touches_its_own_gradients_only() {
    for config in [tiny(System::MAE), untied(tiny(System::MAE)), plain(tiny(System::MAE))] {
        let model = new(&LmConfig { adaptive_softmax_dropout: 0.2, dropout: 0.1, ..config }, 5);
        // No target and no input in the last band: its gradients are zeros, not missing.
        let few = PackedBatch {
            prev: vec![EOS, 5, 12],
            tgt: vec![5, 12, 3],
            tgt_starts: vec![0, 3],
            ..PackedBatch::default()
        };
        for (free, mode) in
            [(groups::gates(), ExpertMode::Mix), (groups::all_but_gates(), ExpertMode::Sample)]
        {
            for batch in [batch(&[9, 14]), few.clone()] {
                let on_device = LmBatch::new(&Device::cpu(), model.bands(), &batch);
                let mut gradients = model.params().gradients();
                let mut tape = Tape::training(model.params(), &mut gradients, free, Rng::new(1, 1));
                let mut pass = Pass { tape: &mut tape, mode: &mode, probe: None };
                let loss = model.loss(&mut pass, &on_device, 0.1);
                assert!(loss.nll().is_finite() && loss.nll() > 0.0);
                // The engine panics if anything is added to a slice that has left.
                let mut left = Vec::new();
                let slices = model.params().slices(free, 1);
                tape.backward_in_slices(&slices, &mut |_, number| left.push(number));
                assert_eq!(left, (0..slices.len()).collect::<Vec<_>>());
                gradients.check_complete(free).unwrap();
                for parameter in model.params().named() {
                    let got = gradients.get(model.params(), parameter.name).unwrap();
                    assert_eq!(got.is_some(), free.contains(parameter.group), "{}", parameter.name);
                    assert!(got.is_none_or(|g| g.iter().all(|v| v.is_finite())), "{}", parameter.name);
                }
            }
        }
    }
}

#[test]
fn ids_outside_the_dictionary_are_refused() {
    let model = new(&tiny(System::BASE), 6);
    let mut wrong = batch(&[5]);
    model.check_ids(&wrong).unwrap();
    wrong.tgt[4] = TYPES as u32;
    let error = model.check_ids(&wrong).unwrap_err().to_string();
    assert!(error.contains("id 37") && error.contains("37 types"), "{error}");
    let error = LanguageModel::zeroed(&tiny(System::BASE), 20, &Device::cpu()).err().unwrap().to_string();
    assert!(error.contains("[11, 20]") && error.contains("20 types"), "{error}");
}

fn vocab(types: usize) -> Arc<Vocab> {
    let words = (4..types).map(|i| (format!("w{i}"), 1));
    Arc::new(Vocab::from_counts(words, VocabOptions { padding_factor: 1, ..VocabOptions::default() }))
}

#[test]
fn a_folder_comes_back_bit_for_bit() {
    for config in [tiny(System::MAE), plain(tiny(System::BASE)), untied(tiny(System::UNIFORM))] {
        let place = tempfile::tempdir().unwrap();
        let before = LmFolder { model: new(&config, 8), dictionary: vocab(TYPES), codes: None };
        before.save(place.path()).unwrap();
        assert_eq!(folder::task(place.path()).unwrap(), Task::LanguageModeling);
        let after = LmFolder::load(place.path(), &Device::cpu()).unwrap();
        assert_eq!(after.model.config(), &config);
        assert_eq!((after.dictionary, after.codes), (before.dictionary, None));
        let (after, before) = (after.model.params().snapshot(), before.model.params().snapshot());
        assert_eq!(after.unwrap().tensors().unwrap(), before.unwrap().tensors().unwrap());
    }
}

#[test]
fn the_two_kinds_of_models_are_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let model = new(&tiny(System::BASE), 9);
    LmFolder { model, dictionary: vocab(TYPES), codes: None }.save(place.path()).unwrap();
    let error = ModelFolder::load(place.path(), &Device::cpu()).err().unwrap().to_string();
    assert!(error.contains("the folder of a language model; a translation model is needed"), "{error}");
    assert!(error.contains(folder::CONFIG), "{error}");
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (8, 8);
    let model = Translator::new(&config, [9, 9], &Device::cpu(), 1).unwrap();
    let translation =
        ModelFolder { model, source: vocab(9), target: vocab(9), codes: None, text: Default::default() };
    translation.save(place.path()).unwrap();
    let error = LmFolder::load(place.path(), &Device::cpu()).err().unwrap().to_string();
    assert!(error.contains("the folder of a translation model; a language model is needed"), "{error}");
}
