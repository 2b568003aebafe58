//! Learns merges from word counts, with subword-nmt's result.
//!
//! Each step merges the most frequent pair of neighbouring symbols; among equally frequent ones the pair that
//! is last by code point. subword-nmt scans a pruned table for it; here a priority queue holds every pair with
//! the count it had when it was pushed. Counts of old pairs only fall, so an entry that is out of date is
//! corrected when it surfaces. The pruning is not imitated: it changes nothing in subword-nmt's result, except
//! for texts full of words with white space inside (no-break spaces, say), where it loses track.

use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::END_OF_WORD;
use super::codes::{Codes, Version};
use super::counts::WordCounts;
use crate::error::{Error, Result};
use crate::vocab::is_space;

/// Number of merges to learn, and when to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnOptions {
    /// Merges at most.
    pub merges: usize,
    /// Learning stops when no pair is as frequent as this (at least 1).
    pub min_frequency: u64,
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self { merges: 10_000, min_frequency: 2 }
    }
}

/// Learns merges; `progress` gets the number of merges after each.
pub fn learn(counts: &WordCounts, options: LearnOptions, mut progress: impl FnMut(usize)) -> Result<Codes> {
    if counts.is_empty() {
        return Err(Error::NoWords);
    }
    let min_frequency = i64::try_from(options.min_frequency.max(1)).unwrap_or(i64::MAX);
    let mut learner = Learner::new(counts, min_frequency);
    let mut codes = Codes { version: Version::V0_2, merges: Vec::new() };
    while codes.len() < options.merges
        && let Some(pair) = learner.most_frequent()
    {
        codes.merges.push((learner.symbols.text(pair.0).into(), learner.symbols.text(pair.1).into()));
        learner.merge(pair);
        progress(codes.len());
    }
    Ok(codes)
}

type Pair = (u32, u32);

/// Symbols by their spelling: two ways to the same string give the same symbol, as in subword-nmt.
#[derive(Default)]
struct Symbols {
    ids: FxHashMap<Rc<str>, u32>,
    texts: Vec<Rc<str>>,
}

impl Symbols {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let (id, text) = (self.texts.len() as u32, Rc::<str>::from(text));
        self.ids.insert(text.clone(), id);
        self.texts.push(text);
        id
    }

    fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }
}

struct Word {
    symbols: Vec<u32>,
    count: i64,
    /// Contains white space other than the space character: see [`Learner::replace_in_text`].
    spaced: bool,
}

#[derive(Default)]
struct PairStats {
    count: i64,
    /// Words the pair was seen in; some may have lost it since.
    words: Vec<u32>,
}

/// Ordered by count, then by the pair's strings: the order in which subword-nmt prefers pairs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    count: i64,
    texts: (Rc<str>, Rc<str>),
    pair: Pair,
}

struct Learner {
    symbols: Symbols,
    words: Vec<Word>,
    pairs: FxHashMap<Pair, PairStats>,
    queue: BinaryHeap<Candidate>,
    min_frequency: i64,
    /// Pairs whose count rose in the current merge.
    risen: FxHashSet<Pair>,
    /// Count of a pair in a spaced word, by subword-nmt's own rule. The replacement below does not follow that
    /// rule: the count goes wrong there, and so it must here.
    spaced_index: FxHashMap<(Pair, u32), i64>,
}

impl Learner {
    fn new(counts: &WordCounts, min_frequency: i64) -> Self {
        let mut learner = Self {
            symbols: Symbols::default(),
            words: Vec::with_capacity(counts.len()),
            pairs: FxHashMap::default(),
            queue: BinaryHeap::new(),
            min_frequency,
            risen: FxHashSet::default(),
            spaced_index: FxHashMap::default(),
        };
        let mut text = String::new();
        for (word, count) in counts.iter() {
            let mut symbols = Vec::with_capacity(word.len());
            let mut rest = word.chars().peekable();
            while let Some(c) = rest.next() {
                text.clear();
                text.push(c);
                if rest.peek().is_none() {
                    text.push_str(END_OF_WORD);
                }
                symbols.push(learner.symbols.id(&text));
            }
            let (count, index) = (i64::try_from(count).unwrap_or(i64::MAX), learner.words.len() as u32);
            learner.words.push(Word { symbols: Vec::new(), count, spaced: word.contains(is_space) });
            symbols.windows(2).for_each(|pair| learner.add((pair[0], pair[1]), index, count));
            learner.words[index as usize].symbols = symbols;
        }
        learner.push_risen();
        learner
    }

    fn add(&mut self, pair: Pair, word: u32, count: i64) {
        let stats = self.pairs.entry(pair).or_default();
        stats.count += count;
        if stats.words.last() != Some(&word) {
            stats.words.push(word);
        }
        self.risen.insert(pair);
        if self.words[word as usize].spaced {
            *self.spaced_index.entry((pair, word)).or_default() += 1;
        }
    }

    fn subtract(&mut self, pair: Pair, word: u32, count: i64) {
        self.pairs.entry(pair).or_default().count -= count;
        if self.words[word as usize].spaced {
            *self.spaced_index.entry((pair, word)).or_default() -= 1;
        }
    }

    fn push(&mut self, pair: Pair, count: i64) {
        if count >= self.min_frequency {
            let text = |id: u32| self.symbols.texts[id as usize].clone();
            self.queue.push(Candidate { count, texts: (text(pair.0), text(pair.1)), pair });
        }
    }

    fn push_risen(&mut self) {
        for pair in std::mem::take(&mut self.risen) {
            let count = self.pairs.get(&pair).map_or(0, |stats| stats.count);
            self.push(pair, count);
        }
    }

    /// The pair to merge next, or `None` when none is frequent enough.
    fn most_frequent(&mut self) -> Option<Pair> {
        loop {
            let Candidate { count, pair, .. } = self.queue.pop()?;
            let now = self.pairs.get(&pair).map_or(0, |stats| stats.count);
            if now == count {
                return Some(pair);
            }
            if now < count {
                self.push(pair, now);
            }
        }
    }

    /// Merges a pair wherever it occurs and brings the counts of the pairs around it up to date.
    fn merge(&mut self, pair: Pair) {
        let text = [self.symbols.text(pair.0), self.symbols.text(pair.1)].concat();
        let merged = self.symbols.id(&text);
        let Some(mut stats) = self.pairs.remove(&pair) else { return };
        stats.words.sort_unstable();
        stats.words.dedup();
        for index in stats.words {
            let word = &self.words[index as usize];
            let here = match word.spaced {
                true => self.spaced_index.remove(&(pair, index)).is_some_and(|n| n > 0),
                false => word.symbols.windows(2).any(|found| (found[0], found[1]) == pair),
            };
            if !here {
                continue;
            }
            let (count, spaced) = (word.count, word.spaced);
            let new =
                if spaced { self.replace_in_text(index, pair) } else { replace(&word.symbols, pair, merged) };
            let old = std::mem::replace(&mut self.words[index as usize].symbols, new);
            self.forget_neighbours(index, &old, pair, count);
            self.count_neighbours(index, merged, count);
        }
        // A count that remains of the pair itself is an artefact of runs like `a a a`: it occurs nowhere any more.
        self.pairs.remove(&pair);
        self.push_risen();
    }

    /// In `A B C`, merging `B C` costs one `A B`; in `B C D` one `C D`, unless `D` starts the next `B C`,
    /// whose own turn takes it off.
    fn forget_neighbours(&mut self, index: u32, old: &[u32], (first, second): Pair, count: i64) {
        let mut i = 0;
        while i + 1 < old.len() {
            if (old[i], old[i + 1]) != (first, second) {
                i += 1;
                continue;
            }
            if i > 0 {
                self.subtract((old[i - 1], first), index, count);
            }
            if let Some(&next) = old.get(i + 2)
                && (next != first || old.get(i + 3) != Some(&second))
            {
                self.subtract((second, next), index, count);
            }
            i += 2;
        }
    }

    /// Counts the pairs that the merged symbol makes with its neighbours, each once.
    fn count_neighbours(&mut self, index: u32, merged: u32, count: i64) {
        let new = std::mem::take(&mut self.words[index as usize].symbols);
        for i in (0..new.len()).filter(|&i| new[i] == merged) {
            if i > 0 {
                self.add((new[i - 1], merged), index, count);
            }
            if let Some(&next) = new.get(i + 1)
                && next != merged
            {
                self.add((merged, next), index, count);
            }
        }
        self.words[index as usize].symbols = new;
    }

    /// Replaces as subword-nmt does it: in the text of all symbols joined by spaces, where a symbol's edge is
    /// any white space. It matters for words with no-break spaces and their like, whose merged symbols have
    /// edges inside.
    fn replace_in_text(&mut self, index: u32, (first, second): Pair) -> Vec<u32> {
        let symbols = &self.words[index as usize].symbols;
        let text = symbols.iter().map(|&s| self.symbols.text(s)).collect::<Vec<_>>().join(" ");
        let (first, second) = (self.symbols.text(first), self.symbols.text(second));
        let pattern = [first, second].join(" ");
        let step = pattern.chars().next().map_or(1, char::len_utf8);
        let (mut replaced, mut copied, mut from) = (String::with_capacity(text.len()), 0, 0);
        while let Some(at) = text[from..].find(&pattern).map(|at| from + at) {
            let end = at + pattern.len();
            let open = text[..at].chars().next_back().is_none_or(is_space);
            if open && text[end..].chars().next().is_none_or(is_space) {
                replaced.push_str(&text[copied..at]);
                replaced.push_str(first);
                replaced.push_str(second);
                (copied, from) = (end, end);
            } else {
                from = at + step;
            }
        }
        replaced.push_str(&text[copied..]);
        replaced.split(' ').map(|symbol| self.symbols.id(symbol)).collect()
    }
}

/// Replaces each pair, from the left, by the merged symbol.
fn replace(symbols: &[u32], pair: Pair, merged: u32) -> Vec<u32> {
    let mut new = Vec::with_capacity(symbols.len());
    let mut i = 0;
    while i < symbols.len() {
        if i + 1 < symbols.len() && (symbols[i], symbols[i + 1]) == pair {
            new.push(merged);
            i += 2;
        } else {
            new.push(symbols[i]);
            i += 1;
        }
    }
    new
}
