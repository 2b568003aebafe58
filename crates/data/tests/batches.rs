//! Pairs, samplers and packed batches.

use std::sync::Arc;

use mae_data::batch::PackedBatch;
use mae_data::dataset::DatasetWriter;
use mae_data::error::Error;
use mae_data::pairs::{MemoryDataset, ParallelDataset, detect_languages};
use mae_data::sampler::{BatchSampler, Order, SamplerOptions, TooLong, subset};
use mae_data::vocab::{EOS, UNK, Vocab, VocabOptions};

use crate::common::{Folder, Random};

fn vocab() -> Arc<Vocab> {
    Arc::new(Vocab::from_counts([("a", 3), ("b", 2), ("c", 1)], VocabOptions::default()))
}

fn binarised(split: &str, src: &[&[u32]], tgt: &[&[u32]]) -> Folder {
    let folder = Folder::new();
    for (lang, sentences) in [("de", src), ("en", tgt)] {
        vocab().save(folder.path(&format!("dict.{lang}.txt"))).unwrap();
        let mut writer = DatasetWriter::create(folder.path(&format!("{split}.de-en.{lang}")), 100).unwrap();
        sentences.iter().for_each(|ids| writer.push(ids).unwrap());
        writer.finish().unwrap();
    }
    folder
}

#[test]
fn packs_end_to_end() {
    let data =
        ParallelDataset::from_lines(&["a b", "c", ""], &["b", "a x c", "c"], vocab(), vocab()).unwrap();
    assert_eq!(data.lengths(), [(3, 2), (2, 4), (1, 2)]);
    let batch = PackedBatch::from_pairs(&data, &[1, 0, 2]);
    assert_eq!(batch.src, [6, EOS, 4, 5, EOS, EOS]);
    assert_eq!(batch.src_starts, [0, 2, 5, 6]);
    assert_eq!(batch.tgt, [4, UNK, 6, EOS, 5, EOS, 6, EOS]);
    assert_eq!(batch.prev, [EOS, 4, UNK, 6, EOS, 5, EOS, 6]);
    assert_eq!(batch.tgt_starts, [0, 4, 6, 8]);
    assert_eq!(batch.ids, [1, 0, 2]);
    assert_eq!((batch.sentences(), batch.src_tokens(), batch.tgt_tokens()), (3, 6, 8));
    assert_eq!((batch.src_sentence(1), batch.tgt_sentence(1)), (&[4, 5, EOS][..], &[5, EOS][..]));

    let sources = PackedBatch::from_sources(&data.src, &[2, 1]);
    assert_eq!((sources.src.as_slice(), sources.tgt_starts.as_slice()), (&[EOS, 6, EOS][..], &[0, 0, 0][..]));
    assert_eq!(PackedBatch::from_pairs(&data, &[]).src_starts, [0]);
}

#[test]
fn memory_and_mapped_give_the_same_batches() {
    let folder = binarised("train", &[&[4, 5, 2], &[6, 2]], &[&[5, 2], &[4, 3, 2]]);
    let mapped = ParallelDataset::open(folder.path(""), "train", "de", "en").unwrap();
    let memory = ParallelDataset::from_lines(&["a b", "c"], &["b", "a x"], vocab(), vocab()).unwrap();
    assert_eq!(PackedBatch::from_pairs(&mapped, &[1, 0]), PackedBatch::from_pairs(&memory, &[1, 0]));
    assert_eq!((mapped.len(), mapped.src.get(1)), (2, vec![6, 2]));
    assert!(Arc::ptr_eq(&mapped.src_vocab, &mapped.tgt_vocab));
    assert_eq!(detect_languages(folder.path("")).unwrap(), ("de".into(), "en".into()));
}

#[test]
fn unknown_tokens_are_counted_line_by_line() {
    let (data, unknown) = MemoryDataset::encode(&vocab(), &["a x y", "b", ""]);
    assert_eq!((data.len(), data.get(0), unknown), (3, &[4, UNK, UNK, EOS][..], vec![2, 0, 0]));
}

#[test]
fn folders_that_do_not_fit_together_are_errors() {
    let open =
        |folder: &Folder| ParallelDataset::open(folder.path(""), "test", "de", "en").unwrap_err().to_string();
    let said = open(&binarised("test", &[&[4, 2], &[9, 2]], &[&[4, 2], &[4, 2]]));
    assert!(said.contains("sentence 1 has id 9") && said.contains("8 entries"), "{said}");
    let said = open(&binarised("test", &[&[4, 2]], &[&[4, 5]]));
    assert!(said.contains("sentence 0 does not end in </s>"), "{said}");
    let said = open(&binarised("test", &[&[4, 2]], &[&[]]));
    assert!(said.contains("sentence 0 does not end in </s>"), "{said}");
    let said = open(&binarised("test", &[&[4, 2]], &[&[4, 2], &[2]]));
    assert!(said.contains("has 1 sentences but") && said.contains("has 2"), "{said}");
    let said = open(&binarised("train", &[], &[]));
    assert!(said.contains("test.de-en.de"), "{said}");
    assert!(ParallelDataset::from_lines(&["a"], &[], vocab(), vocab()).is_err());
}

#[test]
fn language_pairs_are_found_in_names() {
    let folder = Folder::new();
    assert!(detect_languages(folder.path("")).unwrap_err().to_string().contains("no binarised"));
    folder.write("train.zh-Hans-en.zh-Hans.idx", "");
    folder.write("train.zh-Hans-en.en.idx", "");
    folder.write("other.idx", "");
    assert_eq!(detect_languages(folder.path("")).unwrap(), ("zh-Hans".into(), "en".into()));
    folder.write("valid.de-en.de.idx", "");
    assert!(detect_languages(folder.path("")).unwrap_err().to_string().contains("de-en, zh-Hans-en"));
    assert!(detect_languages(folder.path("none")).is_err());
}

fn random_lengths(n: usize, longest: usize) -> Vec<(u32, u32)> {
    let mut random = Random(21);
    (0..n).map(|_| (1 + random.below(longest) as u32, 1 + random.below(longest) as u32)).collect()
}

fn sampler(lengths: &[(u32, u32)], max_tokens: u32) -> BatchSampler {
    BatchSampler::new(lengths, SamplerOptions { max_tokens, ..SamplerOptions::default() }).unwrap()
}

#[test]
fn every_sentence_once_and_within_the_budget() {
    for (n, longest, max_tokens) in [(0, 5, 10), (1, 5, 10), (1000, 40, 400), (1000, 40, 40)] {
        let lengths = random_lengths(n, longest);
        let sampler = sampler(&lengths, max_tokens);
        for batches in [sampler.epoch(1), sampler.ordered(Order::Given), sampler.ordered(Order::LongestFirst)]
        {
            let mut all = batches.concat();
            all.sort_unstable();
            assert_eq!(all, (0..n as u32).collect::<Vec<_>>());
            for batch in &batches {
                let sum = |side: fn(&(u32, u32)) -> u32| -> u32 {
                    batch.iter().map(|&i| side(&lengths[i as usize])).sum()
                };
                assert!(!batch.is_empty() && sum(|l| l.0) <= max_tokens && sum(|l| l.1) <= max_tokens);
            }
        }
    }
}

#[test]
fn budgets_are_filled() {
    let lengths = random_lengths(20_000, 50);
    let batches = sampler(&lengths, 4096).epoch(3);
    let tokens: u32 = lengths.iter().map(|&(src, tgt)| src.max(tgt)).sum();
    assert!(batches.len() as f64 <= 1.02 * f64::from(tokens) / 4096.0, "{} batches", batches.len());
}

#[test]
fn order_depends_on_seed_and_epoch_alone() {
    let lengths = random_lengths(500, 30);
    let one = sampler(&lengths, 300);
    assert_eq!(one.epoch(4), one.clone().epoch(4));
    assert_ne!(one.epoch(4), one.epoch(5));
    let options = SamplerOptions { max_tokens: 300, seed: 2, ..SamplerOptions::default() };
    assert_ne!(one.epoch(4), BatchSampler::new(&lengths, options).unwrap().epoch(4));
    // The same on every machine, for ever: a resumed run relies on it.
    let first: Vec<_> = sampler(&[(1, 1); 12], 100).epoch(1).concat();
    assert_eq!(first, [6, 8, 10, 5, 7, 2, 1, 9, 4, 11, 3, 0]);
}

#[test]
fn orders() {
    let sampler = sampler(&[(2, 2), (5, 1), (5, 3), (1, 9)], 9);
    assert_eq!(sampler.ordered(Order::Given), [vec![0, 1], vec![2], vec![3]]);
    assert_eq!(sampler.ordered(Order::LongestFirst), [vec![2], vec![1, 0], vec![3]]);
    let options = SamplerOptions { max_sentences: Some(2), ..SamplerOptions::default() };
    let few = BatchSampler::new(&[(1, 1); 5], options).unwrap();
    assert_eq!(few.ordered(Order::Given), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn too_long_is_never_silent() {
    let lengths = [(3, 3), (11, 1), (2, 6), (4, 4)];
    let mut options =
        SamplerOptions { max_tokens: 10, max_positions: Some((10, 5)), ..SamplerOptions::default() };
    match BatchSampler::new(&lengths, options) {
        Err(e @ Error::TooLong { count: 2, .. }) => {
            let said = e.to_string();
            assert!(said.contains("number 2 (11 → 1 tokens), number 3 (2 → 6 tokens)"), "{said}");
        }
        other => panic!("{other:?}"),
    }
    options.too_long = TooLong::Skip;
    let sampler = BatchSampler::new(&lengths, options).unwrap();
    assert_eq!((sampler.skipped().count, sampler.skipped().examples.as_slice()), (2, &[2, 3][..]));
    assert_eq!((sampler.sentences(), sampler.ordered(Order::Given)), (2, vec![vec![0, 3]]));
    options.max_tokens = 0;
    assert!(matches!(BatchSampler::new(&lengths, options), Err(Error::Options(_))));
}

/// Lengths from 1 to 20 by a small linear congruential generator, which the script behind the golden has, too.
fn golden_lengths(n: usize) -> Vec<(u32, u32)> {
    let mut x = 12345_u64;
    let mut next = || {
        x = (x * 1_103_515_245 + 12345) % (1 << 31);
        1 + (x >> 16) as u32 % 20
    };
    (0..n).map(|_| (next(), next())).collect()
}

/// Batches and their order as numpy and fairseq's rules give them.
#[test]
fn frozen_batches_are_fairseqs() {
    let options = SamplerOptions {
        max_tokens: 110,
        max_positions: Some((18, 18)),
        too_long: TooLong::Skip,
        seed: 5,
        ..SamplerOptions::default()
    };
    let lengths = golden_lengths(60);
    let sampler = BatchSampler::new(&lengths, options).unwrap().freeze(4);
    let third = sampler.epoch(3);
    let golden: [&[u32]; 12] = [
        &[45, 13, 20, 54],
        &[31, 17, 55, 47],
        &[32, 44, 7, 23],
        &[40, 24, 58, 8],
        &[46, 38, 57, 11],
        &[52, 16, 34, 22],
        &[48, 3, 14, 12],
        &[30, 25, 21, 26],
        &[4, 37, 29, 10],
        &[9, 51, 18, 15],
        &[33, 42, 49, 39],
        &[2, 27, 50, 0],
    ];
    assert_eq!(third, golden);
    let sorted = |mut batches: Vec<Vec<u32>>| {
        batches.sort();
        batches
    };
    assert_ne!(sampler.epoch(4), third);
    assert_eq!(sorted(sampler.epoch(4)), sorted(third.clone()), "only the order changes");
    let bound = sampler.bound();
    for batch in &third {
        let tokens =
            |side: fn(&(u32, u32)) -> u32| batch.iter().map(|&i| side(&lengths[i as usize])).sum::<u32>();
        assert!(tokens(|l| l.0) <= bound.tokens.0 && tokens(|l| l.1) <= bound.tokens.1);
    }
    let alone =
        BatchSampler::new(&[(5, 5); 3], SamplerOptions { max_tokens: 5, ..options }).unwrap().freeze(8);
    assert_eq!(alone.epoch(1).len(), 3, "a sentence that fills a batch has one of its own");
}

#[test]
fn subsets_are_nested_and_follow_the_seed() {
    let whole = subset(1000, 1.0, 3);
    assert_eq!(whole, (0..1000).collect::<Vec<_>>());
    let (small, large) = (subset(1000, 0.05, 3), subset(1000, 0.1, 3));
    assert_eq!((small.len(), large.len()), (50, 100));
    assert!(small.iter().all(|i| large.contains(i)) && small.is_sorted());
    assert_ne!(small, subset(1000, 0.05, 4));
    assert_eq!((subset(1000, 1e-9, 3).len(), subset(0, 0.5, 3).len()), (1, 0));
    let lengths = random_lengths(1000, 9);
    let sampler = BatchSampler::among(&lengths, &small, SamplerOptions::default()).unwrap();
    let mut used = sampler.epoch(1).concat();
    used.sort_unstable();
    assert_eq!(used, small);
}
