//! BPE dropout while training: drawn anew for each epoch, and the same after a resume.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::bpe::{Bpe, Codes, Version};
use mae_data::files::FolderLock;
use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, Segmentation, Vocab};
use mae_engine::Device;
use mae_model::Translator;
use mae_train::checkpoint::{Resets, TextSide, Writer};
use mae_train::log::Event;
use mae_train::{Learner, Outcome, RunConfig, Trainer};

use crate::common::{bits, config};

fn codes() -> Codes {
    let merges = [("a", "b"), ("a", "b</w>"), ("b", "a</w>"), ("ab", "ab</w>"), ("ab", "ba</w>")];
    Codes { version: Version::V0_2, merges: merges.map(|(left, right)| (left.into(), right.into())).to_vec() }
}

/// Pairs of short sentences in pieces, whose dictionary has all characters.
fn data(pairs: usize) -> ParallelDataset {
    let word = |i: usize| ["abab", "ab", "ba", "abba", "b"][i % 5];
    let line = |i: usize, n: usize| (0..n).map(|j| word(i * 3 + j * j)).collect::<Vec<_>>().join(" ");
    let bpe = Bpe::new(&codes());
    let sources: Vec<String> = (0..pairs).map(|i| bpe.segment_line(&line(i, 2 + i % 5))).collect();
    let targets: Vec<String> = (0..pairs).map(|i| bpe.segment_line(&line(i + 1, 1 + i % 4))).collect();
    let symbols = ["abab", "abba", "ab", "ba", "a", "b", "a@@", "b@@", "ab@@"].map(|symbol| (symbol, 1));
    let vocab = Arc::new(Vocab::from_counts(symbols, VocabOptions::default()));
    ParallelDataset::from_lines(&sources, &targets, vocab.clone(), vocab).unwrap()
}

/// Trains in `folder`; stops from outside after update `stop_after`. Also returns target tokens of each epoch.
fn train(folder: &Path, config: &RunConfig, stop_after: Option<u64>) -> (Learner, Outcome, Vec<u64>) {
    let (train, stop) = (data(60), AtomicBool::new(false));
    let text = TextSide::of_pairs(&train, Some(&Segmentation::Joint(codes())), &Default::default());
    let types = train.src_vocab.len();
    let model = Translator::new(&config.model, [types, types], &Device::cpu(), config.train.seed).unwrap();
    let lock = FolderLock::take(folder).unwrap();
    let trainer = Trainer {
        config: config.clone(),
        learner: Learner::new(model, &config.train),
        train: &train,
        valid: None,
        text,
        folder: folder.to_owned(),
        record: None,
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &stop,
        writer: Writer::new().unwrap(),
        lock: Some(&lock),
    };
    let mut epochs = Vec::new();
    let (learner, outcome) = trainer
        .run(|event| match event {
            Event::Epoch { updates, .. } => epochs.push(*updates),
            Event::Train(line) => {
                stop.store(stop_after.is_some_and(|after| line.num_updates >= after), Ordering::Relaxed);
            }
            _ => (),
        })
        .unwrap();
    (learner, outcome, epochs)
}

#[test]
fn a_resumed_run_draws_the_same() {
    for extra in [&["train.bpe_dropout=0.4"][..], &["train.bpe_dropout=0.4", "train.batching=frozen"]] {
        let config = config("mae", extra);
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (never_stopped, outcome, _) = train(whole.path(), &config, None);
        assert_eq!((outcome, never_stopped.counters().updates), (Outcome::Finished, 20));
        let (_, outcome, _) = train(parts.path(), &config, Some(9));
        assert_eq!(outcome, Outcome::Interrupted);
        let (resumed, _, _) = train(parts.path(), &config, None);
        assert!(bits(&resumed) == bits(&never_stopped), "{extra:?}: weights or moments differ");
    }
}

#[test]
fn dropout_makes_longer_epochs_and_none_changes_nothing() {
    let run = |extra: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let (learner, _, epochs) = train(folder.path(), &config("base", extra), None);
        (bits(&learner), epochs)
    };
    let (plain, none) = (run(&[]), run(&["train.bpe_dropout=0.0"]));
    assert!(plain == none);
    let characters = run(&["train.bpe_dropout=1.0"]);
    assert!(characters.1[0] > plain.1[0], "{:?} {:?}", characters.1, plain.1);
    assert!(characters.0 != plain.0);
}
