//! Several running batches on many threads: the translations of one batch, in order.

use mae_data::{EOS, MemoryDataset, Sentences};
use mae_engine::Rng;
use mae_model::config::System;
use mae_model::{ExpertMode, Translator};
use mae_translate::{
    BatchLimits, Error, GateReport, Group, GroupOptions, Pipeline, SearchOptions, Translated,
};

use crate::common::{config, model};

/// 400 sentences, of which some are empty.
fn sources() -> Sentences {
    let stream = Rng::new(3, 0).stream(0);
    let sentence = |i: u32| {
        let length = (i * 7) % 9;
        let words = (0..length).map(|j| 4 + (stream.uniform(i, j) * 13.0) as u32);
        words.chain([EOS]).collect::<Vec<u32>>()
    };
    (0..400).map(sentence).collect::<MemoryDataset>().into()
}

fn translate(
    model: &Translator,
    sources: &Sentences,
    threads: usize,
    stop: usize,
) -> (Vec<Translated>, bool) {
    let search = SearchOptions { beam: 2, max_len_b: 6, ..SearchOptions::default() };
    let options = GroupOptions { search, mode: ExpertMode::Mix, gates: GateReport::All };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let (mut found, mut counted) = (Vec::new(), 0);
        let limits = BatchLimits { max_sentences: Some(16), ..BatchLimits::default() };
        let mut pipeline = Pipeline::new(&[model], limits);
        let group = Group { sources, prefixes: None, first: 0 };
        let done = pipeline.translate(group, &options, &mut |count| counted += count, |i, translated| {
            assert_eq!(i, found.len(), "in order");
            if i == stop {
                return Err(Error::NoModels);
            }
            found.push(translated);
            Ok(())
        });
        (found, done.is_ok())
    })
}

#[test]
fn many_threads_translate_as_one_does() {
    let (model, sources) = (model(&config(System::MAE), 8), sources());
    let (one, done) = translate(&model, &sources, 1, usize::MAX);
    assert!(done && one.len() == sources.len());
    for threads in [8, 19] {
        let (many, done) = translate(&model, &sources, threads, usize::MAX);
        assert!(done && many.len() == one.len(), "{threads} threads");
        for (i, (many, one)) in many.iter().zip(&one).enumerate() {
            assert_eq!(many.gates.is_some(), one.gates.is_some());
            assert_eq!(many.hypotheses.len(), one.hypotheses.len());
            for (many, one) in many.hypotheses.iter().zip(&one.hypotheses) {
                assert_eq!(many.tokens, one.tokens, "sentence {i}, {threads} threads");
                assert!((many.score - one.score).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn an_error_ends_all_batches() {
    let (model, sources) = (model(&config(System::BASE), 8), sources());
    let (found, done) = translate(&model, &sources, 8, 150);
    assert!(!done);
    assert_eq!(found.len(), 150);
}
