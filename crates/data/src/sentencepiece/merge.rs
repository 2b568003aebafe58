//! The BPE model: of all neighbours that make a piece, those of the greatest score are merged first, the leftmost of
//! them before others.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::{Kind, Model};

/// No symbol.
const NONE: usize = usize::MAX;

struct Symbol {
    start: usize,
    /// Empty for a symbol that was merged into its left neighbour.
    end: usize,
    prev: usize,
    next: usize,
    /// User-defined pieces are never merged.
    fixed: bool,
}

/// Neighbours that make a piece.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of the piece, by which a pair is known to be out of date.
    size: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

struct Merger<'a> {
    model: &'a Model,
    text: &'a str,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
    /// Unused pieces, and the place where each is cut again.
    cuts: FxHashMap<&'a str, usize>,
}

/// Calls `emit` with the pieces of a text and their ids.
pub(super) fn for_each_piece(model: &Model, text: &str, emit: &mut impl FnMut(&str, u32)) {
    let mut merger =
        Merger { model, text, symbols: Vec::new(), queue: BinaryHeap::new(), cuts: FxHashMap::default() };
    merger.split();
    for right in 1..merger.symbols.len() {
        merger.consider(right - 1, right);
    }
    merger.merge();
    let mut index = 0;
    while let Some(symbol) = merger.symbols.get(index) {
        merger.emit(&text[symbol.start..symbol.end], emit);
        index = symbol.next;
    }
}

impl<'a> Merger<'a> {
    fn split(&mut self) {
        let mut start = 0;
        while start < self.text.len() {
            let (length, fixed) = self.model.normalizer.next_symbol(&self.text[start..]);
            let (index, end) = (self.symbols.len(), start + length);
            let next = if end < self.text.len() { index + 1 } else { NONE };
            self.symbols.push(Symbol { start, end, prev: index.wrapping_sub(1), next, fixed });
            start = end;
        }
    }

    /// Queues a pair if it makes a piece.
    fn consider(&mut self, left: usize, right: usize) {
        let (Some(a), Some(b)) = (self.symbols.get(left), self.symbols.get(right)) else { return };
        if a.fixed || b.fixed {
            return;
        }
        let piece = &self.text[a.start..b.end];
        let Some(&id) = self.model.pieces.get(piece) else { return };
        if self.model.kind(id) == Kind::Unused {
            self.cuts.insert(piece, a.end - a.start);
        }
        self.queue.push(Pair {
            score: self.model.entries[id as usize].score,
            left,
            right,
            size: piece.len(),
        });
    }

    fn merge(&mut self) {
        while let Some(Pair { left, right, size, .. }) = self.queue.pop() {
            let (a, b) = (&self.symbols[left], &self.symbols[right]);
            if a.end == a.start || b.end == b.start || b.end - b.start + a.end - a.start != size {
                continue;
            }
            let (prev, next) = (a.prev, b.next);
            self.symbols[left].end = b.end;
            self.symbols[left].next = next;
            self.symbols[right].end = self.symbols[right].start;
            if let Some(after) = self.symbols.get_mut(next) {
                after.prev = left;
            }
            self.consider(prev, left);
            self.consider(left, next);
        }
    }

    /// Emits a piece; an unused one is cut as it was merged. A stack of its own bounds the depth.
    fn emit(&self, piece: &'a str, emit: &mut impl FnMut(&str, u32)) {
        let mut stack = vec![piece];
        while let Some(piece) = stack.pop() {
            let id = self.model.id(piece);
            match self.cuts.get(piece) {
                Some(&cut) if self.model.kind(id) == Kind::Unused => {
                    let (left, right) = piece.split_at(cut);
                    stack.extend([right, left]);
                }
                _ => emit(piece, id),
            }
        }
    }
}
