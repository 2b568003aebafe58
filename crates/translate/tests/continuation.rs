//! Continuations: the likeliest token of the full pass each time, whatever else is in the batch; draws that depend on seed
//! and place only.

use mae_data::batch::PackedBatch;
use mae_data::{BOS, EOS, PAD, UNK};
use mae_engine::{Device, Tape};
use mae_model::attention::Pass;
use mae_model::lm::{LmBatch, LmConfig};
use mae_model::{ExpertMode, LanguageModel};
use mae_translate::{Continuation, ContinueOptions, Continuing, Prompt, Sampling, Task, continue_texts};

const TYPES: usize = 41;

fn model() -> LanguageModel {
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    config.decoder_layers = 2;
    config.decoder_embed_dim = 16;
    config.decoder_ffn_embed_dim = 24;
    config.decoder_attention_heads = 4;
    config.adaptive_softmax_cutoff = vec![11, 23];
    config.adaptive_softmax_factor = 2;
    config.max_positions = 24;
    config.mixture.system = mae_model::config::System::MAE;
    config.mixture.gate_window = 3;
    config.mixture.gate_hidden = 8;
    LanguageModel::new(&config, TYPES, &Device::cpu(), 3).unwrap()
}

fn prompts() -> Vec<Prompt> {
    let texts: [&[u32]; 5] = [&[5, 9, 30], &[], &[17], &[4, 4, 8, 25, 6, 12], &[40, 2, 7]];
    let prompt =
        |(place, tokens): (usize, &&[u32])| Prompt { tokens: tokens.to_vec(), place: place as u32, rank: 0 };
    texts.iter().enumerate().map(prompt).collect()
}

fn options(sampling: Option<Sampling>) -> ContinueOptions {
    ContinueOptions { max_len: 9, sampling, temperature: 1.3, seed: 5, unknown: false }
}

fn run(model: &LanguageModel, prompts: &[Prompt], options: &ContinueOptions) -> Vec<Continuation> {
    continue_texts(model, prompts, options, &ExpertMode::Mix).unwrap()
}

/// ln p of the token after `tokens`, of all types, by a full pass for each.
fn next(model: &LanguageModel, tokens: &[u32]) -> Vec<f32> {
    let prev: Vec<u32> = std::iter::once(EOS).chain(tokens.iter().copied()).collect();
    let of = |last: u32| {
        let tgt: Vec<u32> = prev[1..].iter().copied().chain([last]).collect();
        let starts = vec![0, tgt.len() as u32];
        let packed = PackedBatch {
            prev: prev.clone(),
            tgt,
            tgt_starts: starts,
            ids: vec![0],
            ..PackedBatch::default()
        };
        let batch = LmBatch::new(&Device::cpu(), model.bands(), &packed);
        let mut tape = Tape::evaluation(model.params());
        let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        let log_probs = model.loss(&mut pass, &batch, 1.0).log_probs.to_host();
        log_probs[log_probs.len() - 1]
    };
    (0..TYPES as u32).map(of).collect()
}

#[test]
fn the_likeliest_token_of_the_full_pass_comes_next() {
    let model = model();
    for (prompt, found) in prompts().iter().zip(run(&model, &prompts(), &options(None))) {
        assert!(found.tokens.len() == 9 || found.tokens.last() == Some(&EOS), "{found:?}");
        let mut text = prompt.tokens.clone();
        for (&token, &log_prob) in found.tokens.iter().zip(&found.log_probs) {
            assert!(![PAD, BOS, UNK].contains(&token));
            let all = next(&model, &text);
            assert!((all[token as usize] - log_prob).abs() < 1e-4);
            let best = (0..TYPES).filter(|&t| ![PAD, BOS, UNK].contains(&(t as u32))).map(|t| all[t]);
            assert!(best.fold(f32::NEG_INFINITY, f32::max) - log_prob < 1e-4);
            text.push(token);
        }
    }
}

#[test]
fn neither_the_batch_nor_the_run_changes_what_is_drawn() {
    let model = model();
    for sampling in [None, Some(Sampling::default()), Some(Sampling { topk: Some(6), topp: Some(0.9) })] {
        let together = run(&model, &prompts(), &options(sampling));
        assert_eq!(together, run(&model, &prompts(), &options(sampling)));
        for (prompt, found) in prompts().into_iter().zip(&together) {
            let alone = run(&model, &[prompt], &options(sampling));
            assert_eq!(alone[0].tokens, found.tokens);
        }
    }
    let drawn = |seed: u64, rank: usize| {
        let prompts: Vec<Prompt> = prompts().into_iter().map(|prompt| Prompt { rank, ..prompt }).collect();
        run(&model, &prompts, &ContinueOptions { seed, ..options(Some(Sampling::default())) })
    };
    assert_ne!(drawn(5, 0), drawn(6, 0));
    assert_ne!(drawn(5, 0), drawn(5, 1));
    assert!(run(&model, &[], &options(None)).is_empty());
}

/// Texts with options of their own, and one that is given up on the way, as they are alone.
#[test]
fn texts_that_are_continued_together_do_not_touch_each_other() {
    let model = model();
    let own = |place: usize| ContinueOptions {
        max_len: 3 + 2 * place,
        ..options((place % 2 == 1).then_some(Sampling { topk: Some(5), topp: None }))
    };
    let all = prompts();
    let task = |(place, prompt): (usize, &Prompt)| Task {
        prompt: prompt.clone(),
        options: own(place),
        likeliest: place % 3,
    };
    let mut texts =
        Continuing::new(&model, all.iter().enumerate().map(task).collect(), &ExpertMode::Mix).unwrap();
    let (mut found, mut steps) = (vec![Continuation::default(); all.len()], 0);
    while !texts.is_done() {
        for written in texts.step(&model).unwrap() {
            assert_eq!(written.likeliest.len(), written.index % 3);
            assert!(written.likeliest.is_sorted_by(|a, b| a.1 >= b.1));
            if own(written.index).sampling.is_none() && !written.likeliest.is_empty() {
                assert_eq!(written.likeliest[0], (written.token, written.log_prob));
            }
            found[written.index].tokens.push(written.token);
            found[written.index].log_probs.push(written.log_prob);
        }
        steps += 1;
        if steps == 4 {
            texts.remove(&model, &[2]);
        }
    }
    for (place, prompt) in all.iter().enumerate() {
        let alone = run(&model, std::slice::from_ref(prompt), &own(place)).remove(0);
        let read = if place == 2 { found[2].tokens.len() } else { alone.tokens.len() };
        assert_eq!(found[place].tokens, alone.tokens[..read], "text {place}");
    }
    assert!(found[2].tokens.len() < own(2).max_len);
}
