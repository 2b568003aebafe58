//! What the tests share: tiny random models of every system, random sources, and full passes.
#![allow(dead_code, reason = "not every test uses all of it")]

pub mod slow;

use mae_data::{EOS, MemoryDataset, PAD, PackedBatch};
use mae_engine::{Device, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::config::{
    Activation, CrossGate, DecoderGate, DecoderStart, GateReads, Mixture, NormOrder, Positions, Sharing,
    System,
};
use mae_model::{ExpertMode, Model, ModelConfig, Translator};

/// Types of the source and target vocabulary: few, so that beams meet the end mark early.
pub const TYPES: [usize; 2] = [17, 13];
const WIDTH: usize = 12;

/// A small model configuration.
pub fn config(system: System) -> ModelConfig {
    ModelConfig {
        arch: "test".into(),
        encoder_layers: 2,
        decoder_layers: 2,
        encoder_embed_dim: WIDTH,
        encoder_ffn_embed_dim: 10,
        encoder_attention_heads: 3,
        dropout: 0.3,
        attention_dropout: 0.1,
        activation_dropout: 0.1,
        share_embeddings: Sharing::Decoder,
        max_positions: 64,
        mixture: Mixture { system, dropped_heads: 1, gate_hidden: 7, ..Mixture::default() },
        ..ModelConfig::arch("transformer_tiny").unwrap()
    }
}

/// A model whose gates have opinions (their last layers are large and their statistics not the initial ones), and which
/// finds the end mark and, as likely, the forbidden padding mark attractive everywhere, so that ends meet in the beams.
pub fn model(config: &ModelConfig, seed: u64) -> Translator {
    let mut model = Translator::new(config, TYPES, &Device::cpu(), seed).unwrap();
    let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
    for (i, name) in names.iter().filter(|name| name.contains(".gate.")).enumerate() {
        let stream = Rng::new(seed, 1).stream(i as u32);
        let mut values = model.params().get(name).unwrap();
        for (j, value) in values.iter_mut().enumerate() {
            match name {
                name if name.ends_with("fc2.weight") => *value *= 6.0,
                name if name.contains("gate.proj.") => *value += stream.normal(j as u32, 0),
                name if name.ends_with("running_mean") => *value += 0.3 * stream.normal(j as u32, 0),
                name if name.ends_with("running_var") => *value += stream.uniform(j as u32, 0),
                _ => {}
            }
        }
        model.params_mut().set(name, &values).unwrap();
    }
    let (output, norm) = (output(config), last_norm(config));
    let (mut words, mut bias) = (model.params().get(output).unwrap(), model.params().get(&norm).unwrap());
    let row = |id: u32| id as usize * WIDTH..(id as usize + 1) * WIDTH;
    words.copy_within(row(EOS), row(PAD).start);
    bias.iter_mut().zip(&words[row(EOS)]).for_each(|(bias, end)| *bias += 1.5 * end);
    model.params_mut().set(output, &words).unwrap();
    model.params_mut().set(&norm, &bias).unwrap();
    model
}

fn output(config: &ModelConfig) -> &'static str {
    match config.share_embeddings {
        Sharing::None => "decoder.embed_out",
        _ => "decoder.embed_tokens.weight",
    }
}

fn last_norm(config: &ModelConfig) -> String {
    match config.norm {
        NormOrder::Pre => "decoder.layer_norm.bias".into(),
        NormOrder::Post => format!("decoder.layers.{}.final_layer_norm.bias", config.decoder_layers - 1),
    }
}

/// Every kind of model whose cached steps must equal full passes, by name.
pub fn systems() -> Vec<(&'static str, ModelConfig)> {
    let with = |system, change: fn(&mut ModelConfig)| {
        let mut config = config(system);
        change(&mut config);
        config
    };
    vec![
        ("base", config(System::BASE)),
        ("uniform", config(System::UNIFORM)),
        ("mae, causal gates", config(System::MAE)),
        ("mae, cross gates read the source", with(System::MAE, |c| c.mixture.cross_gate = CrossGate::Source)),
        ("pre-norm base", with(System::BASE, |c| c.norm = NormOrder::Pre)),
        ("pre-norm mae", with(System::MAE, |c| c.norm = NormOrder::Pre)),
        ("mae, two heads out, nothing shared", {
            with(System::MAE, |c| {
                c.mixture.dropped_heads = 2;
                c.share_embeddings = Sharing::None;
            })
        }),
        ("marian", {
            with(System::BASE, |c| {
                (c.activation, c.positions) = (Activation::Swish, Positions::Marian);
                (c.decoder_start, c.output_bias) = (DecoderStart::Pad, true);
            })
        }),
        ("mae, gelu, stored positions, wide heads", {
            with(System::MAE, |c| {
                (c.activation, c.positions) = (Activation::Gelu, Positions::Table);
                (c.decoder_start, c.no_scale_embedding, c.head_dim) = (DecoderStart::Bos, true, 5);
            })
        }),
        ("mae by position", with(System::MAE, |c| c.mixture.gate_input = GateReads::Position)),
        ("sigmoid, means", config(System::SIGMOID)),
        ("sigmoid by position", with(System::SIGMOID, |c| c.mixture.gate_input = GateReads::Position)),
        ("sigmoid, cross gates read the source", {
            with(System::SIGMOID, |c| c.mixture.cross_gate = CrossGate::Source)
        }),
        ("moh, means", config(System::MOH)),
        ("moh by position", with(System::MOH, |c| c.mixture.gate_input = GateReads::Position)),
        ("moh, cross gates read the source", {
            with(System::MOH, |c| c.mixture.cross_gate = CrossGate::Source)
        }),
        ("l0", config(System::L0)),
        ("l0, cross gates of sentences", with(System::L0, |c| c.mixture.cross_gate = CrossGate::Source)),
    ]
}

/// The same model with other decoder gates.
pub fn with_gates(model: &Translator, gates: DecoderGate) -> Translator {
    let mut config = model.config().clone();
    config.mixture.decoder_gate = gates;
    let mut twin = Translator::zeroed(&config, TYPES, &Device::cpu()).unwrap();
    let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
    for name in names {
        let values = model.params().get(&name).unwrap();
        twin.params_mut().set(&name, &values).unwrap();
    }
    twin
}

/// Random sources with these lengths, the end mark counted.
pub fn sources(lengths: &[usize], seed: u64) -> PackedBatch {
    let stream = Rng::new(seed, 2).stream(0);
    let sentence = |(i, &length): (usize, &usize)| {
        let word = |j: usize| 4 + (stream.uniform(i as u32, j as u32) * (TYPES[0] - 4) as f32) as u32;
        (0..length - 1).map(word).chain([EOS]).collect::<Vec<u32>>()
    };
    let data: MemoryDataset = lengths.iter().enumerate().map(sentence).collect();
    let ids: Vec<u32> = (0..lengths.len() as u32).collect();
    PackedBatch::from_sources(&data.into(), &ids)
}

/// One sentence of a batch, alone.
pub fn alone(batch: &PackedBatch, place: usize) -> PackedBatch {
    let data: MemoryDataset = [batch.src_sentence(place)].into_iter().collect();
    PackedBatch::from_sources(&data.into(), &[0])
}

/// Logits after every token of `previous` (which begins with the end mark), by one full pass: `[length, V]`.
pub fn full_pass(model: &Translator, source: &[u32], previous: &[u32]) -> Vec<Vec<f32>> {
    full_pass_with(model, source, previous, &ExpertMode::Mix)
}

/// [`full_pass`] with other experts.
pub fn full_pass_with(
    model: &Translator,
    source: &[u32],
    previous: &[u32],
    mode: &ExpertMode,
) -> Vec<Vec<f32>> {
    let batch = PackedBatch {
        src: source.to_vec(),
        src_starts: vec![0, source.len() as u32],
        prev: previous.to_vec(),
        tgt: vec![EOS; previous.len()],
        tgt_starts: vec![0, previous.len() as u32],
        ids: vec![0],
    };
    let batch = model.upload(&batch);
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode, probe: None };
    let features = model.features(&mut pass, &batch);
    let logits = model.logits(&mut tape, &features);
    logits.to_host().chunks_exact(logits.cols()).map(<[f32]>::to_vec).collect()
}

/// ln softmax in f64.
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&v| f64::from(v - highest).exp()).sum();
    logits.iter().map(|&v| f64::from(v - highest) - sum.ln()).collect()
}
