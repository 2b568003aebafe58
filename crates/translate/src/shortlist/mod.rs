//! Shortlists: the types that a translation may have, by the words of its source.
//!
//! A CPU spends much of a step of one sentence on the logits of a large vocabulary. With a shortlist it computes those of
//! a few hundred types: types that may always come, and those that translate words of the source. Probabilities are those
//! among these types. A sentence has a list of its own, so its translation does not depend on its neighbours.

mod read;

use std::path::Path;
use std::sync::Arc;

use mae_data::{BOS, EOS, PAD, UNK, Vocab};
use rustc_hash::FxHashMap;

use crate::error::Result;

/// Types that translate words or sequences of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortlist {
    /// Types that may always come, in order.
    always: Vec<u32>,
    /// Types by the sequence of source ids that they translate.
    by_source: FxHashMap<Box<[u32]>, Vec<u32>>,
    /// Source ids of the longest sequence.
    longest: usize,
    /// Types of the dictionary that it was read for.
    types: usize,
}

/// What a file of a shortlist holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortlistCounts {
    /// Pairs of a source word or sequence and a type.
    pub pairs: u64,
    /// Those with a word that the dictionaries do not have; they are left out.
    pub unknown: u64,
}

impl Shortlist {
    /// Reads a shortlist for models with these dictionaries: CTranslate2's `vmap.txt` or Marian's lexical table, by the form
    /// of the first line.
    pub fn load(path: impl AsRef<Path>, source: &Vocab, target: &Vocab) -> Result<(Self, ShortlistCounts)> {
        read::load(path.as_ref(), source, target)
    }

    /// A shortlist of types that may always come, and of pairs of a sequence of source ids and a type, for a target
    /// dictionary of `types` types. Ids that it does not have are left out.
    pub fn new(
        always: impl IntoIterator<Item = u32>,
        pairs: impl IntoIterator<Item = (Box<[u32]>, u32)>,
        types: usize,
    ) -> Self {
        let usable = |id: &u32| (*id as usize) < types && *id != PAD && *id != BOS;
        let mut always: Vec<u32> = always.into_iter().chain([EOS, UNK]).filter(usable).collect();
        always.sort_unstable();
        always.dedup();
        let mut by_source: FxHashMap<Box<[u32]>, Vec<u32>> = FxHashMap::default();
        for (source, target) in
            pairs.into_iter().filter(|(source, target)| !source.is_empty() && usable(target))
        {
            by_source.entry(source).or_default().push(target);
        }
        let longest = by_source.keys().map(|source| source.len()).max().unwrap_or(0);
        Self { always, by_source, longest, types }
    }

    /// Types of the target dictionary that the list was made for.
    pub fn types(&self) -> usize {
        self.types
    }

    /// Types that the translation of a source may have, in order: those of `besides`, too.
    pub fn of(&self, source: &[u32], besides: &[u32]) -> Arc<[u32]> {
        let mut types = self.always.clone();
        types.extend(besides.iter().filter(|&&id| (id as usize) < self.types));
        for begin in 0..source.len() {
            for length in 1..=self.longest.min(source.len() - begin) {
                types.extend(self.by_source.get(&source[begin..begin + length]).into_iter().flatten());
            }
        }
        types.sort_unstable();
        types.dedup();
        types.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_always_comes_and_what_the_source_asks_for() {
        let pairs = [(&[10][..], 20), (&[10, 11], 21), (&[12], 22), (&[12], 99), (&[13], PAD)];
        let list = Shortlist::new([7, 5], pairs.map(|(source, target)| (source.into(), target)), 30);
        assert_eq!(*list.of(&[9, EOS], &[]), [EOS, UNK, 5, 7]);
        assert_eq!(*list.of(&[10, 12, EOS], &[8, 40]), [EOS, UNK, 5, 7, 8, 20, 22]);
        assert_eq!(*list.of(&[13, 10, 11, EOS], &[]), [EOS, UNK, 5, 7, 20, 21]);
    }
}
