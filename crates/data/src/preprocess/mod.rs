//! Text files to a binarised folder: `fairseq-preprocess`, with BPE on the way if wanted.
//!
//! Writes `dict.{lang}.txt`, `{split}.{src}-{tgt}.{lang}.{bin,idx}` (of one text alone `dict.txt` and
//! `{split}.{bin,idx}`) and, with BPE, its codes (or the `tokenizer.json` or the
//! SentencePiece model). Everything is written aside and
//! renamed only when all splits are complete; texts are streamed.
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

use std::path::Path;
use std::sync::Arc;

pub use options::{BpeSource, PreprocessOptions};
pub use policy::{LinePolicy, Policies};
pub use report::{PreprocessReport, SideReport, SplitReport};

use policy::SplitPolicy;
use split::Split;
use words::TrainWords;

use crate::dataset::DatasetWriter;
use crate::error::Result;
use crate::files::{create_folder, sweep};
use crate::segmentation::{Segmentation, Segmenter};
use crate::text::DICT;

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
        let merges = segmentation.as_ref().and_then(Segmentation::merges);
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
        bpe_merges: segmentation.as_ref().and_then(Segmentation::merges),
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

/// Segmenters of source and target.
type Segmenters = [Arc<Segmenter>; 2];
