//! The BPE model of `tokenizers`: the first learned merge that fits, the leftmost of its places, one at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::vocab::{SPECIALS, UNK};

/// No symbol.
const NONE: usize = usize::MAX;

/// Pieces and merges.
pub(super) struct Model {
    /// Pieces of the file, by any number.
    pub(super) ids: FxHashMap<Box<str>, u32>,
    /// The same by number.
    pub(super) texts: Vec<Box<str>>,
    /// (left, right) → (rank, merged).
    pub(super) merges: FxHashMap<(u32, u32), (u32, u32)>,
    /// After the last character of each word; mostly empty.
    pub(super) word_end: String,
    /// Unknown characters become pieces such as `<0xC3>`.
    pub(super) byte_fallback: bool,
    /// A word that is a piece stays whole, whatever the merges say.
    pub(super) whole_words: bool,
}

impl Model {
    /// Number of merges.
    pub(super) fn len(&self) -> usize {
        self.merges.len()
    }

    /// Appends a word's pieces with blanks between.
    pub(super) fn push_pieces(&self, word: &str, out: &mut String) {
        let whole = self.ids.get(word).filter(|_| self.whole_words);
        let pieces = whole.map_or_else(|| merge(self.characters(word), &self.merges), |&id| vec![Some(id)]);
        for (i, piece) in pieces.into_iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            out.push_str(piece.map_or(SPECIALS[UNK as usize], |id| &self.texts[id as usize]));
        }
    }

    /// The symbols a word starts as; `None` for a character that is no piece.
    fn characters(&self, word: &str) -> Vec<Option<u32>> {
        let mut symbols = Vec::with_capacity(word.len());
        let mut text = String::new();
        for (at, c) in word.char_indices() {
            text.clear();
            text.push(c);
            if at + c.len_utf8() == word.len() {
                text.push_str(&self.word_end);
            }
            match self.ids.get(&*text) {
                Some(&id) => symbols.push(Some(id)),
                None => symbols.extend(self.fallback(&text)),
            }
        }
        symbols
    }

    /// The bytes of a character as pieces, or one unknown.
    fn fallback(&self, text: &str) -> Vec<Option<u32>> {
        let byte = |byte: u8| self.ids.get(&*format!("<0x{byte:02X}>")).map(|&id| Some(id));
        let bytes: Option<Vec<_>> = text.bytes().map(byte).collect();
        bytes.filter(|_| self.byte_fallback).unwrap_or_else(|| vec![None])
    }
}

/// Merges as long as a merge fits. Symbols are a list linked by index; a queue finds the next merge.
fn merge(mut ids: Vec<Option<u32>>, merges: &FxHashMap<(u32, u32), (u32, u32)>) -> Vec<Option<u32>> {
    let n = ids.len();
    let mut next: Vec<usize> = (1..=n).map(|i| if i < n { i } else { NONE }).collect();
    let mut prev: Vec<usize> = (0..n).map(|i| i.checked_sub(1).unwrap_or(NONE)).collect();
    let mut gone = vec![false; n];
    let fits = |ids: &[Option<u32>], next: &[usize], i: usize| {
        let right = *ids.get(*next.get(i)?)?;
        merges.get(&(ids[i]?, right?)).copied()
    };
    let mut queue: BinaryHeap<_> =
        (0..n).filter_map(|i| Some(Reverse((fits(&ids, &next, i)?.0, i)))).collect();
    while let Some(Reverse((rank, i))) = queue.pop() {
        let Some((now, merged)) = fits(&ids, &next, i).filter(|_| !gone[i]) else { continue };
        if now != rank {
            continue;
        }
        let right = next[i];
        gone[right] = true;
        ids[i] = Some(merged);
        next[i] = next[right];
        if let Some(prev) = prev.get_mut(next[i]) {
            *prev = i;
        }
        for i in [prev[i], i] {
            if let Some((rank, _)) = fits(&ids, &next, i) {
                queue.push(Reverse((rank, i)));
            }
        }
    }
    ids.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(id, _)| id).collect()
}
