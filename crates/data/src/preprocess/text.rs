//! One text to token ids: `fairseq-preprocess --only-source`.

use std::path::Path;

use rayon::prelude::*;

use super::{CHUNK, PreprocessOptions, PreprocessReport, Progress, SideReport, SplitPolicy, SplitReport};
use crate::dataset::DatasetWriter;
use crate::error::{Error, Result};
use crate::lines::{LineReader, find_text};
use crate::segmentation::Segmenter;
use crate::text::DICT;
use crate::vocab::Vocab;

/// Writes `{split}.{bin,idx}` of all texts, and `dict.txt`, when all texts are encoded.
pub(super) fn binarise(
    options: &PreprocessOptions,
    place: &Path,
    vocab: &Vocab,
    (segmenter, bpe_merges): (Option<&Segmenter>, Option<usize>),
    progress: &mut impl FnMut(Progress<'_>),
) -> Result<PreprocessReport> {
    let mut report = PreprocessReport { src_vocab: vocab.len(), bpe_merges, ..PreprocessReport::default() };
    let mut writers = Vec::new();
    for (name, prefix) in options.splits() {
        let (split, writer) = encode(options, place, (name, prefix), (vocab, segmenter), progress)?;
        report.splits.push(split);
        writers.push(writer);
    }
    writers.into_iter().try_for_each(DatasetWriter::finish)?;
    vocab.save(place.join(DICT))?;
    Ok(report)
}

/// Encodes one split; its files are not visible yet.
fn encode(
    options: &PreprocessOptions,
    place: &Path,
    (name, prefix): (String, &str),
    (vocab, segmenter): (&Vocab, Option<&Segmenter>),
    progress: &mut impl FnMut(Progress<'_>),
) -> Result<(SplitReport, DatasetWriter)> {
    let path = find_text(prefix, &options.source_lang)?;
    let mut reader = LineReader::open(&path, options.bad_utf8)?;
    let mut writer = DatasetWriter::create(place.join(&name), vocab.len())?;
    let dropout = options.dropout.filter(|_| name == "train");
    let rules = SplitPolicy::new(options, &name);
    let side = SideReport { path, ..SideReport::default() };
    let mut report = SplitReport { name, src: side, ..SplitReport::default() };
    loop {
        let before = reader.lines_read();
        let lines = reader.next_chunk(CHUNK)?;
        if lines.is_empty() {
            break;
        }
        let encode = |(i, line): (usize, &String)| {
            let mut ids = Vec::new();
            let unknown = match segmenter {
                Some(segmenter) => {
                    let pieces = segmenter.segment_training_line(line, dropout, (before + i as u64, 0));
                    vocab.encode_into(&pieces, &mut ids)
                }
                None => vocab.encode_into(line, &mut ids),
            };
            (ids, unknown)
        };
        let encoded: Vec<(Vec<u32>, usize)> =
            lines.par_iter().enumerate().with_min_len(64).map(encode).collect();
        for (ids, unknown) in encoded {
            report.lines += 1;
            let side = &mut report.src;
            if rules.leaves_out(side, report.lines, &ids)? {
                report.skipped.add(report.lines);
                continue;
            }
            side.tokens += ids.len() as u64;
            side.unknown += unknown as u64;
            writer.push(&ids)?;
            report.written += 1;
        }
        progress(Progress::Encoding { split: &report.name, lines: report.lines });
    }
    if report.name == "train" && report.written == 0 {
        return Err(Error::dataset(&report.src.path, "no training line is left; is the file empty?"));
    }
    report.src.close(&reader);
    Ok((report, writer))
}
