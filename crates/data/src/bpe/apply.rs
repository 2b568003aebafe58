//! Splits words into pieces with learned merges.
//!
//! A word starts as its characters; the earliest learned merge that fits anywhere is applied everywhere, from
//! the left, until none fits. A queue of candidate merges finds the next one, so that even a line of a
//! megabyte without a space takes no quadratic time. Words repeat, so results are kept in a cache that all
//! threads share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cache::PieceCache;
use super::codes::{Codes, Version, without_end};
use super::counts::WordCounts;
use super::glossary::Glossaries;
use super::{END_OF_WORD, SEPARATOR, is_margin, words};
use crate::error::{Error, Result};
use crate::lines::{BadUtf8, LineReader};
use crate::vocab::shorten;

/// Symbol that no merge knows.
const NONE: u32 = u32::MAX;

/// Pieces (with their `@@`) that may be used; others are split further by undoing merges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceSet {
    pieces: FxHashSet<Box<str>>,
}

impl PieceSet {
    /// Reads `piece count` lines, as `subword-nmt get-vocab` writes them; keeps pieces seen `threshold` times.
    pub fn load(path: impl AsRef<Path>, threshold: u64) -> Result<Self> {
        let path = path.as_ref();
        let mut pieces = FxHashSet::default();
        let mut reader = LineReader::open(path, BadUtf8::Error)?;
        while let Some(text) = reader.next_line()? {
            let text = text.trim_matches(is_margin);
            let entry = text.split_once(' ').and_then(|(piece, n)| Some((piece, n.parse::<u64>().ok()?)));
            match entry {
                Some((piece, n)) if n >= threshold => drop(pieces.insert(piece.into())),
                Some(_) => {}
                None => {
                    let what = format!("expected `piece count`, found `{}`", shorten(text));
                    return Err(Error::format(path, reader.lines_read(), what));
                }
            }
        }
        Ok(Self { pieces })
    }

    fn contains(&self, piece: &str, last: bool) -> bool {
        if last { self.pieces.contains(piece) } else { self.pieces.contains(&*[piece, SEPARATOR].concat()) }
    }
}

impl<S: Into<Box<str>>> FromIterator<S> for PieceSet {
    fn from_iter<I: IntoIterator<Item = S>>(pieces: I) -> Self {
        Self { pieces: pieces.into_iter().map(Into::into).collect() }
    }
}

/// Segments words, lines and texts. Shared freely between threads.
pub struct Bpe {
    version: Version,
    /// (left, right) → (rank, merged).
    pub(super) merges: FxHashMap<(u32, u32), (u32, u32)>,
    /// Ids of single characters inside a word and at its end.
    inner: FxHashMap<char, u32>,
    last: FxHashMap<char, u32>,
    end_of_word: u32,
    /// Merged string → its two parts, for undoing merges.
    parts: FxHashMap<Box<str>, (Box<str>, Box<str>)>,
    allowed: Option<PieceSet>,
    glossaries: Option<Glossaries>,
    cache: PieceCache,
}

impl Bpe {
    /// A segmenter for these merges. Of a merge that is listed twice the first counts.
    pub fn new(codes: &Codes) -> Self {
        let mut ids: FxHashMap<Box<str>, u32> = FxHashMap::default();
        let mut id = |text: &str| {
            let next = ids.len() as u32;
            *ids.entry(text.into()).or_insert(next)
        };
        let (mut merges, mut parts) = (FxHashMap::default(), FxHashMap::default());
        for (rank, (left, right)) in codes.merges.iter().enumerate() {
            let text = [&**left, right].concat();
            merges.entry((id(left), id(right))).or_insert((rank as u32, id(&text)));
            parts.entry(text.into()).or_insert_with(|| (left.clone(), right.clone()));
        }
        let single = |text: &str| {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none())
        };
        let inner = ids.iter().filter_map(|(text, &id)| Some((single(text)?, id))).collect();
        let last = ids.iter().filter_map(|(text, &id)| Some((single(without_end(text)?)?, id))).collect();
        Self {
            version: codes.version,
            merges,
            inner,
            last,
            end_of_word: ids.get(END_OF_WORD).copied().unwrap_or(NONE),
            parts,
            allowed: None,
            glossaries: None,
            cache: PieceCache::default(),
        }
    }

    /// Uses only pieces of `allowed` where merges can be undone to get there (subword-nmt's `--vocabulary`).
    pub fn with_pieces(self, allowed: PieceSet) -> Self {
        Self { allowed: Some(allowed), cache: PieceCache::default(), ..self }
    }

    /// Leaves matches of `glossaries` alone, and cuts what is beside them as words (subword-nmt's `--glossaries`).
    pub fn with_glossaries(self, glossaries: Glossaries) -> Self {
        Self { glossaries: Some(glossaries), cache: PieceCache::default(), ..self }
    }

    /// The pieces of one word, without `@@`.
    pub fn encode_word<'w>(&self, word: &'w str) -> Vec<&'w str> {
        self.encode_parts(word, |part| {
            if is_single(part) { vec![part] } else { self.check_pieces(Merging::new(self, part).run()) }
        })
    }

    /// Cuts the parts of a word that are in no glossary.
    pub(super) fn encode_parts<'w>(
        &self,
        word: &'w str,
        mut cut: impl FnMut(&'w str) -> Vec<&'w str>,
    ) -> Vec<&'w str> {
        let Some(glossaries) = &self.glossaries else { return cut(word) };
        let parts = glossaries.divide(word).into_iter();
        parts.flat_map(|part| if glossaries.holds(part) { vec![part] } else { cut(part) }).collect()
    }

    /// Undoes merges that gave pieces which are not allowed.
    pub(super) fn check_pieces<'w>(&self, pieces: Vec<&'w str>) -> Vec<&'w str> {
        match &self.allowed {
            None => pieces,
            Some(allowed) => self.split_unknown(&pieces, allowed),
        }
    }

    /// Appends a word's pieces, `@@` after all but the last, to `out`; remembers them for the next time.
    pub(crate) fn segment_word(&self, word: &str, out: &mut String) {
        self.cache.look_up(word, out, |out| push_pieces(&self.encode_word(word), out));
    }

    /// Segments a line. Spaces at both ends stay, runs of spaces inside become one, as in subword-nmt.
    pub fn segment_line(&self, line: &str) -> String {
        segment_words(line, |word, out| self.segment_word(word, out))
    }

    /// Segments many lines on all threads.
    pub fn segment_lines<S: AsRef<str> + Sync>(&self, lines: &[S]) -> Vec<String> {
        lines.par_iter().with_min_len(64).map(|line| self.segment_line(line.as_ref())).collect()
    }

    /// The pieces (with `@@`) of counted words, the most frequent first, ties by code point: `subword-nmt get-vocab`.
    pub fn piece_counts(&self, words: &WordCounts) -> Vec<(String, u64)> {
        let mut totals = FxHashMap::<String, u64>::default();
        let mut pieces = String::new();
        for (word, n) in words.iter() {
            pieces.clear();
            self.segment_word(word, &mut pieces);
            for piece in pieces.split(' ') {
                match totals.get_mut(piece) {
                    Some(total) => *total += n,
                    None => drop(totals.insert(piece.to_owned(), n)),
                }
            }
        }
        let mut sorted: Vec<_> = totals.into_iter().collect();
        sorted.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        sorted
    }

    fn split_unknown<'w>(&self, pieces: &[&'w str], allowed: &PieceSet) -> Vec<&'w str> {
        let mut out = Vec::new();
        for (i, &piece) in pieces.iter().enumerate() {
            let last = i + 1 == pieces.len();
            if allowed.contains(piece, last) {
                out.push(piece);
            } else {
                self.undo(piece, last, allowed, &mut out);
            }
        }
        out
    }

    /// Undoes the last merge of a piece, and again of those parts that are still not allowed.
    fn undo<'w>(&self, piece: &'w str, last: bool, allowed: &PieceSet, out: &mut Vec<&'w str>) {
        let parts =
            if last { self.parts.get(&*[piece, END_OF_WORD].concat()) } else { self.parts.get(piece) };
        let Some((left, right)) = parts.filter(|(_, right)| !last || right.ends_with(END_OF_WORD)) else {
            return out.push(piece);
        };
        let (left, right) =
            (&piece[..left.len()], &piece[left.len()..][..right.len() - if last { 4 } else { 0 }]);
        for (part, last) in [(left, false), (right, last)] {
            if allowed.contains(part, last) {
                out.push(part);
            } else {
                self.undo(part, last, allowed, out);
            }
        }
    }
}

/// Sends the words of a line through `segment`; spaces around and between them become those of subword-nmt.
pub(super) fn segment_words(line: &str, mut segment: impl FnMut(&str, &mut String)) -> String {
    let body = line.trim_matches(is_margin);
    if body.is_empty() {
        return line.to_owned();
    }
    let start = line.len() - line.trim_start_matches(is_margin).len();
    let mut out = String::with_capacity(line.len() * 3 / 2);
    out.push_str(&line[..start]);
    for (i, word) in words(body).enumerate() {
        if i > 0 {
            out.push(' ');
        }
        segment(word, &mut out);
    }
    out.push_str(&line[start + body.len()..]);
    out
}

/// Returns whether a word has one character or none: nothing to merge.
pub(super) fn is_single(word: &str) -> bool {
    word.chars().nth(1).is_none()
}

pub(super) fn push_pieces(pieces: &[&str], out: &mut String) {
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 {
            out.push_str(SEPARATOR);
            out.push(' ');
        }
        out.push_str(piece);
    }
}

/// One word while it is merged: its symbols as a list linked by index.
pub(super) struct Merging<'b, 'w> {
    pub(super) bpe: &'b Bpe,
    pub(super) word: &'w str,
    pub(super) ids: Vec<u32>,
    /// First byte of each symbol.
    pub(super) starts: Vec<usize>,
    /// Index of the symbol after each, `ids.len()` after the last.
    next: Vec<usize>,
    /// Index of the symbol before each, itself for the first.
    prev: Vec<usize>,
    /// (rank, index of the left symbol), least first.
    queue: BinaryHeap<Reverse<(u32, usize)>>,
}

impl<'b, 'w> Merging<'b, 'w> {
    pub(super) fn new(bpe: &'b Bpe, word: &'w str) -> Self {
        let (mut ids, mut starts) = (Vec::new(), Vec::new());
        for (start, c) in word.char_indices() {
            ids.push(bpe.inner.get(&c).copied().unwrap_or(NONE));
            starts.push(start);
        }
        match bpe.version {
            Version::V0_1 => {
                ids.push(bpe.end_of_word);
                starts.push(word.len());
            }
            Version::V0_2 => {
                let last = word.chars().next_back().and_then(|c| bpe.last.get(&c).copied());
                if let Some(id) = ids.last_mut() {
                    *id = last.unwrap_or(NONE);
                }
            }
        }
        let n = ids.len();
        let (next, prev) = ((1..=n).collect(), (0..n).map(|i| i.saturating_sub(1)).collect());
        Self { bpe, word, ids, starts, next, prev, queue: BinaryHeap::with_capacity(n) }
    }

    /// The merge that applies to symbol `i` and the one after it.
    fn merge_at(&self, i: usize) -> Option<(u32, u32)> {
        let &right = self.ids.get(self.next[i])?;
        self.bpe.merges.get(&(self.ids[i], right)).copied()
    }

    fn run(mut self) -> Vec<&'w str> {
        let mut touched: Vec<usize> = (0..self.ids.len()).collect();
        let mut gone = vec![false; self.ids.len()];
        loop {
            for i in touched.drain(..).filter(|&i| !gone[i]) {
                if let Some((rank, _)) = self.merge_at(i) {
                    self.queue.push(Reverse((rank, i)));
                }
            }
            let Some(&Reverse((rank, _))) = self.queue.peek() else { break };
            // All places of one merge, from the left, before any merge that becomes possible by it.
            while let Some(&Reverse((same, i))) = self.queue.peek()
                && same == rank
            {
                self.queue.pop();
                match self.merge_at(i) {
                    Some((now, merged)) if now == rank && !gone[i] => {
                        let right = self.next[i];
                        gone[right] = true;
                        self.ids[i] = merged;
                        self.next[i] = self.next[right];
                        if let Some(prev) = self.prev.get_mut(self.next[i]) {
                            *prev = i;
                        }
                        touched.extend([self.prev[i], i]);
                    }
                    _ => {}
                }
            }
        }
        let ends = gone.iter().enumerate().filter(|(_, gone)| !**gone).map(|(i, _)| {
            let end = self.starts.get(self.next[i]).copied().unwrap_or(self.word.len());
            &self.word[self.starts[i]..end]
        });
        // Version 0.1 leaves an unmerged end-of-word symbol, which spells nothing.
        ends.filter(|piece| !piece.is_empty()).collect()
    }
}
