//! Segmentation and vocabularies from the training text.

use std::path::PathBuf;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{BpeSource, CHUNK, PreprocessOptions, Progress, Segmenters};
use crate::bpe::{Bpe, Codes, LearnOptions, WordCounts, learn};
use crate::error::Result;
use crate::lines::{LineReader, find_text};
use crate::segmentation::{Segmentation, Segmenter};
use crate::sentencepiece::SentencePiece;
use crate::tokenizer::Tokenizer;
use crate::vocab::{Vocab, VocabOptions, tokens};

/// Word counts of the training text, each side read at most once and only if needed.
pub(super) struct TrainWords<'o, 'p> {
    pub(super) options: &'o PreprocessOptions,
    pub(super) progress: &'p mut dyn FnMut(Progress<'_>),
    pub(super) src: Option<WordCounts>,
    pub(super) tgt: Option<WordCounts>,
}

impl TrainWords<'_, '_> {
    fn path(&self, lang: &str) -> Result<PathBuf> {
        find_text(self.options.trainpref.as_deref().unwrap_or_default(), lang)
    }

    fn count(&mut self, lang: &str) -> Result<WordCounts> {
        let path = self.path(lang)?;
        (self.progress)(Progress::Counting { path: &path });
        WordCounts::from_files([path], self.options.bad_utf8)
    }

    fn src(&mut self) -> Result<&WordCounts> {
        let counts = match self.src.take() {
            Some(counts) => counts,
            None => self.count(&self.options.source_lang)?,
        };
        Ok(self.src.insert(counts))
    }

    fn tgt(&mut self) -> Result<&WordCounts> {
        let counts = match self.tgt.take() {
            Some(counts) => counts,
            None => self.count(&self.options.target_lang)?,
        };
        Ok(self.tgt.insert(counts))
    }

    pub(super) fn segmentation(&mut self) -> Result<Option<Segmentation>> {
        Ok(Some(match &self.options.bpe {
            BpeSource::None => return Ok(None),
            BpeSource::Applied(segmentation) => segmentation.clone(),
            BpeSource::Codes(path) => Segmentation::Joint(Codes::load(path)?),
            BpeSource::SeparateCodes(src, tgt) => {
                Segmentation::Separate { src: Codes::load(src)?, tgt: Codes::load(tgt)? }
            }
            BpeSource::Tokenizer(path) => Segmentation::Tokenizer(Tokenizer::load(path)?),
            BpeSource::SentencePiece(path) => Segmentation::SentencePiece(SentencePiece::load(path)?),
            BpeSource::SentencePieces(src, tgt) => Segmentation::SentencePieces {
                src: SentencePiece::load(src)?,
                tgt: SentencePiece::load(tgt)?,
            },
            BpeSource::Learn(options) => {
                let mut joint = self.src()?.clone();
                if !self.options.only_source {
                    joint.merge(self.tgt()?);
                }
                Segmentation::Joint(self.learn(&joint, *options)?)
            }
            BpeSource::LearnSeparately(options) => {
                let (src, tgt) = (self.src()?.clone(), self.tgt()?.clone());
                let (src, tgt) = (self.learn(&src, *options)?, self.learn(&tgt, *options)?);
                Segmentation::Separate { src, tgt }
            }
        }))
    }

    fn learn(&mut self, words: &WordCounts, options: LearnOptions) -> Result<Codes> {
        let total = options.merges;
        learn(words, options, |done| (self.progress)(Progress::Learning { done, total }))
    }

    /// The vocabulary of one text.
    pub(super) fn source_vocab(&mut self, segmenters: Option<&Segmenters>) -> Result<Vocab> {
        let PreprocessOptions { thresholdsrc: threshold, nwordssrc: nwords, padding_factor, .. } =
            *self.options;
        match &self.options.srcdict {
            Some(path) => Vocab::load(path),
            None => {
                let tokens = self.tokens(segmenters, 0)?;
                Ok(Vocab::from_counts(tokens, VocabOptions { threshold, nwords, padding_factor }))
            }
        }
    }

    pub(super) fn vocabs(&mut self, segmenters: Option<&Segmenters>) -> Result<(Vocab, Vocab)> {
        let options = self.options;
        let cut =
            |threshold, nwords| VocabOptions { threshold, nwords, padding_factor: options.padding_factor };
        let (src_cut, tgt_cut) =
            (cut(options.thresholdsrc, options.nwordssrc), cut(options.thresholdtgt, options.nwordstgt));
        if options.joined_dictionary {
            let joint = match options.srcdict.as_ref().or(options.tgtdict.as_ref()) {
                Some(path) => Vocab::load(path)?,
                None => {
                    let mut counts = self.tokens(segmenters, 0)?;
                    counts.extend(self.tokens(segmenters, 1)?);
                    Vocab::from_counts(counts, src_cut)
                }
            };
            return Ok((joint.clone(), joint));
        }
        let src = self.source_vocab(segmenters)?;
        let tgt = match &options.tgtdict {
            Some(path) => Vocab::load(path)?,
            None => Vocab::from_counts(self.tokens(segmenters, 1)?, tgt_cut),
        };
        Ok((src, tgt))
    }

    /// The tokens of one side (0 source, 1 target) and their counts; a token may be there more than once.
    fn tokens(&mut self, segmenters: Option<&Segmenters>, side: usize) -> Result<Vec<(String, u64)>> {
        let segmenter = segmenters.map(|both| &*both[side]);
        let dropout = self.options.dropout;
        let mut counts = match segmenter {
            // Where pieces depend on more than the word, lines are counted.
            Some(by_line @ (Segmenter::Tokenizer(_) | Segmenter::SentencePiece(_))) => {
                return self.line_tokens(by_line, side);
            }
            Some(by_line) if dropout.is_some() => self.line_tokens(by_line, side)?,
            _ => Vec::new(),
        };
        let bpe = match segmenter {
            Some(Segmenter::Bpe(bpe)) => Some(&**bpe),
            _ => None,
        };
        let plain = token_counts(if side == 0 { self.src()? } else { self.tgt()? }, bpe);
        // The pieces of texts without dropout must be known too, even if dropout never leaves them whole.
        let weight = if dropout.is_some() { 0 } else { 1 };
        counts.extend(plain.into_iter().map(|(token, n)| (token, n * weight)));
        Ok(counts)
    }

    fn line_tokens(&mut self, segmenter: &Segmenter, side: usize) -> Result<Vec<(String, u64)>> {
        let options = self.options;
        let path = self.path(if side == 0 { &options.source_lang } else { &options.target_lang })?;
        (self.progress)(Progress::Counting { path: &path });
        let mut reader = LineReader::open(&path, options.bad_utf8)?;
        let mut totals = FxHashMap::<String, u64>::default();
        loop {
            let before = reader.lines_read();
            let lines = reader.next_chunk(CHUNK)?;
            if lines.is_empty() {
                return Ok(totals.into_iter().collect());
            }
            let share = lines.len().div_ceil(rayon::current_num_threads());
            let parts = lines.par_chunks(share).enumerate().map(|(part, lines)| {
                let mut counts = FxHashMap::<String, u64>::default();
                for (i, line) in lines.iter().enumerate() {
                    let number = before + (part * share + i) as u64;
                    let pieces =
                        segmenter.segment_training_line(line, options.dropout, (number, side as u64));
                    for token in tokens(&pieces) {
                        match counts.get_mut(token) {
                            Some(count) => *count += 1,
                            None => drop(counts.insert(token.to_owned(), 1)),
                        }
                    }
                }
                counts
            });
            for (token, n) in parts.collect::<Vec<_>>().into_iter().flatten() {
                *totals.entry(token).or_default() += n;
            }
        }
    }
}

/// The tokens of a text from the counts of its words: each word is segmented once, however often it occurs.
fn token_counts(words: &WordCounts, bpe: Option<&Bpe>) -> Vec<(String, u64)> {
    let words: Vec<_> = words.iter().collect();
    let segment = |&(word, n): &(&str, u64)| {
        let mut text = String::new();
        match bpe {
            Some(bpe) => bpe.segment_word(word, &mut text),
            None => text.push_str(word),
        }
        tokens(&text).map(|token| (token.to_owned(), n)).collect::<Vec<_>>()
    };
    words.par_iter().with_min_len(1024).flat_map_iter(segment).collect()
}
