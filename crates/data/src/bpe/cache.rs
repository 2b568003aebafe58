//! Cache of segmented words: words repeat. All threads share one cache.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Parts of the cache, each with its own lock, so that threads seldom meet.
const SHARDS: usize = 64;
/// A part that grows beyond this many words is emptied: memory stays bounded on endless text.
const SHARD_WORDS: usize = 1 << 14;
/// Longer words are not kept.
const LONGEST: usize = 128;

/// Words and their pieces as text.
pub(crate) struct PieceCache {
    shards: Vec<Mutex<FxHashMap<Box<str>, Box<str>>>>,
}

impl Default for PieceCache {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl PieceCache {
    /// Appends the pieces of a word, from the cache or from `segment`.
    pub(crate) fn look_up(&self, word: &str, out: &mut String, segment: impl FnOnce(&mut String)) {
        if word.len() > LONGEST {
            return segment(out);
        }
        // Middle bits: the tables inside use the lowest and the highest.
        let shard = &self.shards[(FxBuildHasher.hash_one(word) >> 40) as usize % SHARDS];
        if let Some(known) = lock(shard).get(word) {
            return out.push_str(known);
        }
        let start = out.len();
        segment(out);
        let mut shard = lock(shard);
        if shard.len() >= SHARD_WORDS {
            shard.clear();
        }
        shard.insert(word.into(), out[start..].into());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot leave a half-written entry: all entries of the map are right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
