//! Text files to a binarised folder: `fairseq-preprocess`, with BPE on the way if wanted.
//!
//! Writes `dict.{lang}.txt`, `{split}.{src}-{tgt}.{lang}.{bin,idx}` (of one text alone `dict.txt` and `{split}.{bin,idx}`) and, with BPE, its codes (or the `tokenizer.json`).
//! Everything is written aside and renamed only when all splits are through; texts are streamed.
//!
//! The vocabulary counts all training lines, those that a policy then leaves out too: so `dict.txt` is what
//! fairseq writes for the same text.

mod earlier;
mod report;
mod split;
mod text;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use report::{PreprocessReport, SideReport, SplitReport};

use split::Split;
use words::TrainWords;

use crate::bpe::{Dropout, LearnOptions};
use crate::dataset::DatasetWriter;
use crate::error::{Error, Result};
use crate::files::{create_folder, sweep};
use crate::lines::BadUtf8;
use crate::pairs::pairs_in;
use crate::segmentation::{self, Segmentation, Segmenter};
use crate::text::{DICT, TextDataset};

/// Pairs read, encoded on all threads and written at a time.
const CHUNK: usize = 1 << 14;

/// What to do with a pair of which a line is empty or over-long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinePolicy {
    /// Write it all the same.
    Keep,
    /// Leave the pair out, and count it.
    Skip,
    /// Stop.
    Error,
}

/// Policies for the splits that are trained on and for those that are evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// For the training split.
    pub train: LinePolicy,
    /// For validation and test splits, of which every line should come out again.
    pub eval: LinePolicy,
}

/// How text becomes pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BpeSource {
    /// The text is taken as it is.
    #[default]
    None,
    /// A codes file of subword-nmt.
    Codes(PathBuf),
    /// A codes file for each side, source and target.
    SeparateCodes(PathBuf, PathBuf),
    /// Learned from both sides of the training text together.
    Learn(LearnOptions),
    /// Learned from each side of the training text for itself.
    LearnSeparately(LearnOptions),
    /// A `tokenizer.json`.
    Tokenizer(PathBuf),
    /// The text is in pieces already; this made them, and is stored with the ids.
    Applied(Segmentation),
}

/// Options, named as fairseq names them.
#[derive(Clone, Debug)]
pub struct PreprocessOptions {
    /// Source language: the ending of its files.
    pub source_lang: String,
    /// Target language: the ending of its files.
    pub target_lang: String,
    /// Training text: `{trainpref}.{lang}`, with `.gz` or `.zst` after it if need be.
    pub trainpref: Option<String>,
    /// Validation texts, separated by commas: they become `valid`, `valid1`, ….
    pub validpref: Option<String>,
    /// Test texts, separated by commas: they become `test`, `test1`, ….
    pub testpref: Option<String>,
    /// One text instead of two, for language models: the source alone. Its files are `{trainpref}` themselves where the
    /// source language is empty.
    pub only_source: bool,
    /// Where everything is written.
    pub destdir: PathBuf,
    /// One vocabulary for both languages, cut by `nwordssrc` and `thresholdsrc`.
    pub joined_dictionary: bool,
    /// Use this source vocabulary.
    pub srcdict: Option<PathBuf>,
    /// Use this target vocabulary.
    pub tgtdict: Option<PathBuf>,
    /// Size at most of the source vocabulary, specials counted.
    pub nwordssrc: Option<usize>,
    /// Size at most of the target vocabulary, specials counted.
    pub nwordstgt: Option<usize>,
    /// Source tokens seen less often become unknown.
    pub thresholdsrc: u64,
    /// Target tokens seen less often become unknown.
    pub thresholdtgt: u64,
    /// Vocabulary sizes are padded to a multiple of this.
    pub padding_factor: usize,
    /// Byte-pair encoding.
    pub bpe: BpeSource,
    /// Merges skipped at random in the training text.
    pub dropout: Option<Dropout>,
    /// What to do with bytes that are not UTF-8.
    pub bad_utf8: BadUtf8,
    /// Pairs with an empty side. fairseq keeps them all; a model learns nothing from them, so in training we
    /// skip them.
    pub empty: Policies,
    /// Lines with more tokens than this (after BPE, end of sentence not counted) are over-long.
    pub max_line_tokens: usize,
    /// Pairs with an over-long side: kept, but counted in the report.
    pub too_long: Policies,
}

impl PreprocessOptions {
    /// The defaults for a language pair and a folder to write to.
    pub fn new(source_lang: &str, target_lang: &str, destdir: impl Into<PathBuf>) -> Self {
        Self {
            source_lang: source_lang.into(),
            target_lang: target_lang.into(),
            trainpref: None,
            validpref: None,
            testpref: None,
            only_source: false,
            destdir: destdir.into(),
            joined_dictionary: false,
            srcdict: None,
            tgtdict: None,
            nwordssrc: None,
            nwordstgt: None,
            thresholdsrc: 0,
            thresholdtgt: 0,
            padding_factor: 8,
            bpe: BpeSource::None,
            dropout: None,
            bad_utf8: BadUtf8::Error,
            empty: Policies { train: LinePolicy::Skip, eval: LinePolicy::Keep },
            max_line_tokens: 1023,
            too_long: Policies { train: LinePolicy::Keep, eval: LinePolicy::Keep },
        }
    }

    /// The defaults for one text. Empty lines are kept: they are part of it.
    pub fn only_source(destdir: impl Into<PathBuf>) -> Self {
        let keep = Policies { train: LinePolicy::Keep, eval: LinePolicy::Keep };
        Self { only_source: true, empty: keep, ..Self::new("", "", destdir) }
    }

    /// (split, prefix) for all texts, in fairseq's naming.
    fn splits(&self) -> Vec<(String, &str)> {
        let train = self.trainpref.iter().map(|prefix| ("train".to_owned(), prefix.as_str()));
        train.chain(several("valid", &self.validpref)).chain(several("test", &self.testpref)).collect()
    }

    /// Whether a run writes a file of this name.
    fn writes(&self, name: &str) -> bool {
        let (src, tgt) = (&self.source_lang, &self.target_lang);
        let side = |lang: &str| {
            name == format!("dict.{lang}.txt")
                || ["bin", "idx"].iter().any(|end| name.ends_with(&format!(".{src}-{tgt}.{lang}.{end}")))
        };
        side(src) || side(tgt) || segmentation::FILES.contains(&name)
    }

    fn check(&self) -> Result<()> {
        let given = [&self.srcdict, &self.tgtdict].iter().filter(|dict| dict.is_some()).count();
        let separate = matches!(self.bpe, BpeSource::LearnSeparately(_) | BpeSource::SeparateCodes(..));
        let complaint = if self.only_source {
            if self.tgtdict.is_some() || self.joined_dictionary || separate {
                "--only-source has one text: leave --tgtdict, --joined-dictionary and separate BPE codes out"
            } else {
                return self.check_texts(given >= 1);
            }
        } else if self.source_lang == self.target_lang {
            "source and target language are the same; give their files different endings"
        } else if [&self.source_lang, &self.target_lang]
            .iter()
            .any(|l| l.is_empty() || l.contains(['/', '.']))
        {
            "a language is a file ending such as `de`: not empty, without `.` or `/`"
        } else if self.joined_dictionary && given == 2 {
            "a joined dictionary is one dictionary: give --srcdict or --tgtdict, not both"
        } else {
            return self.check_texts(given >= if self.joined_dictionary { 1 } else { 2 });
        };
        Err(Error::Options(complaint.into()))
    }

    /// A folder has one text or pair of texts, because it has one set of codes: another would lose those of the first.
    fn check_destination(&self) -> Result<()> {
        let mut found: Vec<String> =
            pairs_in(&self.destdir)?.into_iter().map(|(src, tgt)| format!("{src}-{tgt}")).collect();
        if self.only_source {
            if found.is_empty() {
                return Ok(());
            }
        } else {
            found.retain(|pair| *pair != format!("{}-{}", self.source_lang, self.target_lang));
            if TextDataset::is_in(&self.destdir) {
                found.push("one text, --only-source".into());
            }
        }
        match found.first() {
            None => Ok(()),
            Some(other) => Err(Error::Options(format!(
                "{} holds another data set already ({other}), whose BPE codes and dictionaries this one would replace; choose \
                 another --destdir",
                self.destdir.display()
            ))),
        }
    }

    /// Whether what is given suffices, where all dictionaries are given or not.
    fn check_texts(&self, dictionaries: bool) -> Result<()> {
        let complaint = if self.trainpref.is_none() && !dictionaries {
            if self.only_source {
                "without --trainpref the dictionary must be given (--srcdict)"
            } else {
                "without --trainpref both dictionaries must be given (--srcdict and --tgtdict)"
            }
        } else if self.trainpref.is_none()
            && matches!(self.bpe, BpeSource::Learn(_) | BpeSource::LearnSeparately(_))
        {
            "learning BPE needs a training text: give --trainpref, or a codes file"
        } else if self.dropout.is_some()
            && matches!(self.bpe, BpeSource::None | BpeSource::Tokenizer(_) | BpeSource::Applied(_))
        {
            "BPE dropout skips merges of BPE codes: give --bpe or --bpe-codes"
        } else if self.splits().is_empty() {
            "nothing to do: give --trainpref, --validpref or --testpref"
        } else {
            return Ok(());
        };
        Err(Error::Options(complaint.into()))
    }
}

/// What is being done, for progress bars.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Words of a training file are being counted.
    Counting {
        /// The file.
        path: &'a Path,
    },
    /// Merges are being learned.
    Learning {
        /// Merges so far.
        done: usize,
        /// Merges wanted.
        total: usize,
    },
    /// A split is being encoded and written.
    Encoding {
        /// The split.
        split: &'a str,
        /// Lines so far.
        lines: u64,
    },
}

/// Binarises texts. `progress` is called often; it should be quick.
pub fn preprocess(
    options: &PreprocessOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<PreprocessReport> {
    options.check()?;
    let destdir = &options.destdir;
    create_folder(destdir)?;
    options.check_destination()?;
    sweep(destdir, |name| options.writes(name))?;

    let mut words = TrainWords { options, progress: &mut progress, src: None, tgt: None };
    let segmentation = words.segmentation()?;
    let segmenters = match &options.bpe {
        BpeSource::Applied(_) => None,
        _ => segmentation.as_ref().map(Segmentation::segmenters),
    };
    if options.only_source {
        let vocab = words.source_vocab(segmenters.as_ref())?;
        earlier::check(options, &[(DICT.to_owned(), &vocab)], segmentation.as_ref())?;
        let segmenter = segmenters.as_ref().map(|both| &*both[0]);
        let merges = segmentation.as_ref().map(Segmentation::merges);
        let report = text::binarise(options, &vocab, segmenter, merges, &mut progress)?;
        Segmentation::save(segmentation.as_ref(), destdir)?;
        return Ok(report);
    }
    let (src_vocab, tgt_vocab) = words.vocabs(segmenters.as_ref())?;
    let dict = |lang: &str| format!("dict.{lang}.txt");
    let dicts = [(dict(&options.source_lang), &src_vocab), (dict(&options.target_lang), &tgt_vocab)];
    earlier::check(options, &dicts, segmentation.as_ref())?;

    let mut report = PreprocessReport {
        src_vocab: src_vocab.len(),
        tgt_vocab: Some(tgt_vocab.len()),
        bpe_merges: segmentation.as_ref().map(Segmentation::merges),
        splits: Vec::new(),
    };
    let mut writers = Vec::new();
    for (name, prefix) in options.splits() {
        let mut split = Split::open(options, name, prefix, (&src_vocab, &tgt_vocab))?;
        split
            .encode_all(segmenters.as_ref(), |lines, split| progress(Progress::Encoding { split, lines }))?;
        report.splits.push(split.report);
        writers.extend([split.src_writer, split.tgt_writer]);
    }

    writers.into_iter().try_for_each(DatasetWriter::finish)?;
    dicts.iter().try_for_each(|(name, vocab)| vocab.save(destdir.join(name)))?;
    Segmentation::save(segmentation.as_ref(), destdir)?;
    Ok(report)
}

/// `a,b,c` → (`name`, a), (`name1`, b), (`name2`, c).
fn several<'a>(name: &'a str, prefixes: &'a Option<String>) -> impl Iterator<Item = (String, &'a str)> {
    let prefixes = prefixes.as_deref().unwrap_or_default().split(',').filter(|prefix| !prefix.is_empty());
    prefixes.enumerate().map(move |(k, prefix)| match k {
        0 => (name.to_owned(), prefix),
        _ => (format!("{name}{k}"), prefix),
    })
}

/// `{prefix}.{lang}`, or `{prefix}` where there is no language; or that file compressed.
fn text_path(prefix: &str, lang: &str) -> PathBuf {
    let name = if lang.is_empty() { prefix.to_owned() } else { format!("{prefix}.{lang}") };
    let compressed = ["gz", "zst"].map(|ending| PathBuf::from(format!("{name}.{ending}")));
    let plain = PathBuf::from(name);
    if plain.exists() { plain } else { compressed.into_iter().find(|path| path.exists()).unwrap_or(plain) }
}

/// What cuts source and target.
type Segmenters = [Arc<Segmenter>; 2];
