//! Text files to a binarised folder: `fairseq-preprocess`, with BPE on the way if wanted.
//!
//! Writes `dict.{lang}.txt`, `{split}.{src}-{tgt}.{lang}.{bin,idx}` (of one text alone `dict.txt` and
//! `{split}.{bin,idx}`) and, with BPE, its codes (or the `tokenizer.json` or the
//! SentencePiece model); `text.json`, the languages; and `preprocess.json`, which says what belongs together. Everything
//! appears at once, when all splits are complete, and a failed run leaves the folder as it was; texts are streamed.
//!
//! The vocabulary counts all training lines, also those that a policy then leaves out: so `dict.txt` is what fairseq
//! writes for the same text.

mod earlier;
mod options;
mod policy;
mod report;
mod split;
mod text;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use options::{BpeSource, PreprocessOptions};
pub use policy::{LinePolicy, Policies};
pub use report::{PreprocessReport, SideReport, SplitReport};

use policy::SplitPolicy;
use split::Split;
use words::TrainWords;

use crate::dataset::DatasetWriter;
use crate::error::Result;
use crate::files::{FileSet, FolderLock, create_folder, sweep};
use crate::folder_record::{FolderRecord, SplitRecord};
use crate::pairs::{dict_name, side_name};
use crate::segmentation::{self, Segmentation, Segmenter};
use crate::text::DICT;
use crate::text_record::TextRecord;

/// Pairs read, encoded on all threads and written at a time.
const CHUNK: usize = 1 << 14;

/// A step of the work, for progress bars.
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
    let _lock = FolderLock::take(destdir)?;
    let mut set = FileSet::begin(destdir)?;
    let destination = Destination {
        place: set.place().to_owned(),
        earlier: FolderRecord::read(destdir)?,
        removed_splits: Vec::new(),
        text: match &options.trainpref {
            // Its splits join those that are there.
            None => TextRecord::load(destdir)?,
            Some(_) => TextRecord::default(),
        },
    };
    let (report, removed) = binarise(options, destination, &mut progress)?;
    removed.into_iter().for_each(|name| set.remove(name));
    set.commit()?;
    Ok(report)
}

/// Place that files are written to, before they appear in the folder of the options.
pub(crate) struct Destination {
    /// The folder.
    pub(crate) place: PathBuf,
    /// Record of splits that stay in the folder of the options.
    pub(crate) earlier: Option<FolderRecord>,
    /// Splits that go from the folder of the options.
    pub(crate) removed_splits: Vec<String>,
    /// Rules that the texts went through before; without languages: none are known.
    pub(crate) text: TextRecord,
}

/// Binarises texts to a place. Returns also the files that must go from the folder of the options.
pub(crate) fn binarise(
    options: &PreprocessOptions,
    destination: Destination,
    mut progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(PreprocessReport, Vec<&'static str>)> {
    options.check()?;
    let Destination { place, earlier, removed_splits, text } = destination;
    create_folder(&place)?;
    options.check_destination()?;
    sweep(&options.destdir, |name| options.writes(name))?;

    let mut words = TrainWords { options, progress: &mut progress, src: None, tgt: None };
    let segmentation = words.segmentation()?;
    let segmenters = match &options.bpe {
        BpeSource::Applied(_) => None,
        _ => segmentation.as_ref().map(Segmentation::segmenters),
    };
    if options.only_source {
        let vocab = words.source_vocab(segmenters.as_ref())?;
        earlier::check(options, &removed_splits, &[(DICT.to_owned(), &vocab)], segmentation.as_ref())?;
        let segmenter = segmenters.as_ref().map(|both| &*both[0]);
        let merges = segmentation.as_ref().and_then(Segmentation::merges);
        let report = text::binarise(options, &place, &vocab, (segmenter, merges), &mut progress)?;
        let removed = save_segmentation(segmentation.as_ref(), &place)?;
        let splits =
            report.splits.iter().map(|split| (split.name.clone(), SplitRecord::new(&vocab, split.written)));
        FolderRecord::write(&place, earlier, splits)?;
        return Ok((report, removed));
    }
    let (src_vocab, tgt_vocab) = words.vocabs(segmenters.as_ref())?;
    let languages = [options.source_lang.as_str(), options.target_lang.as_str()];
    let dicts = [(dict_name(languages[0]), &src_vocab), (dict_name(languages[1]), &tgt_vocab)];
    earlier::check(options, &removed_splits, &dicts, segmentation.as_ref())?;

    let mut report = PreprocessReport {
        src_vocab: src_vocab.len(),
        tgt_vocab: Some(tgt_vocab.len()),
        bpe_merges: segmentation.as_ref().and_then(Segmentation::merges),
        splits: Vec::new(),
    };
    let mut writers = Vec::new();
    for (name, prefix) in options.splits() {
        let mut split = Split::open(options, &place, name, prefix, (&src_vocab, &tgt_vocab))?;
        split
            .encode_all(segmenters.as_ref(), |lines, split| progress(Progress::Encoding { split, lines }))?;
        report.splits.push(split.report);
        writers.extend([split.src_writer, split.tgt_writer]);
    }

    writers.into_iter().try_for_each(DatasetWriter::finish)?;
    dicts.iter().try_for_each(|(name, vocab)| vocab.save(place.join(name)))?;
    TextRecord::new(languages[0], languages[1], text.rules).save(&place)?;
    let removed = save_segmentation(segmentation.as_ref(), &place)?;
    let sides = report.splits.iter().flat_map(|split| {
        let side =
            |(lang, vocab)| (side_name(&split.name, languages, lang), SplitRecord::new(vocab, split.written));
        [(languages[0], &src_vocab), (languages[1], &tgt_vocab)].map(side)
    });
    FolderRecord::write(&place, earlier, sides)?;
    Ok((report, removed))
}

/// Writes the files of a segmentation, and returns the names of those of another kind.
fn save_segmentation(segmentation: Option<&Segmentation>, place: &Path) -> Result<Vec<&'static str>> {
    Segmentation::save(segmentation, place)?;
    let kept = Segmentation::file_names(segmentation);
    Ok(segmentation::FILES.into_iter().filter(|name| !kept.contains(name)).collect())
}

/// Segmenters of source and target.
type Segmenters = [Arc<Segmenter>; 2];
