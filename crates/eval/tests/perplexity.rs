//! Log-probabilities with a context window equal those of a model that reads each window token by token.

use std::sync::Arc;

use mae_data::pairs::MemoryDataset;
use mae_data::vocab::VocabOptions;
use mae_data::{BlockOptions, Blocks, BreakMode, EOS, TextDataset, Vocab};
use mae_engine::Device;
use mae_engine::ops::decode::Room;
use mae_eval::perplexity::{TextMeasure, log_probs};
use mae_model::config::System;
use mae_model::lm::LmConfig;
use mae_model::{ExpertMode, LanguageModel};

fn data() -> TextDataset {
    let words: Vec<String> = (0..25).map(|i| format!("w{i}")).chain(["ni@@".into()]).collect();
    let counts = words.iter().enumerate().map(|(i, word)| (word, 50 - i as u64));
    let vocab = Arc::new(Vocab::from_counts(counts, VocabOptions::default()));
    let lines = ["w1 w2 w3 w20", "", "w9 w24 nothing w0 w5 w5 w7", "w11 ni@@ w13", "w3"];
    TextDataset { lines: Arc::new(MemoryDataset::encode(&vocab, &lines).0.into()), vocab }
}

fn model(system: System, types: usize) -> LanguageModel {
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    config.decoder_layers = 2;
    config.decoder_embed_dim = 16;
    config.decoder_ffn_embed_dim = 24;
    config.decoder_attention_heads = 4;
    config.adaptive_softmax_cutoff = vec![8, 16];
    config.adaptive_softmax_factor = 2;
    config.max_positions = 32;
    config.mixture.system = system;
    config.mixture.gate_window = 4;
    config.mixture.gate_hidden = 8;
    LanguageModel::new(&config, types, &Device::cpu(), 2).unwrap()
}

/// ln p of the last `scored` of `tokens`, read one at a time after `before`.
fn by_hand(model: &LanguageModel, before: u32, tokens: &[u32], scored: usize) -> Vec<f32> {
    let mut state = model.state(Room { rows: 1, steps: 32 });
    model.start(&mut state, 1);
    let (mut previous, mut found) = (before, Vec::new());
    for &token in tokens {
        let logits = model.step(&mut state, &[previous], &ExpertMode::Mix).unwrap().to_host();
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        found.push((f64::from(logits[token as usize]) - sum.ln()) as f32);
        previous = token;
    }
    found.split_off(tokens.len() - scored)
}

#[test]
fn a_context_window_is_read_and_not_scored() {
    let data = data();
    let stream: Vec<u32> = (0..data.lines.len()).flat_map(|i| data.lines.get(i)).collect();
    for system in [System::BASE, System::MAE] {
        let model = model(system, data.vocab.len());
        for (block, context) in [(8, 5), (7, 0), (4, 3)] {
            let options = BlockOptions {
                tokens_per_sample: block,
                context_window: context,
                break_mode: BreakMode::None,
            };
            let blocks = Blocks::new(data.lines.clone(), options).unwrap();
            let fresh = block - context;
            let mut want = Vec::new();
            for start in (0..stream.len()).step_by(fresh) {
                let (end, first) = (stream.len().min(start + fresh), start.saturating_sub(context));
                // The last block is shorter; its context is not.
                let before = if first == 0 { EOS } else { stream[first - 1] };
                want.extend(by_hand(&model, before, &stream[first..end], end - start));
            }
            for max_tokens in [1, 20, 1000] {
                let mut done = 0;
                let got = log_probs(&model, &blocks, max_tokens, &ExpertMode::Mix, |n| done = n).unwrap();
                assert_eq!((got.len(), done as usize), (stream.len(), stream.len()));
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() < 1e-4, "{system:?} {block}/{context}: {got} for {want}");
                }
            }
        }
    }
}

#[test]
fn a_text_is_measured_in_several_units() {
    let data = data();
    let tokens: usize = (0..data.lines.len()).map(|i| data.lines.size(i)).sum();
    let measure = TextMeasure::of(&data, None, &vec![-(2f32.ln()); tokens]);
    assert_eq!((measure.lines, measure.tokens, measure.unknown), (5, 20, 1));
    // `ni@@ w13` is one word; each end of a line counts.
    assert_eq!(measure.words, 19);
    let text = ["w1 w2 w3 w20", "", "w9 w24 <unk> w0 w5 w5 w7", "w11 niw13", "w3"].map(|line| line.len() + 1);
    assert_eq!(measure.bytes, text.iter().sum::<usize>() as u64);
    assert_eq!(measure.characters, measure.bytes);
    assert!((measure.bits_per(measure.tokens) - 1.0).abs() < 1e-6);
    assert!((measure.perplexity_per(measure.tokens) - 2.0).abs() < 1e-6);
}
