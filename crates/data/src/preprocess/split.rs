//! The pairs of one split to token ids.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{CHUNK, PreprocessOptions, Segmenters, SideReport, SplitPolicy, SplitReport};
use crate::dataset::DatasetWriter;
use crate::error::{Error, Result};
use crate::lines::{ParallelLines, find_text};
use crate::pairs::side_path;
use crate::vocab::Vocab;

/// One split on its way from text to ids.
pub(super) struct Split<'a> {
    options: &'a PreprocessOptions,
    vocabs: (&'a Vocab, &'a Vocab),
    lines: ParallelLines,
    pub(super) src_writer: DatasetWriter,
    pub(super) tgt_writer: DatasetWriter,
    rules: SplitPolicy,
    pub(super) report: SplitReport,
}

/// A line as ids, and the number of unknown ones.
type Encoded = (Vec<u32>, usize);

impl<'a> Split<'a> {
    pub(super) fn open(
        options: &'a PreprocessOptions,
        place: &Path,
        name: String,
        prefix: &str,
        vocabs: (&'a Vocab, &'a Vocab),
    ) -> Result<Self> {
        let PreprocessOptions { source_lang: src, target_lang: tgt, .. } = options;
        let (src_path, tgt_path) = (find_text(prefix, src)?, find_text(prefix, tgt)?);
        let lines = ParallelLines::open(&src_path, &tgt_path, options.bad_utf8)?;
        let writer = |lang: &str, vocab: &Vocab| {
            DatasetWriter::create(side_path(place, &name, [src, tgt], lang), vocab.len())
        };
        let (src_writer, tgt_writer) = (writer(src, vocabs.0)?, writer(tgt, vocabs.1)?);
        let side = |path: PathBuf| SideReport { path, ..SideReport::default() };
        Ok(Self {
            options,
            vocabs,
            lines,
            src_writer,
            tgt_writer,
            rules: SplitPolicy::new(options, &name),
            report: SplitReport {
                name,
                src: side(src_path),
                tgt: Some(side(tgt_path)),
                ..SplitReport::default()
            },
        })
    }

    pub(super) fn encode_all(
        &mut self,
        segmenters: Option<&Segmenters>,
        mut progress: impl FnMut(u64, &str),
    ) -> Result<()> {
        let dropout = self.options.dropout.filter(|_| self.report.name == "train");
        let vocabs = [self.vocabs.0, self.vocabs.1];
        let encode = |line: &str, number: u64, side: usize| -> Encoded {
            let mut ids = Vec::new();
            let unknown = match segmenters {
                Some(both) => {
                    let pieces = both[side].segment_training_line(line, dropout, (number, side as u64));
                    vocabs[side].encode_into(&pieces, &mut ids)
                }
                None => vocabs[side].encode_into(line, &mut ids),
            };
            (ids, unknown)
        };
        loop {
            let before = self.lines.src.lines_read();
            let chunk = self.lines.next_chunk(CHUNK)?;
            if chunk.is_empty() {
                break;
            }
            let encoded: Vec<_> = chunk
                .par_iter()
                .enumerate()
                .with_min_len(64)
                .map(|(i, (src, tgt))| {
                    let number = before + i as u64;
                    (encode(src, number, 0), encode(tgt, number, 1))
                })
                .collect();
            encoded.iter().try_for_each(|(src, tgt)| self.write(src, tgt))?;
            progress(self.report.lines, &self.report.name);
        }
        if self.report.name == "train" && self.report.written == 0 {
            let what = "no training pair is left; is the file empty, or do the policies skip every line?";
            return Err(Error::dataset(&self.report.src.path, what));
        }
        self.report.src.close(&self.lines.src);
        self.report.tgt.iter_mut().for_each(|side| side.close(&self.lines.tgt));
        Ok(())
    }

    /// Writes one pair unless the policies leave it out.
    fn write(&mut self, src: &Encoded, tgt: &Encoded) -> Result<()> {
        self.report.lines += 1;
        let line = self.report.lines;
        let mut skip = false;
        let sides = std::iter::once(&mut self.report.src).chain(&mut self.report.tgt);
        for (side, (ids, _)) in sides.zip([src, tgt]) {
            skip |= self.rules.leaves_out(side, line, ids)?;
        }
        if skip {
            self.report.skipped.add(line);
            return Ok(());
        }
        self.report.written += 1;
        let sides = std::iter::once(&mut self.report.src).chain(&mut self.report.tgt);
        let written = [(src, &mut self.src_writer), (tgt, &mut self.tgt_writer)];
        for (side, ((ids, unknown), writer)) in sides.zip(written) {
            side.tokens += ids.len() as u64;
            side.unknown += *unknown as u64;
            writer.push(ids)?;
        }
        Ok(())
    }
}
