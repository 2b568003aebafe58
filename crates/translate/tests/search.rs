//! The search against a slow one that is written down from fairseq's rules, one full pass per hypothesis and step.

use mae_data::{EOS, PAD};
use mae_model::config::{CrossGate, DecoderGate, System};
use mae_model::{ExpertMode, Translator};
use mae_translate::{Error, ExpertFault, SearchOptions, Searcher, search};

use crate::common::slow::{SlowSearch, assert_same};
use crate::common::{alone, config, model, sources, systems, with_gates};

/// Option sets that bring out every rule.
fn option_sets() -> Vec<(&'static str, SearchOptions)> {
    let short = SearchOptions { max_len_b: 9, ..SearchOptions::default() };
    vec![
        ("greedy", SearchOptions { beam: 1, ..short.clone() }),
        ("beam 4, all", SearchOptions { beam: 4, nbest: 4, ..short.clone() }),
        ("short is cheap", SearchOptions { beam: 3, nbest: 3, lenpen: 0.0, ..short.clone() }),
        ("long is good", SearchOptions { beam: 3, nbest: 2, lenpen: 2.0, ..short.clone() }),
        ("raw scores", SearchOptions { beam: 3, nbest: 3, normalise: false, ..short.clone() }),
        ("no unknowns", SearchOptions { beam: 3, nbest: 3, unkpen: 50.0, ..short.clone() }),
        ("many unknowns", SearchOptions { beam: 2, nbest: 2, unkpen: -4.0, ..short.clone() }),
        ("at least five", SearchOptions { beam: 3, nbest: 3, min_len: 5, ..short.clone() }),
        ("empty allowed", SearchOptions { beam: 3, nbest: 3, min_len: 0, ..short.clone() }),
        (
            "by source length",
            SearchOptions { beam: 3, nbest: 3, max_len_a: 0.5, max_len_b: 1, ..short.clone() },
        ),
        ("cut at two", SearchOptions { beam: 4, nbest: 4, max_len_b: 2, ..short.clone() }),
        ("beam above the types", SearchOptions { beam: 20, nbest: 20, max_len_b: 3, ..short }),
    ]
}

fn check(
    name: &str,
    model: &Translator,
    slow_model: &Translator,
    options: &[(&str, SearchOptions)],
    seed: u64,
) {
    let batch = sources(&[5, 1, 9, 2, 13], seed);
    for (set, options) in options {
        let together = search(model, &batch, options, &ExpertMode::Mix).unwrap();
        for (place, got) in together.iter().enumerate() {
            let what = format!("{name}, {set}, seed {seed}, sentence {place}");
            let slow = SlowSearch::new(&[slow_model], options);
            assert_same(&what, got, &slow.run(batch.src_sentence(place)));
            let single = search(model, &alone(&batch, place), options, &ExpertMode::Mix).unwrap();
            assert_eq!(single.len(), 1);
            assert_eq!(single[0].len(), got.len(), "{what}: alone");
            for (a, b) in single[0].iter().zip(got) {
                assert_eq!(a.tokens, b.tokens, "{what}: alone");
                assert!((a.score - b.score).abs() < 1e-4, "{what}: alone");
            }
        }
    }
}

/// Every system, several sentences of different lengths at once.
#[test]
fn search_equals_the_slow_search() {
    for (name, config) in systems() {
        for seed in [1, 2] {
            let model = model(&config, seed);
            check(name, &model, &model, &option_sets()[1..2], seed);
        }
    }
}

/// Every rule, on one gated model and one plain one.
#[test]
fn every_option_follows_fairseq() {
    for system in [System::BASE, System::MAE] {
        let model = model(&config(system), 3);
        check("options", &model, &model, &option_sets(), 3);
    }
}

/// A gate over the whole target sees, while decoding, the mean of what is there: gates of earlier positions stay as they
/// were. That is word for word what a causal gate does, so such a model decodes as its causal twin; no full pass of its
/// own gives these numbers, except where nothing gated feeds a later gate (next test).
#[test]
fn whole_gates_decode_as_causal_ones() {
    let model = model(&config(System::MAE), 4);
    let whole = with_gates(&model, DecoderGate::Whole);
    check("whole gates", &whole, &model, &option_sets()[1..2], 4);
}

/// One decoder layer whose cross gates read the source: the full pass over a prefix has the same gate at its last position.
#[test]
fn whole_gates_of_one_layer_equal_the_full_pass() {
    let mut config = config(System::MAE);
    config.decoder_layers = 1;
    config.mixture.cross_gate = CrossGate::Source;
    config.mixture.decoder_gate = DecoderGate::Whole;
    let model = model(&config, 5);
    check("whole gates, one layer", &model, &model, &option_sets()[1..2], 5);
}

#[test]
fn a_sentence_stops_with_a_full_beam_or_at_the_limit() {
    let model = model(&config(System::MAE), 6);
    let batch = sources(&[4, 7, 2, 11], 6);
    for beam in [1, 2, 5] {
        let options = SearchOptions { beam, nbest: beam, max_len_b: 6, ..SearchOptions::default() };
        for found in search(&model, &batch, &options, &ExpertMode::Mix).unwrap() {
            assert_eq!(found.len(), beam, "every sentence ends with a full beam here");
            assert!(found.is_sorted_by(|a, b| a.score >= b.score), "best first");
            for hypothesis in &found {
                let (end, words) = hypothesis.tokens.split_last().unwrap();
                assert_eq!(*end, EOS);
                assert!((1..=6).contains(&words.len()) && !words.contains(&EOS) && !words.contains(&PAD));
                let sum: f32 = hypothesis.positional.iter().sum();
                let score = sum / hypothesis.tokens.len() as f32;
                assert!((score - hypothesis.score).abs() < 1e-5, "lenpen 1 is the mean");
            }
        }
    }
}

/// Caches that a searcher keeps from batch to batch do not show, whether the next one is smaller or larger.
#[test]
fn a_searcher_translates_one_batch_after_another() {
    for (name, config) in systems() {
        let model = model(&config, 9);
        let options = SearchOptions { max_len_b: 6, ..SearchOptions::default() };
        let mut searcher = Searcher::new(&model, &options, &ExpertMode::Mix).unwrap();
        for lengths in [&[9, 4][..], &[2], &[5], &[7, 3], &[12, 1, 3]] {
            let batch = sources(lengths, 9);
            let want = search(&model, &batch, &options, &ExpertMode::Mix).unwrap();
            assert_eq!(searcher.search(&batch).unwrap(), want, "{name}, {lengths:?}");
        }
    }
}

#[test]
fn fewer_of_the_best_are_the_first_of_more() {
    let model = model(&config(System::UNIFORM), 7);
    let batch = sources(&[6, 3], 7);
    let of = |nbest| {
        let options = SearchOptions { nbest, max_len_b: 8, ..SearchOptions::default() };
        search(&model, &batch, &options, &ExpertMode::Mix).unwrap()
    };
    for (one, five) in of(1).iter().zip(&of(5)) {
        assert_eq!(one[..], five[..1]);
    }
    assert!(
        search(&model, &sources(&[], 1), &SearchOptions::default(), &ExpertMode::Mix).unwrap().is_empty()
    );
}

#[test]
fn a_model_whose_outputs_are_not_numbers_is_an_error() {
    let mut model = model(&config(System::BASE), 8);
    let name = "decoder.layers.1.fc2.bias";
    model.params_mut().set(name, &[f32::NAN; 12]).unwrap();
    let found = search(&model, &sources(&[3], 8), &SearchOptions::default(), &ExpertMode::Mix);
    assert!(matches!(found, Err(Error::NotFinite { unit: "sentence", number: 0 })), "{found:?}");
}

#[test]
fn bad_options_and_ids_are_errors() {
    let model = model(&config(System::MAE), 8);
    let options = SearchOptions { beam: 0, ..SearchOptions::default() };
    let refused = Searcher::new(&model, &options, &ExpertMode::Mix).err();
    assert!(matches!(refused, Some(Error::Options(_))), "{refused:?}");
    let good = SearchOptions::default();
    let refused = Searcher::new(&model, &good, &ExpertMode::Sample).err();
    assert!(matches!(refused, Some(Error::Experts { fault: ExpertFault::TrainingOnly, .. })), "{refused:?}");
    assert!(matches!(Searcher::ensemble(&[], &good, &ExpertMode::Mix).err(), Some(Error::NoModels)));
    let mut searcher = Searcher::new(&model, &good, &ExpertMode::Mix).unwrap();
    let batch = sources(&[3, 2], 8);
    for prefixes in [vec![vec![4]], vec![vec![], vec![999]]] {
        let refused = searcher.search_after(&batch, &prefixes);
        assert!(matches!(refused, Err(Error::Prefixes(_))), "{refused:?}");
    }
    let mut foreign = sources(&[3], 8);
    foreign.src[0] = 999;
    assert!(matches!(searcher.search(&foreign), Err(Error::Model(_))));
}
