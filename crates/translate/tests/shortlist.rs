//! Shortlists: translations have the types of their lists, and a list of everything changes nothing.

use std::sync::Arc;

use mae_data::{BOS, EOS, PAD, UNK};
use mae_model::ExpertMode;
use mae_model::config::System;
use mae_translate::{BatchLimits, Choice, Hypothesis, Job, RunningBatch, Sampling, SearchOptions, Shortlist};

use crate::common::{TYPES, config, model, sources};

/// Translations of some sentences, with these options for each in turn.
fn translate(options: &[SearchOptions]) -> Vec<Vec<Hypothesis>> {
    let model = model(&config(System::MAE), 5);
    let batch = sources(&[3, 5, 4, 8, 2, 6], 5);
    let mut running = RunningBatch::new(&[&model], &ExpertMode::Mix, BatchLimits::default()).unwrap();
    let mut found = vec![Vec::new(); 6];
    let mut tickets = Vec::new();
    for i in 0..6 {
        let options = Arc::new(options[i % options.len()].clone());
        let source = batch.src_sentence(i).to_vec();
        tickets.push(running.submit(Job { source, prefix: Vec::new(), number: i as u32, options }).unwrap());
    }
    while !running.is_idle() {
        for (ticket, hypotheses) in running.step().unwrap() {
            let i = tickets.iter().position(|other| *other == ticket).unwrap();
            found[i] = hypotheses.unwrap();
        }
    }
    found
}

fn choices() -> [SearchOptions; 3] {
    let plain = SearchOptions { max_len_b: 8, nbest: 3, ..SearchOptions::default() };
    let drawn = Choice::Sample(Sampling { topk: None, topp: None });
    [
        SearchOptions { choice: drawn, ..plain.clone() },
        SearchOptions { no_repeat_ngram_size: 2, ..plain.clone() },
        plain,
    ]
}

#[test]
fn translations_have_the_types_of_their_lists() {
    let always = [5, 8];
    let list = Arc::new(Shortlist::new(always, [], TYPES[1]));
    for options in choices() {
        let free = translate(std::slice::from_ref(&options));
        assert!(free.iter().flatten().flat_map(|one| &one.tokens).any(|id| ![EOS, UNK, 5, 8].contains(id)));
        let listed = SearchOptions { shortlist: Some(list.clone()), ..options.clone() };
        let found = translate(std::slice::from_ref(&listed));
        for hypothesis in found.iter().flatten() {
            assert!(
                hypothesis.tokens.iter().all(|id| [EOS, UNK, 5, 8].contains(id)),
                "{:?}",
                hypothesis.tokens
            );
        }
        // Those beside sentences without a list have the same translations.
        let mixed = translate(&[listed, options]);
        for i in (0..6).step_by(2) {
            let tokens = |all: &[Hypothesis]| all.iter().map(|one| one.tokens.clone()).collect::<Vec<_>>();
            assert_eq!(tokens(&mixed[i]), tokens(&found[i]));
            assert_eq!(tokens(&mixed[i + 1]), tokens(&free[i + 1]));
        }
    }
}

#[test]
fn a_list_of_all_types_changes_probabilities_by_those_of_padding_only() {
    let all = (0..TYPES[1] as u32).filter(|id| ![BOS, PAD].contains(id));
    let list = Arc::new(Shortlist::new(all, [], TYPES[1]));
    let greedy = SearchOptions { beam: 1, max_len_b: 8, ..SearchOptions::default() };
    let free = translate(std::slice::from_ref(&greedy));
    let listed = translate(&[SearchOptions { shortlist: Some(list), ..greedy }]);
    for (free, listed) in free.iter().zip(&listed) {
        assert_eq!(free[0].tokens, listed[0].tokens);
        assert!(listed[0].score > free[0].score, "the same logits, fewer types");
    }
}
