//! Cached steps against full passes, and scores of references.

use mae_data::{EOS, MemoryDataset, PackedBatch};
use mae_engine::Rng;
use mae_engine::ops::decode::Room;
use mae_model::config::{DecoderGate, System};
use mae_model::{Draws, ExpertMode, SearchRoom, Translator};
use mae_translate::{SwitchedOff, score_references, without};

use crate::common::{
    TYPES, config, full_pass, full_pass_with, log_softmax, model, sources, systems, with_gates,
};

fn close(what: &str, got: &[f32], want: &[f32]) {
    for (a, b) in got.iter().zip(want) {
        assert!((a - b).abs() < 1e-4, "{what}: {a}, the full pass says {b}");
    }
}

/// Random tokens through `stepped`, hypotheses reordered, doubled and dropped on the way; at every step and for every
/// hypothesis the logits must be those of a full pass of `full` over its prefix.
fn check_steps(name: &str, stepped: &Translator, full: &Translator, seed: u64, mode: &ExpertMode) {
    let batch = sources(&[5, 1, 8], seed);
    let of_batch = mode.at(&batch.ids);
    let room = SearchRoom { steps: Room { rows: 5, steps: 6 }, sentences: 3, source: batch.src.len() };
    let mut state = stepped.search_room(room);
    stepped.admit(&mut state, &batch.src, &batch.src_starts, &of_batch).unwrap();
    // (sentence, tokens read so far)
    let mut prefixes: Vec<(usize, Vec<u32>)> = (0..3).map(|sentence| (sentence, vec![])).collect();
    let orders: [&[u32]; 6] =
        [&[0, 0, 1, 2, 2], &[4, 1, 0, 2, 3], &[0, 1, 2, 3, 4], &[2, 2, 0], &[1, 2], &[1]];
    for (step, order) in orders.iter().enumerate() {
        let draws = Rng::new(seed, 3).stream(step as u32);
        for (i, (_, tokens)) in prefixes.iter_mut().enumerate() {
            let random = 4 + (draws.uniform(i as u32, 0) * (TYPES[1] - 4) as f32) as u32;
            tokens.push(if step == 0 { EOS } else { random });
        }
        let newest: Vec<u32> = prefixes.iter().map(|(_, tokens)| tokens[step]).collect();
        let logits = stepped.step(&mut state, &newest, &of_batch).unwrap();
        for ((sentence, tokens), got) in prefixes.iter().zip(logits.to_host().chunks_exact(TYPES[1])) {
            let own = mode.at(&[*sentence as u32]);
            let want = full_pass_with(full, batch.src_sentence(*sentence), tokens, &own);
            close(&format!("{name}, step {step}"), got, &want[step]);
        }
        stepped.reorder(&mut state, order);
        prefixes = order.iter().map(|&parent| prefixes[parent as usize].clone()).collect();
    }
}

#[test]
fn cached_steps_equal_full_passes() {
    for (name, config) in systems() {
        for seed in [11, 12] {
            let model = model(&config, seed);
            check_steps(name, &model, &model, seed, &ExpertMode::Mix);
        }
    }
}

/// The paper's one-expert evaluation: the same experts while stepping as in full passes.
#[test]
fn one_expert_steps_as_in_full_passes() {
    let random = ExpertMode::Random(Draws { seed: 5, places: Vec::new() });
    for (name, config) in systems() {
        let model = model(&config, 14);
        for mode in [ExpertMode::Argmax, ExpertMode::Fixed(2), random.clone()] {
            check_steps(&format!("{name}, {mode:?}"), &model, &model, 14, &mode);
        }
    }
}

/// Experts and heads that are switched off are so while stepping as in full passes.
#[test]
fn what_is_switched_off_stays_off_while_stepping() {
    for (name, config) in systems().into_iter().filter(|(_, config)| config.mixture.system.has_experts()) {
        let model = model(&config, 15);
        let off = |attention: &str| SwitchedOff {
            attention: attention.into(),
            experts: vec![1, 2],
            heads: vec![0],
        };
        let names =
            ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"];
        let mode = without(&model, &names.map(off)).unwrap();
        check_steps(&format!("{name}, switched off"), &model, &model, 15, &mode);
        let batch = sources(&[5], 15);
        let logits = |mode: &ExpertMode| full_pass_with(&model, batch.src_sentence(0), &[EOS], mode);
        assert_ne!(logits(&mode), logits(&ExpertMode::Mix), "{name}");
    }
}

/// See `whole_gates_decode_as_causal_ones`.
#[test]
fn steps_of_whole_gates_equal_full_passes_of_causal_ones() {
    let causal = model(&config(System::MAE), 13);
    check_steps("whole gates", &with_gates(&causal, DecoderGate::Whole), &causal, 13, &ExpertMode::Mix);
}

#[test]
fn references_score_as_full_passes_say() {
    for (name, config) in systems() {
        let model = model(&config, 21);
        let side = |lengths: &[usize], seed| -> MemoryDataset {
            let batch = sources(lengths, seed);
            (0..lengths.len())
                .map(|place| batch.src_sentence(place).iter().map(|id| id % 13).collect::<Vec<_>>())
                .collect()
        };
        let (src, tgt) = (side(&[4, 2, 6], 1), side(&[3, 7, 1], 2));
        let vocab = std::sync::Arc::new(mae_data::Vocab::new());
        let data = mae_data::ParallelDataset {
            src: src.into(),
            tgt: tgt.into(),
            src_vocab: vocab.clone(),
            tgt_vocab: vocab,
        };
        let batch = PackedBatch::from_pairs(&data, &[0, 1, 2]);
        let scores = score_references(&[&model], &batch, &ExpertMode::Mix).unwrap();
        for (place, got) in scores.iter().enumerate() {
            let target = batch.tgt_sentence(place);
            let previous: Vec<u32> = [EOS].iter().chain(&target[..target.len() - 1]).copied().collect();
            let logits = full_pass(&model, batch.src_sentence(place), &previous);
            let want: Vec<f32> =
                logits.iter().zip(target).map(|(row, &t)| log_softmax(row)[t as usize] as f32).collect();
            assert_eq!(got.len(), want.len());
            close(&format!("{name}, sentence {place}"), got, &want);
        }
    }
}
