//! From a downloaded corpus to a folder to train on, like fairseq's `prepare-*.sh` scripts and `fairseq-preprocess`.
//!
//! | room | contents |
//! |---|---|
//! | [`recipes`] | the files and choices of IWSLT14, IWSLT17, WMT14 and WMT16 |
//! | `archive` | files in archives and folders |
//! | [`markup`] | text out of `train.tags`, XML and SGM files |
//! | `stages` | texts through the rules into splits; splits into pieces |
//! | `merges` | codes from the training split |
//! | [`report`] | counts, to print and to store |
//!
//! The output folder holds, under fairseq's names, the splits as tokens (`tmp/train.de`, …), the codes
//! (`code`), the splits as pieces (`train.de`, …), the test set as it was (`test.raw.de`) and the binarised
//! folder (`data-bin`). Everything streams: in memory are a chunk of lines and, while merges are learned, the
//! counts of words. All files appear together when they are complete; a failed run leaves the folder as it was.

mod archive;
pub mod markup;
mod merges;
pub mod recipes;
pub mod report;
mod stages;

use std::path::{Path, PathBuf};

pub use crate::text_rules::TextRules;
pub use markup::{Markup, Text};
pub use report::PrepareReport;

use crate::bpe::{Dropout, LearnOptions};
use crate::error::Result;
use crate::files::{FileSet, FolderLock, create_folder, sweep};
use crate::folder_record::FolderRecord;
use crate::lines::BadUtf8;
use crate::moses::CleanOptions;
use crate::options::OptionFault;
use crate::pairs::side_name;
use crate::preprocess::{self, BpeSource, Destination, PreprocessOptions};
use crate::text_record::TextRecord;
use stages::Stages;

/// The binarised folder inside the output folder.
pub const DATA_BIN: &str = "data-bin";

/// Texts for each split.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// To train on, one after the other.
    pub train: Vec<Text>,
    /// To validate on; empty where training pairs are held out.
    pub valid: Vec<Text>,
    /// To test on.
    pub test: Vec<Text>,
}

/// Training pairs that are kept apart, counted after cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOut {
    /// Every n-th pair to validate on.
    EveryNth(u64),
    /// Numbers of pairs, spread evenly over the corpus.
    Sizes {
        /// To validate on.
        valid: u64,
        /// To test on.
        test: u64,
    },
}

/// Moment at which pairs of unusual lengths are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanWhen {
    /// Lengths are tokens.
    BeforePieces,
    /// Lengths are BPE pieces.
    AfterPieces,
}

/// Segmentation into pieces.
#[derive(Clone, Debug)]
pub enum Pieces {
    /// Tokens are taken as they are.
    None,
    /// Merges learned from both sides together.
    Joint(LearnOptions),
    /// Merges learned from each side.
    Separate(LearnOptions),
    /// A `tokenizer.json`, applied where ids are made.
    Tokenizer(PathBuf),
    /// A SentencePiece model for both sides, applied where ids are made.
    SentencePiece(PathBuf),
}

/// Choices.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Source language.
    pub source_lang: String,
    /// Target language.
    pub target_lang: String,
    /// The output folder.
    pub out: PathBuf,
    /// Rules for training texts.
    pub train_rules: TextRules,
    /// Rules for validation and test texts that are given.
    pub eval_rules: TextRules,
    /// Limits of training pairs, and when they apply; given validation and test texts stay whole.
    pub clean: Option<(CleanOptions, CleanWhen)>,
    /// Pairs held out of the training text.
    pub hold_out: HoldOut,
    /// Subwords.
    pub pieces: Pieces,
    /// Merges skipped at random in the training split.
    pub dropout: Option<Dropout>,
    /// One dictionary for both languages.
    pub joined_dictionary: bool,
    /// Types seen less often become unknown.
    pub threshold: u64,
    /// Policy for bytes that are not UTF-8.
    pub bad_utf8: BadUtf8,
}

impl PrepareOptions {
    /// Texts as they are: no rules, no cleaning, no pieces, nothing held out, a dictionary for each language.
    pub fn new(source_lang: &str, target_lang: &str, out: &Path) -> Self {
        Self {
            source_lang: source_lang.to_owned(),
            target_lang: target_lang.to_owned(),
            out: out.to_owned(),
            train_rules: TextRules::default(),
            eval_rules: TextRules::default(),
            clean: None,
            hold_out: HoldOut::Sizes { valid: 0, test: 0 },
            pieces: Pieces::None,
            dropout: None,
            joined_dictionary: false,
            threshold: 0,
            bad_utf8: BadUtf8::Error,
        }
    }

    /// Returns whether a run writes a text or codes of this name.
    fn writes(&self, name: &str) -> bool {
        let langs = [&self.source_lang, &self.target_lang];
        let kinds = ["train", "valid", "test", "test.raw", "code"];
        name == "code" || kinds.iter().any(|kind| langs.iter().any(|lang| name == format!("{kind}.{lang}")))
    }
}

/// A step of the work, for progress bars.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A file is looked for or extracted.
    Unpacking(&'a str),
    /// Pairs go through a stage.
    Pairs {
        /// The stage.
        stage: &'a str,
        /// Pairs so far.
        done: u64,
    },
    /// Words are counted, merges learned, ids written.
    Preprocess(preprocess::Progress<'a>),
}

/// Prepares a corpus. `progress` is called often; it should be quick.
pub fn prepare(
    corpus: &Corpus,
    options: &PrepareOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<PrepareReport> {
    check(corpus, options)?;
    let _lock = FolderLock::take(&options.out)?;
    let mut set = FileSet::begin(&options.out)?;
    refuse_files_of_others(options)?;
    for folder in [options.out.clone(), options.out.join("tmp")] {
        sweep(&folder, |name| options.writes(name))?;
    }
    let out = set.place().to_owned();
    let tmp = out.join("tmp");
    create_folder(&tmp)?;
    let written = PrepareOptions { out: out.clone(), ..options.clone() };
    let mut stages = Stages::new(&written, &mut progress)?;
    stages.split(corpus)?;
    let segmentation = stages.learn_merges()?;
    let (texts, bpe) = match (&segmentation, &options.pieces) {
        (Some(segmentation), _) => {
            stages.segment(segmentation)?;
            (out.as_path(), BpeSource::Applied(segmentation.clone()))
        }
        (None, Pieces::Tokenizer(path)) => (tmp.as_path(), BpeSource::Tokenizer(path.clone())),
        (None, Pieces::SentencePiece(path)) => (tmp.as_path(), BpeSource::SentencePiece(path.clone())),
        (None, _) => (tmp.as_path(), BpeSource::None),
    };
    let (splits, mut report) = stages.done();
    let mut earlier = FolderRecord::read(&options.out.join(DATA_BIN))?;
    let removed_splits: Vec<String> =
        ["valid", "test"].into_iter().filter(|split| !splits.contains(split)).map(str::to_owned).collect();
    report.removed = earlier_files(options, &removed_splits, earlier.as_mut());
    let prefix = |split: &str| splits.contains(&split).then(|| texts.join(split).display().to_string());
    let binarise = PreprocessOptions {
        trainpref: prefix("train"),
        validpref: prefix("valid"),
        testpref: prefix("test"),
        joined_dictionary: options.joined_dictionary,
        thresholdsrc: options.threshold,
        thresholdtgt: options.threshold,
        bpe,
        ..PreprocessOptions::new(&options.source_lang, &options.target_lang, options.out.join(DATA_BIN))
    };
    // Plain text that is translated goes the way of the test set.
    let text = TextRecord::new(&options.source_lang, &options.target_lang, options.eval_rules.clone());
    let destination = Destination { place: out.join(DATA_BIN), earlier, removed_splits, text };
    let (binarised, removed) =
        preprocess::binarise(&binarise, destination, &mut |step| progress(Progress::Preprocess(step)))?;
    report.binarised = binarised;
    report.removed.iter().for_each(|name| set.remove(name));
    removed.into_iter().for_each(|name| set.remove(format!("{DATA_BIN}/{name}")));
    set.commit()?;
    report.move_paths(&out, &options.out);
    Ok(report)
}

/// An output folder that no earlier run has made must hold no file that this run would replace.
fn refuse_files_of_others(options: &PrepareOptions) -> Result<()> {
    let out = &options.out;
    if out.join(DATA_BIN).exists() {
        return Ok(());
    }
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    match names.filter(|name| options.writes(name)).min() {
        Some(name) => Err(OptionFault::FileOfOthers { path: out.join(name) }.into()),
        None => Ok(()),
    }
}

/// Names of the files of binarised splits of an earlier run that this one does not write: they would not fit the new
/// dictionaries and codes, and go.
fn earlier_files(
    options: &PrepareOptions,
    splits: &[String],
    mut record: Option<&mut FolderRecord>,
) -> Vec<String> {
    let languages = [options.source_lang.as_str(), options.target_lang.as_str()];
    let mut names = Vec::new();
    for (split, lang) in splits.iter().flat_map(|split| languages.map(|lang| (split, lang))) {
        let side = side_name(split, languages, lang);
        names.extend(["bin", "idx"].map(|end| format!("{DATA_BIN}/{side}.{end}")));
        record.iter_mut().for_each(|record| record.forget(&side));
    }
    names.retain(|name| options.out.join(name).is_file());
    names
}

/// Refuses options that cannot be carried out.
fn check(corpus: &Corpus, options: &PrepareOptions) -> Result<(), OptionFault> {
    let merges = matches!(options.pieces, Pieces::Joint(_) | Pieces::Separate(_));
    if corpus.train.is_empty() {
        Err(OptionFault::NoTrainingText)
    } else if options.source_lang == options.target_lang {
        Err(OptionFault::SameLanguage(options.source_lang.clone()))
    } else if matches!(options.hold_out, HoldOut::EveryNth(0 | 1)) {
        Err(OptionFault::AllHeldOut)
    } else if options.dropout.is_some() && !merges {
        Err(OptionFault::DropoutWithoutMerges)
    } else {
        Ok(())
    }
}
