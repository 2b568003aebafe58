//! A plain model gets gates that change nothing, and training the gates alone fits it to another domain.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mae_data::files::FolderLock;
use mae_data::grammar::{Kind, Pair, generate};
use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, Vocab};
use mae_engine::Device;
use mae_model::convert::{Conversion, Fold, convert};
use mae_model::{Translator, batches, groups};
use mae_train::checkpoint::{Resets, TextSide, Writer};
use mae_train::{Learner, RunConfig, Trainer};

use crate::common;

/// Words of both sides in one dictionary.
fn vocab(pairs: &[Pair]) -> Arc<Vocab> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let words = pairs.iter().flat_map(|pair| pair.source.split(' ').chain(pair.target.split(' ')));
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    Arc::new(Vocab::from_counts(counts, VocabOptions::default()))
}

fn data(pairs: &[&Pair], vocab: &Arc<Vocab>) -> ParallelDataset {
    let (sources, targets): (Vec<&str>, Vec<&str>) =
        pairs.iter().map(|pair| (pair.source.as_str(), pair.target.as_str())).unzip();
    ParallelDataset::from_lines(&sources, &targets, vocab.clone(), vocab.clone()).unwrap()
}

fn train(folder: &Path, config: &RunConfig, model: Translator, text: &ParallelDataset) -> Translator {
    let lock = FolderLock::take(folder).unwrap();
    let trainer = Trainer {
        config: config.clone(),
        learner: Learner::new(model, &config.train),
        train: text,
        valid: None,
        text: TextSide::of_pairs(text, None, &Default::default()),
        folder: folder.to_owned(),
        record: None,
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &AtomicBool::new(false),
        writer: Writer::new().unwrap(),
        lock: Some(&lock),
    };
    trainer.run(|_| {}).unwrap().0.model
}

#[test]
fn gates_alone_fit_a_converted_model_to_another_domain() {
    let pairs = generate(3_000, 1);
    let vocab = vocab(&pairs);
    let times: Vec<&Pair> = pairs.iter().filter(|pair| pair.kind == Kind::Time).collect();
    let (few, [domain, held_out]) = {
        let (few, rest) = times.split_at(times.len() / 8);
        (few, [&rest[..rest.len() * 3 / 4], &rest[rest.len() * 3 / 4..]].map(|part| data(part, &vocab)))
    };
    // Times are rare in the general text.
    let others = pairs.iter().filter(|pair| pair.kind != Kind::Time);
    let general = data(&others.chain(few.iter().copied()).collect::<Vec<_>>(), &vocab);
    let sizes = [
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "model.encoder_embed_dim=32",
        "model.encoder_ffn_embed_dim=64",
        "train.max_tokens=600",
        "train.update_freq=1",
        "train.lr=5e-3",
        "train.max_update=120",
    ];
    let config = common::config("base", &sizes);
    let types = vocab.len();
    let folder = tempfile::tempdir().unwrap();
    let model = Translator::new(&config.model, [types, types], &Device::cpu(), 1).unwrap();
    let base = train(&folder.path().join("base"), &config, model, &general);
    let conversion = Conversion {
        system: "mae3".into(),
        fold: Fold::Uniform,
        removal: None,
        gate_hidden: Some(16),
        seed: 1,
    };
    let converted = convert(&base, &conversion, Some(&held_out)).unwrap();
    let [before, after] = converted.losses.unwrap();
    assert_eq!((before, converted.uniform_weight), (after, Some(1.0)), "the same function to the bit");
    let only_gates = ["train.free=gates", "train.max_update=60", "model.mixture.gate_hidden=16"];
    let config = common::config("mae", &[&sizes[..], &only_gates].concat());
    assert_eq!(config.model, *converted.model.config());
    let frozen = |model: &Translator| model.params().group_to_host(groups::REST);
    let rest = frozen(&converted.model);
    let fitted = train(&folder.path().join("fitted"), &config, converted.model, &domain);
    assert_eq!(frozen(&fitted), rest);
    let fitted = batches::loss(&fitted, &held_out).unwrap();
    assert!(fitted.loss < before.loss - 0.02, "{} bits before, {} after", before.loss, fitted.loss);
}
