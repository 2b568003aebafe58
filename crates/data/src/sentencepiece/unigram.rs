//! The unigram model: the path through a text whose pieces have the greatest sum of scores.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::trie::Trie;
use super::{Entry, Kind, Model};

/// Distance of an unknown character's score from the least score.
const UNKNOWN_PENALTY: f32 = 10.0;

pub(super) struct Unigram {
    trie: Trie,
    unknown_score: f32,
    /// Greatest score of a normal piece, as the package computes it: never below the least positive number.
    greatest: f32,
}

/// The best path to a place.
#[derive(Clone, Copy)]
struct Best {
    id: u32,
    score: f32,
    /// Start of its last piece; `NONE` before any path is known.
    start: usize,
}

const NONE: usize = usize::MAX;

impl Unigram {
    pub(super) fn new(entries: &[Entry], pieces: &FxHashMap<Box<str>, u32>) -> Self {
        let scores = || entries.iter().filter(|entry| entry.kind == Kind::Normal).map(|entry| entry.score);
        Self {
            trie: Trie::new(pieces.iter().map(|(text, &id)| (text.as_bytes(), id))),
            unknown_score: scores().fold(f32::MAX, f32::min) - UNKNOWN_PENALTY,
            greatest: scores().fold(f32::MIN_POSITIVE, f32::max),
        }
    }

    /// Pieces of a text as ranges of its bytes, with their ids. Sums are rounded as in the package, so that ties are
    /// decided alike.
    pub(super) fn best_path(&self, model: &Model, text: &str) -> Vec<(Range<usize>, u32)> {
        let bytes = text.as_bytes();
        let mut best = vec![Best { id: 0, score: 0.0, start: NONE }; bytes.len() + 1];
        for (start, c) in text.char_indices() {
            let here = best[start].score;
            let mut reach = |end: usize, id: u32, score: f32| {
                let sum = score + here;
                let node = &mut best[end];
                if node.start == NONE || sum > node.score {
                    *node = Best { id, score: sum, start };
                }
            };
            let mut has_character = false;
            let mut place = self.trie.root();
            for (end, &byte) in (start + 1..).zip(&bytes[start..]) {
                place = place.and_then(|place| self.trie.step(place, byte));
                let Some(place) = place else { break };
                let Some(id) = self.trie.value(place) else { continue };
                let entry = &model.entries[id as usize];
                let score = match entry.kind {
                    Kind::Unused => continue,
                    Kind::UserDefined => (end - start) as f32 * self.greatest - 0.1,
                    _ => entry.score,
                };
                reach(end, id, score);
                has_character |= end - start == c.len_utf8();
            }
            if !has_character {
                reach(start + c.len_utf8(), model.unknown, self.unknown_score);
            }
        }
        let mut path = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let Best { id, start, .. } = best[end];
            path.push((start..end, id));
            end = start;
        }
        path.reverse();
        path
    }
}
