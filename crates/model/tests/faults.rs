//! Disks that fail and processes that end at every operation of averaging and converting: the folder holds the old model
//! or the new one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mae_data::files::faults::{Fault, Faults};
use mae_data::files::{self, FolderLock};
use mae_data::vocab::VocabOptions;
use mae_data::{Error as DataError, Vocab};
use mae_engine::Device;
use mae_model::average::average;
use mae_model::convert::{Conversion, Fold, convert};
use mae_model::folder::ModelFolder;
use mae_model::{Error, ModelConfig, Result, Translator};

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn model(seed: u64) -> ModelFolder {
    let sizes = ModelConfig {
        encoder_layers: 1,
        decoder_layers: 1,
        encoder_embed_dim: 16,
        encoder_ffn_embed_dim: 16,
        ..ModelConfig::arch("transformer_tiny").unwrap()
    };
    let words = Arc::new(Vocab::from_counts([("a", 2), ("b", 1)], VocabOptions::default()));
    let model = Translator::new(&sizes, [words.len(), words.len()], &Device::cpu(), seed).unwrap();
    ModelFolder { model, source: words.clone(), target: words, codes: None, text: Default::default() }
}

fn contents(folder: &Path) -> Files {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| (file.file_name().unwrap().into(), fs::read(&file).unwrap())).collect()
}

fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Tries every fault of work that replaces the model in `out` of a folder.
fn try_all(work: impl Fn(&Path) -> Result<()>) {
    let home = quick_folder();
    let fresh = |name: &str| {
        let place = home.path().join(name);
        model(1).save(&place.join("out")).unwrap();
        place
    };
    let place = fresh("whole");
    let old = contents(&place.join("out"));
    let faults = Faults::of(&place, Fault::None);
    work(&place).unwrap();
    let (count, new) = (faults.operations().len(), contents(&place.join("out")));
    assert!(count > 15 && old != new, "{count}");
    for number in 1..=count {
        for fault in [Fault::Fail(number), Fault::Short(number), Fault::End(number)] {
            let place = fresh(&format!("{fault:?}"));
            let faults = Faults::of(&place, fault);
            let ended = work(&place);
            drop(faults);
            let _quick = Faults::of(&place, Fault::None);
            let found = contents(&place.join("out"));
            assert!(found == new || (found == old && ended.is_err()), "{fault:?}: {:?}", found.keys());
            // What was left is no obstacle, and goes.
            work(&place).unwrap();
            assert!(contents(&place.join("out")) == new, "{fault:?}");
            assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "{fault:?}");
            fs::remove_dir_all(&place).unwrap();
        }
    }
}

#[test]
fn averaging_leaves_the_old_model_or_the_new_one() {
    let inputs = quick_folder();
    let folders: Vec<PathBuf> = (2..4).map(|seed| inputs.path().join(seed.to_string())).collect();
    (2..).zip(&folders).for_each(|(seed, folder)| model(seed).save(folder).unwrap());
    try_all(|place| average(&folders, &place.join("out")));

    // Two at once are one too many.
    let out = inputs.path().join("mean");
    let lock = FolderLock::take_beside(&out).unwrap();
    let error = average(&folders, &out).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::Busy { .. })), "{error}");
    drop(lock);
    average(&folders, &out).unwrap();
}

#[test]
fn converting_leaves_the_old_model_or_the_new_one() {
    let conversion = Conversion {
        system: "mae7".into(),
        fold: Fold::Uniform,
        removal: None,
        gate_hidden: Some(8),
        seed: 5,
    };
    let base = model(1);
    try_all(|place| {
        let new = ModelFolder {
            model: convert(&base.model, &conversion, None)?.model,
            source: base.source.clone(),
            target: base.target.clone(),
            codes: None,
            text: Default::default(),
        };
        files::replace_folder(&place.join("out"), |aside| new.save(aside))
    });
}
