//! Disks that fail, processes that end and power that is cut at every operation of preprocessing and preparing: the
//! folder is then the old one or the new one, never a mixture.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mae_data::bpe::LearnOptions;
use mae_data::files::faults::{Fault, Faults};
use mae_data::files::{self, FolderLock, replay};
use mae_data::moses::CleanOptions;
use mae_data::prepare::{
    CleanWhen, Corpus, HoldOut, Markup, Pieces, PrepareOptions, Text, TextRules, prepare,
};
use mae_data::preprocess::{BpeSource, PreprocessOptions, preprocess};
use mae_data::{BadUtf8, Error, ParallelDataset, Segmentation};

use crate::common::{Folder, Random};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A folder in memory, where there is one: thousands of files are written.
fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// All files of a folder, but those that lie aside.
fn contents(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "tmp") {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(path).unwrap());
            }
        }
    }
    found
}

fn copy(files: &Files, to: &Path) {
    for (name, bytes) in files {
        fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
        fs::write(to.join(name), bytes).unwrap();
    }
}

/// Opens the binarised folder, which finishes what was decided.
fn open(bin: &Path) -> Result<(), Error> {
    Segmentation::load(bin)?;
    ParallelDataset::open(bin, "train", "de", "en").map(drop)
}

/// Work that is done once for the old files of a folder, `true`, and then for the new ones.
struct Work<'a> {
    run: &'a dyn Fn(&Path, bool) -> Result<(), Error>,
    /// The binarised folder, in the folder that is watched.
    bin: &'a str,
}

impl Work<'_> {
    fn check_all(&self) {
        let home = quick_folder();
        let place = |name: &str| home.path().join(name);
        (self.run)(&place("old"), true).unwrap();
        let old = contents(&place("old"));
        copy(&old, &place("new"));
        let faults = Faults::of(&place("new"), Fault::None);
        (self.run)(&place("new"), false).unwrap();
        let (count, new) = (faults.operations().len(), contents(&place("new")));
        assert!(count > 50 && old != new, "{count} operations");
        for number in 1..=count {
            for fault in [Fault::Fail(number), Fault::Short(number), Fault::End(number)] {
                let folder = place(&format!("{fault:?}"));
                copy(&old, &folder);
                let faults = Faults::of(&folder, fault);
                let ended = (self.run)(&folder, false);
                drop(faults);
                let _quick = Faults::of(&folder, Fault::None);
                open(&folder.join(self.bin)).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
                let found = contents(&folder);
                assert!(
                    found == new || (found == old && ended.is_err()),
                    "{fault:?}: {:?}",
                    names(&found, &old)
                );
                // Whatever was left is no obstacle, and goes.
                (self.run)(&folder, false).unwrap();
                assert!(contents(&folder) == new, "{fault:?}");
                let left = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
                assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{fault:?}");
                fs::remove_dir_all(&folder).unwrap();
            }
        }
        self.check_power_cuts(&place("power"), &old, &new);
    }

    fn check_power_cuts(&self, home: &Path, old: &Files, new: &Files) {
        let watched = home.join("watched");
        fs::create_dir_all(&watched).unwrap();
        let faults = Faults::of(&watched, Fault::None);
        (self.run)(&watched, true).unwrap();
        let before = faults.operations().len();
        (self.run)(&watched, false).unwrap();
        let operations = faults.operations();
        let mut random = Random(7);
        let mut counts = [0, 0];
        for trial in 0..300 {
            let cut = before + random.below(operations.len() - before + 1);
            let disk = home.join(format!("disk-{trial}"));
            let mut draw = |limit: usize| random.below(limit);
            replay::after_power_cut(&operations[..cut], &watched, &disk, &mut draw).unwrap();
            open(&disk.join(self.bin))
                .unwrap_or_else(|error| panic!("{cut} of {}: {error}", operations.len()));
            let found = contents(&disk);
            assert!(found == *old || found == *new, "{cut}: {:?}", names(&found, old));
            counts[usize::from(found == *new)] += 1;
            fs::remove_dir_all(&disk).unwrap();
        }
        assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
    }
}

/// Files that are new, and those that are old, for messages.
fn names(found: &Files, old: &Files) -> [Vec<PathBuf>; 2] {
    let is_old = |(name, bytes): &(&PathBuf, &Vec<u8>)| old.get(*name) == Some(*bytes);
    let (same, other): (Vec<_>, Vec<_>) = found.iter().partition(is_old);
    [other, same].map(|files| files.into_iter().map(|(name, _)| name.clone()).collect())
}

/// Two texts whose words, and so dictionaries, differ.
fn texts() -> Folder {
    let texts = Folder::new();
    for (split, words) in [("old", ["ja", "nein", "doch"]), ("new", ["eins", "zwei", "drei"])] {
        for lang in ["de", "en"] {
            let line = |i: usize| format!("{} {} {lang}\n", words[i % 3], words[i * i % 3]);
            texts.write(&format!("{split}.{lang}"), (0..20).map(line).collect::<String>());
        }
    }
    texts
}

#[test]
fn preprocessing_leaves_the_old_folder_or_the_new_one() {
    let texts = texts();
    let options = |folder: &Path, is_old: bool| {
        let prefix = Some(texts.prefix(if is_old { "old" } else { "new" }));
        let learn = LearnOptions { merges: 5, ..LearnOptions::default() };
        let bpe = if is_old { BpeSource::LearnSeparately(learn) } else { BpeSource::Learn(learn) };
        PreprocessOptions {
            trainpref: prefix.clone(),
            validpref: prefix,
            bpe,
            ..PreprocessOptions::new("de", "en", folder.join("bin"))
        }
    };
    let run = |folder: &Path, is_old: bool| preprocess(&options(folder, is_old), |_| ()).map(drop);
    Work { run: &run, bin: "bin" }.check_all();
}

#[test]
fn preparing_leaves_the_old_folder_or_the_new_one() {
    let texts = texts();
    let run = |folder: &Path, is_old: bool| {
        let name = if is_old { "old" } else { "new" };
        let side = |lang: &str| texts.path(&format!("{name}.{lang}"));
        let corpus = Corpus {
            train: vec![Text { src: side("de"), tgt: side("en"), markup: Markup::None }],
            ..Corpus::default()
        };
        let options = PrepareOptions {
            source_lang: "de".into(),
            target_lang: "en".into(),
            out: folder.to_owned(),
            train_rules: TextRules::default(),
            eval_rules: TextRules::default(),
            clean: Some((CleanOptions::new(1, 99), CleanWhen::BeforePieces)),
            // The new one has no test set.
            hold_out: HoldOut::Sizes { valid: 2, test: if is_old { 2 } else { 0 } },
            pieces: Pieces::Joint(LearnOptions { merges: 5, ..LearnOptions::default() }),
            dropout: None,
            joined_dictionary: false,
            threshold: 0,
            bad_utf8: BadUtf8::Error,
        };
        prepare(&corpus, &options, |_| ()).map(drop)
    };
    Work { run: &run, bin: "data-bin" }.check_all();
}

#[test]
fn two_writers_of_one_folder_are_one_too_many() {
    let texts = texts();
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    let prefix = Some(texts.prefix("old"));
    let options = PreprocessOptions { trainpref: prefix, ..PreprocessOptions::new("de", "en", &bin) };
    let lock = FolderLock::take(&bin).unwrap();
    let error = preprocess(&options, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Busy { process: Some(_), .. }), "{error}");
    drop(lock);
    preprocess(&options, |_| ()).unwrap();
}

/// Version 0.1 trained on any dictionary that was long enough.
#[test]
fn files_that_do_not_belong_together_are_refused() {
    let texts = texts();
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    let binarise = |name: &str| {
        let prefix = Some(texts.prefix(name));
        let learn = BpeSource::Learn(LearnOptions { merges: 5, ..LearnOptions::default() });
        let options =
            PreprocessOptions { trainpref: prefix, bpe: learn, ..PreprocessOptions::new("de", "en", &bin) };
        preprocess(&options, |_| ()).unwrap();
        open(&bin).unwrap();
    };
    binarise("old");
    let old = contents(&bin);
    binarise("new");
    for (name, part) in [
        ("dict.de.txt", "is not the dictionary that train.de-en.de was made with"),
        ("bpe.codes", "the BPE codes or tokenizer are not those"),
    ] {
        let new = fs::read(bin.join(name)).unwrap();
        files::write(bin.join(name), &old[Path::new(name)]).unwrap();
        let error = open(&bin).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("preprocess again"), "{error}");
        files::write(bin.join(name), &new).unwrap();
    }
    // Folders of fairseq have no record.
    fs::remove_file(bin.join("preprocess.json")).unwrap();
    open(&bin).unwrap();
}
