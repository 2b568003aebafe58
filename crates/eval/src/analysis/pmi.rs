//! Words that go with an expert: pointwise mutual information,
//! PMI(word, expert) = ln p(word, expert) / (p(word)·p(expert)), in nats.
//!
//! PMI is large for rare words by chance alone, so lists are ranked by the log-likelihood ratio of Dunning (1993):
//! G² = 2·Σ k·ln(k/expected) over the four cells of (word or not) × (expert or not). Words of a sentence share its
//! leader, so G² is no test by itself: compare it with that of gates before their training.
//!
//! Running words are counted. A word of a sentence counts for the expert that leads the sentence's gate; where
//! gates are per position, for the expert that leads where the word's first piece is predicted.

use std::collections::HashMap;

use serde::Serialize;

/// Words by number.
#[derive(Clone, Debug, Default)]
pub struct Words {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Words {
    /// The number of a word, a new one if it was never seen.
    pub fn number(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(word.to_owned(), number);
        self.names.push(word.to_owned());
        number
    }
}

/// Counts of each word with each expert.
#[derive(Clone, Debug)]
pub struct Together {
    experts: usize,
    /// `[words, E]`, as many words as were seen.
    counts: Vec<u64>,
}

/// A word that comes with an expert more often than by chance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Association {
    /// The word, pieces joined.
    pub word: String,
    /// G²: evidence that word and expert go together.
    pub llr: f64,
    /// In nats.
    pub pmi: f64,
    /// Times that the word came with the expert.
    pub together: u64,
    /// Times that the word came at all.
    pub count: u64,
}

impl Together {
    /// Nothing counted yet.
    pub fn new(experts: usize) -> Self {
        Self { experts, counts: Vec::new() }
    }

    /// A word came with an expert.
    pub fn add(&mut self, word: u32, expert: usize) {
        let place = word as usize * self.experts + expert;
        if place >= self.counts.len() {
            self.counts.resize((word as usize + 1) * self.experts, 0);
        }
        self.counts[place] += 1;
    }

    /// For each expert, the words with the largest log-likelihood ratio, those that come at least `min_count` times; `most`
    /// of them, and none whose PMI is not above 0. Of equal ones the more frequent first, then by spelling.
    pub fn associations(&self, words: &Words, min_count: u64, most: usize) -> Vec<Vec<Association>> {
        let all: u64 = self.counts.iter().sum();
        let rows = || self.counts.chunks_exact(self.experts).zip(&words.names);
        let of_expert = |e: usize| {
            let with_expert: u64 = rows().map(|(row, _)| row[e]).sum();
            let mut found: Vec<Association> = rows()
                .filter_map(|(row, word)| {
                    let (together, count) = (row[e], row.iter().sum::<u64>());
                    let expected = count as f64 * with_expert as f64 / all as f64;
                    let pmi = (together as f64 / expected).ln();
                    let tells = together > 0 && count >= min_count && pmi > 0.0;
                    let llr = log_likelihood_ratio(together, count, with_expert, all);
                    tells.then(|| Association { word: word.clone(), llr, pmi, together, count })
                })
                .collect();
            found.sort_by(|a, b| {
                b.llr.total_cmp(&a.llr).then(b.count.cmp(&a.count)).then_with(|| a.word.cmp(&b.word))
            });
            found.truncate(most);
            found
        };
        (0..self.experts).map(of_expert).collect()
    }
}

/// G² of a word that came `count` times, `together` of them with an expert that led `with_expert` of `all` running words.
fn log_likelihood_ratio(together: u64, count: u64, with_expert: u64, all: u64) -> f64 {
    let (rows, columns) = ([count, all - count], [with_expert, all - with_expert]);
    let cells = [together, count - together, with_expert - together, all + together - count - with_expert];
    let term = |i: usize| {
        let expected = rows[i / 2] as f64 * columns[i % 2] as f64 / all as f64;
        let seen = cells[i] as f64;
        if seen > 0.0 { seen * (seen / expected).ln() } else { 0.0 }
    };
    // Below 0 by rounding only.
    (2.0 * (0..4).map(term).sum::<f64>()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 words in all: "a" 4 times with expert 0; "b" 3 times with expert 1; "c" once with 0 and twice with 1.
    #[test]
    fn pmi_follows_its_formula() {
        let (mut words, mut together) = (Words::default(), Together::new(3));
        for (word, expert, times) in [("a", 0, 4), ("b", 1, 3), ("c", 0, 1), ("c", 1, 2)] {
            let number = words.number(word);
            (0..times).for_each(|_| together.add(number, expert));
        }
        assert_eq!(words.number("a"), 0);
        let found = together.associations(&words, 1, 9);
        let of = |e: usize| found[e].iter().map(|a| a.word.as_str()).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), (vec!["a"], vec!["b", "c"], vec![]));
        assert!((found[0][0].pmi - 2_f64.ln()).abs() < 1e-12, "p = 0.4 / (0.4 · 0.5)");
        assert!((found[1][1].pmi - (0.2_f64 / (0.3 * 0.5)).ln()).abs() < 1e-12);
        assert_eq!((found[1][1].together, found[1][1].count), (2, 3));
        // "a": 4 of 4 with expert 0, which leads 5 of 10; the others: 1 of 6.
        let wanted = 2.0 * (4.0 * 2f64.ln() + (1.0 / 3f64).ln() + 5.0 * (5.0 / 3f64).ln());
        assert!((found[0][0].llr - wanted).abs() < 1e-12, "{}", found[0][0].llr);
    }

    /// A word that came twice, by chance with the same expert, tells less than one that came often.
    #[test]
    fn lists_are_ranked_by_evidence() {
        let (mut words, mut together) = (Words::default(), Together::new(2));
        for (word, expert, times) in [("rare", 0, 2), ("often", 0, 80), ("often", 1, 20), ("rest", 1, 100)] {
            let number = words.number(word);
            (0..times).for_each(|_| together.add(number, expert));
        }
        let found = &together.associations(&words, 1, 9)[0];
        assert_eq!(found.iter().map(|a| a.word.as_str()).collect::<Vec<_>>(), ["often", "rare"]);
        assert!(found[0].pmi < found[1].pmi);
    }

    #[test]
    fn rare_words_are_cut_off() {
        let (mut words, mut together) = (Words::default(), Together::new(2));
        for (word, expert, times) in [("rare", 0, 2), ("often", 0, 5), ("other", 1, 5)] {
            let number = words.number(word);
            (0..times).for_each(|_| together.add(number, expert));
        }
        let found = together.associations(&words, 3, 9);
        assert_eq!(found[0].iter().map(|a| a.word.as_str()).collect::<Vec<_>>(), ["often"]);
        assert_eq!(together.associations(&words, 1, 1)[0].len(), 1);
        assert!(Together::new(2).associations(&words, 1, 9).iter().all(Vec::is_empty));
    }
}
