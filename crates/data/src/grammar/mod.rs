//! A synthetic parallel corpus: English numbers, dates, times and prices, and their German.
//!
//! A small grammar writes both sides at once, so that the German is right by construction and every English
//! sentence has exactly one translation. It is enough like language to be worth learning: German compounds
//! its numbers with the units first (*zweiundvierzig*), tells half hours ahead (*halb sieben*), inflects
//! ordinals and articles and puts verbs and verb prefixes last. And it is regular enough for a small model to
//! learn from a few thousand sentences.
//!
//! [`two_tasks`] is another corpus, with a cue word that decides between two tasks.
//!
//! Everything is lower-case and free of punctuation; words are separated by single blanks.

mod english;
mod german;
mod slots;
mod templates;
pub mod two_tasks;

#[cfg(test)]
mod tests;

use std::fmt;

use templates::{TEMPLATES, Template};

/// A sentence and its translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The English sentence.
    pub source: String,
    /// The German sentence.
    pub target: String,
    /// Subject of the sentence.
    pub kind: Kind,
}

/// Subject of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A bare number.
    Number,
    /// A number of people or things.
    Count,
    /// A rank, a floor, a row.
    Ordinal,
    /// Somebody's age.
    Age,
    /// A day, with or without its year.
    Date,
    /// A year.
    Year,
    /// A time of day.
    Time,
    /// A departure or an opening: a time on a day of the week.
    Schedule,
    /// Euros and cents.
    Price,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "number",
            Self::Count => "count",
            Self::Ordinal => "ordinal",
            Self::Age => "age",
            Self::Date => "date",
            Self::Year => "year",
            Self::Time => "time",
            Self::Schedule => "schedule",
            Self::Price => "price",
        })
    }
}

/// Number of different sentences of the grammar.
pub fn capacity() -> u64 {
    TEMPLATES.iter().map(Template::size).sum()
}

/// Draws this many pairs with different sources, in random order; all of [`capacity`] if that is less.
///
/// The same seed gives the same pairs, and the pairs of a smaller draw begin those of a larger one. Since no
/// source comes twice, any two parts of the result have nothing in common.
pub fn generate(pairs: usize, seed: u64) -> Vec<Pair> {
    let mut random = SplitMix64(seed);
    // Each template is walked through in an order of its own, so that nothing has to be remembered.
    let mut open: Vec<(&Template, Permutation, u64)> = TEMPLATES
        .iter()
        .map(|template| (template, Permutation::new(template.size(), &mut random), 0))
        .collect();
    let count = pairs.min(usize::try_from(capacity()).unwrap_or(usize::MAX));
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let pick = random.below(open.len());
        let (template, order, used) = &mut open[pick];
        let (source, target) = template.sentence(order.apply(*used));
        drawn.push(Pair { source, target, kind: template.kind });
        *used += 1;
        if *used == template.size() {
            open.swap_remove(pick);
        }
    }
    drawn
}

/// Steele, Lea and Flood's SplitMix64: a small generator that is the same everywhere.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// SplitMix64's output function: a bijection that leaves no pattern.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A random order of the numbers below a bound: a Feistel network over the next power of four, repeated
/// until it lands below the bound.
struct Permutation {
    bound: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(bound: u64, random: &mut SplitMix64) -> Self {
        let bits = u64::BITS - bound.saturating_sub(1).leading_zeros();
        Self { bound, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.next()) }
    }

    /// Number at this place of the order; the place must be below the bound.
    fn apply(&self, index: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut x = index;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            x = left << self.half_bits | right;
            if x < self.bound {
                return x;
            }
        }
    }
}
