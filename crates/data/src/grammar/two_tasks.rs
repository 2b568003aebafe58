//! Two tasks that one rule cannot serve: a corpus on which gates must learn, if they can learn at all.
//!
//! The first word of a source is a cue. After *alpha* the target keeps the order and maps words by f; after *beta* it
//! reverses the order and maps them by g. f and g are random orders of the same words, so that nothing but the cue tells
//! what a word means and where it goes.

use super::SplitMix64;

/// A task, marked by its cue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Keeps the order and maps words by f.
    Keep,
    /// Reverses the order and maps words by g.
    Reverse,
}

impl Task {
    /// The cue: the first word of a source.
    pub fn cue(self) -> &'static str {
        match self {
            Self::Keep => "alpha",
            Self::Reverse => "beta",
        }
    }
}

/// A sentence and what its task makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The cue and the words.
    pub source: String,
    /// The words of the target.
    pub target: String,
    /// The task.
    pub task: Task,
}

/// Consonants and vowels of which words are made.
const CONSONANTS: [&str; 12] = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t"];
const VOWELS: [&str; 5] = ["a", "e", "i", "o", "u"];
/// Number of words.
const WORDS: usize = CONSONANTS.len() * VOWELS.len();
/// Words of the shortest and of the longest sentence.
const LENGTHS: [usize; 2] = [6, 16];

/// Draws pairs; the same seed gives the same pairs. The maps f and g belong to the seed.
pub fn generate(pairs: usize, seed: u64) -> Vec<Pair> {
    let mut random = SplitMix64(seed);
    let maps = [shuffled(&mut random), shuffled(&mut random)];
    let word = |number: usize| [CONSONANTS[number / VOWELS.len()], VOWELS[number % VOWELS.len()]].concat();
    let draw = |_| {
        let length = LENGTHS[0] + random.below(LENGTHS[1] - LENGTHS[0] + 1);
        let words: Vec<usize> = (0..length).map(|_| random.below(WORDS)).collect();
        let task = [Task::Keep, Task::Reverse][random.below(2)];
        let mapped = words.iter().map(|&number| word(maps[task as usize][number]) + "n");
        let target: Vec<String> = match task {
            Task::Keep => mapped.collect(),
            Task::Reverse => mapped.rev().collect(),
        };
        let source: Vec<String> =
            std::iter::once(task.cue().to_owned()).chain(words.iter().map(|&number| word(number))).collect();
        Pair { source: source.join(" "), target: target.join(" "), task }
    };
    (0..pairs).map(draw).collect()
}

/// A random order of the words.
fn shuffled(random: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..WORDS).collect();
    for last in (1..WORDS).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_task_is_a_map_of_words_and_an_order() {
        let pairs = generate(2_000, 7);
        assert_eq!(pairs, generate(3_000, 7)[..2_000]);
        assert_ne!(pairs, generate(2_000, 8));
        let mut maps: BTreeMap<(Task, &str), &str> = BTreeMap::new();
        for pair in &pairs {
            let (source, target): (Vec<&str>, Vec<&str>) =
                (pair.source.split(' ').collect(), pair.target.split(' ').collect());
            assert_eq!(source[0], pair.task.cue());
            assert!((LENGTHS[0]..=LENGTHS[1]).contains(&target.len()) && source.len() == target.len() + 1);
            for (i, word) in source[1..].iter().enumerate() {
                let place = if pair.task == Task::Keep { i } else { target.len() - 1 - i };
                let known = maps.entry((pair.task, word)).or_insert(target[place]);
                assert_eq!(*known, target[place], "{word}");
            }
        }
        assert_eq!(maps.len(), 2 * WORDS, "both tasks use all words");
        let differing = maps.iter().filter(|((_, word), to)| maps[&(Task::Keep, *word)] != **to).count();
        assert!(differing > WORDS * 9 / 10, "f and g differ");
        let keep = pairs.iter().filter(|pair| pair.task == Task::Keep).count();
        assert!((900..1_100).contains(&keep), "{keep}");
    }
}
