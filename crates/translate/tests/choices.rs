//! Forced prefixes, no repetitions, groups of beams, temperature, ensembles and one-expert models against the slow search;
//! sampling by its properties.

use std::collections::HashMap;

use mae_data::{EOS, PackedBatch};
use mae_model::config::System;
use mae_model::{Draws, ExpertMode, Translator};
use mae_translate::{
    Choice, GateRows, Gates, Hypothesis, Sampling, SearchOptions, Searcher, gates_of, score_references,
    search,
};

use crate::common::slow::{SlowSearch, assert_same};
use crate::common::{self, TYPES, config, full_pass, log_softmax, model, sources, systems};

fn short() -> SearchOptions {
    SearchOptions { beam: 4, nbest: 4, max_len_b: 9, ..SearchOptions::default() }
}

fn found(model: &Translator, batch: &PackedBatch, options: &SearchOptions) -> Vec<Vec<Hypothesis>> {
    search(model, batch, options, &ExpertMode::Mix).unwrap()
}

fn tokens(found: &[Vec<Hypothesis>]) -> Vec<Vec<&[u32]>> {
    found.iter().map(|each| each.iter().map(|hypothesis| &hypothesis.tokens[..]).collect()).collect()
}

/// Choices that rows of log-probabilities are needed for.
fn option_sets() -> Vec<(&'static str, SearchOptions)> {
    let diverse = |groups, strength| Choice::Diverse { groups, strength };
    vec![
        ("nothing is forbidden", SearchOptions { no_repeat_ngram_size: 100, ..short() }),
        ("no pair twice", SearchOptions { no_repeat_ngram_size: 2, lenpen: 2.0, ..short() }),
        ("no word twice", SearchOptions { no_repeat_ngram_size: 1, min_len: 6, ..short() }),
        ("flat", SearchOptions { temperature: 2.0, min_len: 3, unkpen: -1.0, ..short() }),
        ("sharp", SearchOptions { temperature: 0.4, normalise: false, ..short() }),
        ("two groups", SearchOptions { choice: diverse(2, 0.5), min_len: 4, ..short() }),
        ("groups of one", SearchOptions { choice: diverse(4, 1.5), min_len: 4, ..short() }),
        ("groups that do not care", SearchOptions { choice: diverse(2, 0.0), ..short() }),
        (
            "all at once",
            SearchOptions {
                choice: diverse(2, 0.7),
                no_repeat_ngram_size: 2,
                temperature: 1.5,
                max_len_a: 0.5,
                min_len: 3,
                ..short()
            },
        ),
    ]
}

#[test]
fn choices_on_the_host_equal_the_slow_search() {
    for (system, seed) in [(System::BASE, 31), (System::MAE, 32)] {
        let model = model(&config(system), seed);
        let batch = sources(&[5, 1, 9, 2], seed);
        for (name, options) in option_sets() {
            for (place, got) in found(&model, &batch, &options).iter().enumerate() {
                let slow = SlowSearch::new(&[&model], &options);
                assert_same(
                    &format!("{system:?}, {name}, {place}"),
                    got,
                    &slow.run(batch.src_sentence(place)),
                );
            }
        }
    }
}

/// The way over the host finds what the device finds.
#[test]
fn plain_search_is_the_same_either_way() {
    for (name, config) in systems() {
        let model = model(&config, 33);
        let batch = sources(&[5, 1, 9, 2, 13], 33);
        let plain = found(&model, &batch, &short());
        let over_host = found(&model, &batch, &SearchOptions { no_repeat_ngram_size: 100, ..short() });
        assert_eq!(tokens(&plain), tokens(&over_host), "{name}");
        let one_group = Choice::Diverse { groups: 1, strength: 3.0 };
        assert_eq!(found(&model, &batch, &SearchOptions { choice: one_group, ..short() }), plain, "{name}");
    }
}

#[test]
fn no_sequence_comes_twice() {
    let model = model(&config(System::MAE), 34);
    let batch = sources(&[5, 3, 9], 34);
    let long = SearchOptions { min_len: 25, max_len_b: 30, ..short() };
    let repeats = |found: &[Vec<Hypothesis>], n: usize| {
        found.iter().flatten().any(|hypothesis| {
            let words = &hypothesis.tokens[..hypothesis.tokens.len() - 1];
            let mut seen: Vec<&[u32]> = words.windows(n).collect();
            seen.sort();
            seen.windows(2).any(|pair| pair[0] == pair[1])
        })
    };
    assert!(repeats(&found(&model, &batch, &long), 3), "otherwise there is nothing to see");
    for n in [1, 2, 3] {
        let options = SearchOptions { no_repeat_ngram_size: n, ..long.clone() };
        let found = found(&model, &batch, &options);
        assert!(!repeats(&found, n), "{n}: {found:?}");
        // Where words run out before the shortest length, hypotheses end all the same.
        assert!(found.iter().all(|each| !each.is_empty()), "{n}");
    }
}

#[test]
fn translations_begin_with_their_prefixes() {
    let model = model(&config(System::MAE), 35);
    let batch = sources(&[5, 3, 9, 4], 35);
    let prefixes = vec![vec![5, 5, 7], vec![], vec![6, 9, EOS], vec![4; 12]];
    for choice in
        [Choice::Best, Choice::Sample(Sampling::default()), Choice::Diverse { groups: 2, strength: 0.5 }]
    {
        let options = SearchOptions { choice, no_repeat_ngram_size: 2, ..short() };
        let mut searcher = Searcher::new(&model, &options, &ExpertMode::Mix).unwrap();
        let found = searcher.search_after(&batch, &prefixes).unwrap();
        for (place, (found, prefix)) in found.iter().zip(&prefixes).enumerate() {
            let prefix = &prefix[..prefix.len().min(options.max_len_b)];
            assert!(
                found.iter().all(|hypothesis| hypothesis.tokens.starts_with(prefix)),
                "{choice:?}: {found:?}"
            );
            if choice == Choice::Best {
                let mut slow = SlowSearch::new(&[&model], &options);
                slow.prefix = prefix.to_vec();
                assert_same(&format!("prefix {place}"), found, &slow.run(batch.src_sentence(place)));
            }
        }
        assert_eq!(found[0].len(), 4, "the whole beam comes from the prefix");
        assert_eq!(tokens(&found)[2], [&prefixes[2][..]], "a prefix that ends leaves nothing to find");
    }
}

#[test]
fn ensembles_average_probabilities() {
    let [one, other] = [36, 37].map(|seed| model(&config(System::MAE), seed));
    let base = model(&config(System::BASE), 38);
    let batch = sources(&[5, 3, 9], 36);
    let options = SearchOptions { no_repeat_ngram_size: 3, ..short() };
    let ensemble = |models: &[&Translator], options: &SearchOptions| {
        Searcher::ensemble(models, options, &ExpertMode::Mix).unwrap().search(&batch).unwrap()
    };
    for models in [vec![&one, &other], vec![&one, &base, &other]] {
        for options in [&short(), &options] {
            for (place, got) in ensemble(&models, options).iter().enumerate() {
                let slow = SlowSearch::new(&models, options);
                assert_same(&format!("ensemble, {place}"), got, &slow.run(batch.src_sentence(place)));
            }
        }
    }
    let alone = found(&one, &batch, &short());
    assert_eq!(tokens(&ensemble(&[&one, &one], &short())), tokens(&alone), "a model with itself is itself");
    // What was found scores what the search said.
    let all = ensemble(&[&one, &other], &short());
    let best = &all[0][0];
    let pair = PackedBatch {
        src: batch.src_sentence(0).to_vec(),
        src_starts: vec![0, batch.src_sentence(0).len() as u32],
        prev: [&[EOS], &best.tokens[..best.tokens.len() - 1]].concat(),
        tgt: best.tokens.clone(),
        tgt_starts: vec![0, best.tokens.len() as u32],
        ids: vec![0],
    };
    let scored = score_references(&[&one, &other], &pair, &ExpertMode::Mix).unwrap();
    assert!(scored[0].iter().zip(&best.positional).all(|(a, b)| (a - b).abs() < 1e-4));
}

#[test]
fn one_expert_searches_as_its_full_passes() {
    for system in [System::UNIFORM, System::MAE] {
        let model = model(&config(system), 39);
        let batch = sources(&[5, 3, 9], 39);
        let random = |seed| ExpertMode::Random(Draws { seed, places: Vec::new() });
        let mut all = Vec::new();
        for mode in [ExpertMode::Mix, ExpertMode::Argmax, ExpertMode::Fixed(1), random(1), random(2)] {
            let found = search(&model, &batch, &short(), &mode).unwrap();
            for (place, got) in found.iter().enumerate() {
                let mut slow = SlowSearch::new(&[&model], &short());
                slow.mode = mode.at(&[place as u32]);
                assert_same(
                    &format!("{system:?}, {mode:?}, {place}"),
                    got,
                    &slow.run(batch.src_sentence(place)),
                );
            }
            assert!(!all.contains(&found), "{system:?}, {mode:?} makes a difference");
            all.push(found);
        }
    }
}

#[test]
fn gates_are_those_that_the_search_saw() {
    let model = model(&config(System::MAE), 40);
    let batch = sources(&[5, 3], 40);
    let options = SearchOptions { nbest: 2, ..short() };
    let random = ExpertMode::Random(Draws { seed: 4, places: Vec::new() });
    for mode in [ExpertMode::Mix, ExpertMode::Argmax, random] {
        let found = search(&model, &batch, &options, &mode).unwrap();
        let gates = gates_of(&model, &batch, &found, &mode).unwrap();
        assert_eq!(gates.len(), 2);
        for (gates, found) in gates.iter().zip(&found) {
            let names = |gates: &[mae_translate::Gates]| {
                gates.iter().map(|g| g.attention.clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(&gates.encoder), ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]);
            let all = gates.encoder.iter().chain(gates.hypotheses.iter().flatten());
            for row in all.flat_map(|gates| gates.rows.rows()) {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5 && row.len() == 3, "{row:?}");
            }
            assert!(gates.encoder.iter().all(|gates| matches!(gates.rows, GateRows::Sentence(_))));
            for (gates, hypothesis) in gates.hypotheses.iter().zip(found) {
                assert_eq!(gates.len(), 4, "two layers, two attentions");
                let per_token = |g: &Gates| match &g.rows {
                    GateRows::Tokens(rows) => rows.len() == hypothesis.tokens.len(),
                    GateRows::Sentence(_) => false,
                };
                assert!(gates.iter().all(per_token));
            }
        }
    }
    // With all first layers' weights the same, the first gate does not know of the mode, and argmax takes its favourite.
    let found = search(&model, &batch, &options, &ExpertMode::Mix).unwrap();
    let [mix, argmax] =
        [ExpertMode::Mix, ExpertMode::Argmax].map(|mode| gates_of(&model, &batch, &found, &mode).unwrap());
    assert_eq!(mix[0].encoder[0], argmax[0].encoder[0]);
    assert_ne!(mix[0].encoder[1], argmax[0].encoder[1]);
    let base = common::model(&config(System::BASE), 40);
    assert!(gates_of(&base, &batch, &found, &ExpertMode::Mix).unwrap()[0].encoder.is_empty());
}

#[test]
fn drawing_from_one_token_is_greedy() {
    let model = model(&config(System::MAE), 41);
    let batch = sources(&[5, 1, 9, 2], 41);
    let greedy = found(&model, &batch, &SearchOptions { beam: 1, nbest: 1, ..short() });
    for sampling in [Sampling { topk: Some(1), topp: None }, Sampling { topk: None, topp: Some(1e-6) }] {
        let options = SearchOptions { beam: 1, nbest: 1, choice: Choice::Sample(sampling), ..short() };
        assert_eq!(tokens(&found(&model, &batch, &options)), tokens(&greedy));
    }
}

#[test]
fn samples_depend_on_seed_and_place_only() {
    let model = model(&config(System::MAE), 42);
    let choice = Choice::Sample(Sampling::default());
    let options = SearchOptions { choice, min_len: 3, ..short() };
    let batch = sources(&[5, 4, 9, 2], 42);
    let together = found(&model, &batch, &options);
    assert_eq!(tokens(&found(&model, &batch, &options)), tokens(&together));
    for place in 0..4 {
        let mut alone = common::alone(&batch, place);
        alone.ids = vec![place as u32];
        assert_eq!(tokens(&found(&model, &alone, &options))[0], tokens(&together)[place]);
    }
    let other = found(&model, &batch, &SearchOptions { seed: 2, ..options.clone() });
    assert_ne!(tokens(&other), tokens(&together));
    for hypothesis in together.iter().flatten() {
        assert!((4..=10).contains(&hypothesis.tokens.len()) && hypothesis.tokens.ends_with(&[EOS]));
    }
    assert!(together.iter().all(|each| each.len() == 4 && each.is_sorted_by(|a, b| a.score >= b.score)));
}

/// First tokens of many samples have the model's probabilities; their scores are the log-probabilities, not those of
/// what the bounds left.
#[test]
fn samples_follow_the_model() {
    let model = model(&config(System::BASE), 43);
    let batch = sources(&[6], 43);
    let temperature = 1.7;
    let logits = &full_pass(&model, batch.src_sentence(0), &[EOS])[0];
    let tempered: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
    let log_probs = log_softmax(&tempered);
    for topk in [None, Some(3)] {
        let choice = Choice::Sample(Sampling { topk, topp: None });
        let (seeds, beam) = (4, 1000);
        let mut counts: HashMap<u32, f64> = HashMap::new();
        for seed in 0..seeds {
            let base = SearchOptions { beam, nbest: beam, max_len_b: 1, min_len: 0, seed, ..short() };
            let options = SearchOptions { temperature, choice, ..base };
            for hypothesis in &found(&model, &batch, &options)[0] {
                let first = hypothesis.tokens[0];
                assert!((f64::from(hypothesis.positional[0]) - log_probs[first as usize]).abs() < 1e-4);
                *counts.entry(first).or_default() += 1.0 / (seeds as usize * beam) as f64;
            }
        }
        let mut likely: Vec<usize> = (0..TYPES[1]).filter(|&token| token != mae_data::PAD as usize).collect();
        likely.sort_by(|&a, &b| log_probs[b].total_cmp(&log_probs[a]));
        likely.truncate(topk.unwrap_or(TYPES[1]));
        let total: f64 = likely.iter().map(|&token| log_probs[token].exp()).sum();
        for &token in &likely {
            let (want, got) = (log_probs[token].exp() / total, counts.remove(&(token as u32)).unwrap_or(0.0));
            assert!((got - want).abs() < 0.03, "{topk:?}: token {token} has {got} of the draws, not {want}");
        }
        assert!(counts.is_empty(), "{topk:?}: {counts:?}");
    }
}
