//! Beam search against the PyTorch oracle's (`tools/oracle/golden.py`), for models with choices of other toolkits: Marian's
//! (swish, positions from 0, pad as the start symbol, an output bias), and GELU with pre-norm and gates.

use std::path::Path;

use mae_data::PackedBatch;
use mae_engine::Device;
use mae_model::config::{Activation, DecoderStart, Mixture, NormOrder, Positions, Sharing, System};
use mae_model::{ExpertMode, ModelConfig, Translator};
use mae_translate::{SearchOptions, search};
use safetensors::SafeTensors;

fn floats(file: &SafeTensors<'_>, key: &str) -> Vec<f32> {
    let bytes = file.tensor(key).unwrap().data();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn numbers(file: &SafeTensors<'_>, key: &str) -> Vec<u32> {
    let bytes = file.tensor(key).unwrap().data();
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn check(name: &str, config: &ModelConfig, types: [usize; 2]) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/oracle/{name}.safetensors"));
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut model = Translator::zeroed(config, types, &Device::cpu()).unwrap();
    let names: Vec<String> = model.params().named().map(|p| p.name.to_owned()).collect();
    for name in names {
        model.params_mut().set(&name, &floats(&file, &format!("model.{name}"))).unwrap();
    }
    let counts = numbers(&file, "beam.counts");
    let batch = PackedBatch {
        src: numbers(&file, "src.ids"),
        src_starts: numbers(&file, "src.starts"),
        tgt_starts: vec![0; counts.len() + 1],
        ids: (0..counts.len() as u32).collect(),
        ..PackedBatch::default()
    };
    let options =
        SearchOptions { beam: 3, nbest: 3, max_len_a: 0.0, max_len_b: 8, ..SearchOptions::default() };
    let found = search(&model, &batch, &options, &ExpertMode::Mix).unwrap();
    let (tokens, starts) = (numbers(&file, "beam.tokens"), numbers(&file, "beam.starts"));
    let scores = floats(&file, "beam.scores");
    let mut next = 0;
    for (sentence, (found, count)) in found.iter().zip(counts).enumerate() {
        assert_eq!(found.len(), count as usize, "{name}, sentence {sentence}");
        for hypothesis in found {
            let want = &tokens[starts[next] as usize..starts[next + 1] as usize];
            assert_eq!(hypothesis.tokens, want, "{name}, sentence {sentence}");
            let (got, want) = (hypothesis.score, scores[next]);
            assert!((got - want).abs() < 1e-5, "{name}, sentence {sentence}: score {got}, not {want}");
            next += 1;
        }
    }
    assert_eq!(next, scores.len());
}

#[test]
fn marian_finds_the_hypotheses_of_the_oracle() {
    let config = ModelConfig {
        encoder_layers: 1,
        decoder_layers: 1,
        encoder_embed_dim: 12,
        encoder_ffn_embed_dim: 17,
        encoder_attention_heads: 3,
        activation: Activation::Swish,
        positions: Positions::Marian,
        decoder_start: DecoderStart::Pad,
        output_bias: true,
        share_embeddings: Sharing::All,
        max_positions: 64,
        ..ModelConfig::arch("transformer_tiny").unwrap()
    };
    check("marian", &config, [19, 19]);
}

#[test]
fn gelu_with_pre_norm_and_gates_finds_the_hypotheses_of_the_oracle() {
    let config = ModelConfig {
        encoder_layers: 1,
        decoder_layers: 1,
        encoder_embed_dim: 12,
        encoder_ffn_embed_dim: 13,
        encoder_attention_heads: 4,
        activation: Activation::Gelu,
        no_scale_embedding: true,
        decoder_start: DecoderStart::Bos,
        norm: NormOrder::Pre,
        max_positions: 64,
        mixture: Mixture { system: System::MAE, gate_hidden: 5, ..Mixture::default() },
        ..ModelConfig::arch("transformer_tiny").unwrap()
    };
    check("gelu", &config, [23, 19]);
}
