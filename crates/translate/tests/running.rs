//! The running batch: a sentence's translation depends neither on its neighbours nor on when it joined.

use std::collections::HashMap;
use std::sync::Arc;

use mae_model::config::System;
use mae_model::{Draws, ExpertMode};
use mae_translate::{
    BatchLimits, Choice, Error, Hypothesis, Job, RunningBatch, Sampling, SearchOptions, Searcher, Shortlist,
    Ticket,
};

use crate::common::{TYPES, config, model, sources, systems};

/// Options that differ in all that a batch could mix up.
fn options() -> Vec<SearchOptions> {
    let plain = SearchOptions { max_len_b: 7, nbest: 2, ..SearchOptions::default() };
    let pairs = [(4, 5), (5, 8), (6, 9), (9, 6)].map(|(source, target)| ([source].into(), target));
    let shortlist = Some(Arc::new(Shortlist::new([4, 7], pairs, TYPES[1])));
    let listed = SearchOptions { shortlist, ..plain.clone() };
    vec![
        plain.clone(),
        listed.clone(),
        SearchOptions { choice: Choice::Sample(Sampling { topk: None, topp: None }), ..listed },
        SearchOptions { beam: 2, min_len: 3, ..plain.clone() },
        SearchOptions { beam: 1, nbest: 1, unkpen: 0.5, max_len_b: 3, ..plain.clone() },
        SearchOptions { no_repeat_ngram_size: 2, temperature: 0.7, ..plain.clone() },
        SearchOptions { choice: Choice::Sample(Sampling { topk: Some(4), topp: None }), ..plain.clone() },
        SearchOptions { beam: 4, choice: Choice::Diverse { groups: 2, strength: 0.5 }, ..plain },
    ]
}

/// The same tokens; scores up to rounding, as products of other sizes add up in another order.
fn close(what: &str, found: &[Hypothesis], want: &[Hypothesis]) {
    let tokens = |all: &[Hypothesis]| all.iter().map(|one| one.tokens.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(found), tokens(want), "{what}");
    for (found, want) in found.iter().zip(want) {
        assert!((found.score - want.score).abs() < 1e-5, "{what}: {} for {}", found.score, want.score);
    }
}

fn lengths(count: usize) -> Vec<usize> {
    (0..count).map(|i| 1 + (7 * i) % 11).collect()
}

#[test]
fn a_sentence_alone_and_in_a_crowd_is_translated_the_same() {
    let random = ExpertMode::Random(Draws { seed: 5, places: Vec::new() });
    for (name, config) in systems() {
        let model = model(&config, 31);
        for mode in [ExpertMode::Mix, random.clone()] {
            let (count, options) = (40, options());
            let batch = sources(&lengths(count), 31);
            let job = |i: usize| Job {
                source: batch.src_sentence(i).to_vec(),
                prefix: if i % 5 == 4 { vec![6, 7] } else { Vec::new() },
                number: batch.ids[i],
                options: Arc::new(options[i % options.len()].clone()),
            };
            // One or two join at every step; a small batch lets them wait.
            let limits = BatchLimits { max_rows: 23, max_tokens: 30, ..BatchLimits::default() };
            let mut running = RunningBatch::new(&[&model], &mode, limits).unwrap();
            let (mut tickets, mut found) =
                (HashMap::<Ticket, usize>::new(), vec![Vec::<Hypothesis>::new(); count]);
            let (mut next, mut most) = (0, 0);
            while next < count || !running.is_idle() {
                for _ in 0..=next % 2 {
                    if next < count {
                        tickets.insert(running.submit(job(next)).unwrap(), next);
                        next += 1;
                    }
                }
                for (ticket, hypotheses) in running.step().unwrap() {
                    found[tickets[&ticket]] = hypotheses.unwrap();
                }
                most = most.max(running.running());
            }
            assert!(most > 2, "sentences are searched together");
            for (i, found) in found.iter().enumerate() {
                let mut alone = RunningBatch::new(&[&model], &mode, BatchLimits::default()).unwrap();
                alone.submit(job(i)).unwrap();
                let mut want = Vec::new();
                while !alone.is_idle() {
                    want.extend(alone.step().unwrap());
                }
                assert_eq!(want.len(), 1);
                close(&format!("{name}, {mode:?}, sentence {i}"), found, &want.remove(0).1.unwrap());
            }
        }
    }
}

#[test]
fn a_sentence_that_is_dropped_leaves_the_others_alone() {
    let model = model(&config(System::MAE), 32);
    let batch = sources(&[5, 3, 8, 2], 32);
    let options = SearchOptions { max_len_b: 8, ..SearchOptions::default() };
    let want = Searcher::new(&model, &options, &ExpertMode::Mix).unwrap().search(&batch).unwrap();
    let mut running = RunningBatch::new(&[&model], &ExpertMode::Mix, BatchLimits::default()).unwrap();
    let submit = |running: &mut RunningBatch<'_>, i: usize| {
        let (source, options) = (batch.src_sentence(i).to_vec(), Arc::new(options.clone()));
        running.submit(Job { source, prefix: Vec::new(), number: i as u32, options }).unwrap()
    };
    let first: Vec<Ticket> = (0..3).map(|i| submit(&mut running, i)).collect();
    running.cancel(first[0]);
    assert_eq!(running.waiting(), 2);
    assert!(running.step().unwrap().is_empty());
    running.cancel(first[1]);
    let last = submit(&mut running, 3);
    let mut found = Vec::new();
    while !running.is_idle() {
        found.extend(running.step().unwrap());
    }
    found.sort_by_key(|(ticket, _)| *ticket);
    let (tickets, found): (Vec<Ticket>, Vec<_>) = found.into_iter().unzip();
    assert_eq!(tickets, [first[2], last]);
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    found.iter().zip(&want[2..]).for_each(|(found, want)| close("left alone", found, want));
}

#[test]
fn limits_hold_and_too_large_a_sentence_runs_alone() {
    let model = model(&config(System::BASE), 33);
    let batch = sources(&[9, 9, 9, 9], 33);
    let limits = BatchLimits { max_sentences: Some(2), max_rows: 3, max_tokens: 4 };
    let mut running = RunningBatch::new(&[&model], &ExpertMode::Mix, limits).unwrap();
    for i in 0..4 {
        let options = Arc::new(SearchOptions { max_len_b: 5, ..SearchOptions::default() });
        let source = batch.src_sentence(i).to_vec();
        running.submit(Job { source, prefix: Vec::new(), number: 0, options }).unwrap();
    }
    let mut found = 0;
    while !running.is_idle() {
        found += running.step().unwrap().len();
        assert!(running.running() <= 1, "a beam of 5 alone is above the limit of 3 rows");
    }
    assert_eq!(found, 4);
}

#[test]
fn sentences_that_cannot_be_read_are_refused() {
    let model = model(&config(System::BASE), 34);
    let mut running = RunningBatch::new(&[&model], &ExpertMode::Mix, BatchLimits::default()).unwrap();
    let positions = model.config().max_positions;
    for source in [Vec::new(), vec![4; positions + 1]] {
        let job = Job { source, prefix: Vec::new(), number: 0, options: Arc::default() };
        assert!(matches!(running.submit(job), Err(Error::Source { .. })));
    }
    assert!(running.is_idle() && running.step().unwrap().is_empty());
}
