//! Pieces by their bytes: all pieces that a text begins with, in one walk.

/// No value and no child.
const NONE: u32 = u32::MAX;

/// A trie over bytes. Children of a node lie side by side, in the order of their bytes.
#[derive(Default)]
pub(super) struct Trie {
    nodes: Vec<Node>,
}

struct Node {
    value: u32,
    first: u32,
    children: u16,
    byte: u8,
}

/// A place in a [`Trie`].
#[derive(Clone, Copy)]
pub(super) struct Place(u32);

impl Trie {
    /// Builds a trie from keys, which are not empty and differ, and their values.
    pub(super) fn new<'a>(keys: impl IntoIterator<Item = (&'a [u8], u32)>) -> Self {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable();
        let mut trie = Self::default();
        if keys.is_empty() {
            return trie;
        }
        trie.nodes.push(Node { value: NONE, first: 0, children: 0, byte: 0 });
        // (node, its keys, its depth), level by level.
        let mut level = vec![(0, 0..keys.len())];
        let mut depth = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for (node, range) in level {
                trie.nodes[node].first = trie.nodes.len() as u32;
                let mut at = range.start;
                while at < range.end {
                    let Some(&byte) = keys[at].0.get(depth) else {
                        trie.nodes[node].value = keys[at].1;
                        at += 1;
                        continue;
                    };
                    let same = keys[at..range.end].partition_point(|(key, _)| key[depth] == byte);
                    trie.nodes[node].children += 1;
                    next.push((trie.nodes.len(), at..at + same));
                    trie.nodes.push(Node { value: NONE, first: 0, children: 0, byte });
                    at += same;
                }
            }
            level = next;
            depth += 1;
        }
        trie
    }

    /// The place before any byte; `None` if there are no keys.
    pub(super) fn root(&self) -> Option<Place> {
        (!self.nodes.is_empty()).then_some(Place(0))
    }

    /// The place after one more byte.
    pub(super) fn step(&self, place: Place, byte: u8) -> Option<Place> {
        let node = &self.nodes[place.0 as usize];
        let (first, n) = (node.first as usize, usize::from(node.children));
        let children = &self.nodes[first..first + n];
        let found = match n {
            0..=8 => children.iter().position(|child| child.byte == byte),
            // All bytes in order, as under most roots.
            _ => children.binary_search_by_key(&byte, |child| child.byte).ok(),
        }?;
        Some(Place((first + found) as u32))
    }

    /// Value of the key that ends at a place.
    pub(super) fn value(&self, place: Place) -> Option<u32> {
        Some(self.nodes[place.0 as usize].value).filter(|&value| value != NONE)
    }

    /// Length of the longest key that `text` begins with.
    pub(super) fn longest(&self, text: &[u8]) -> Option<usize> {
        let mut place = self.root()?;
        let mut longest = None;
        for (i, &byte) in text.iter().enumerate() {
            let Some(next) = self.step(place, byte) else { break };
            place = next;
            if self.value(place).is_some() {
                longest = Some(i + 1);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_nothing_else_are_found() {
        let keys = ["a", "ab", "abc", "b", "日", "日本", "x"];
        let trie = Trie::new(keys.iter().enumerate().map(|(i, key)| (key.as_bytes(), i as u32)));
        let get = |text: &str| {
            let mut place = trie.root().unwrap();
            for byte in text.bytes() {
                place = trie.step(place, byte)?;
            }
            trie.value(place)
        };
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(get(key), Some(i as u32));
        }
        for other in ["", "c", "abcd", "bc", "日日"] {
            assert_eq!(get(other), None);
        }
        assert_eq!(trie.longest("abx".as_bytes()), Some(2));
        assert_eq!(trie.longest("zz".as_bytes()), None);
        assert!(Trie::new([]).root().is_none());
    }
}
