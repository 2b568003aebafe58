//! chrF and chrF++ (Popović, 2015 and 2017), as sacreBLEU defines them: the F-score of character n-grams, and of
//! word n-grams with `++`.
//!
//! A segment is a row of three counts for each order: the n-grams of the hypothesis, those of the reference and the
//! matches. Rows add up to the row of a corpus.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::precision::Precision;
use crate::text::python_words;

/// Value of a ratio with nothing to count, with [`Orders::All`].
const EPSILON: f64 = 1e-16;

/// Orders that the score is the mean of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Orders {
    /// Those that both sides have n-grams of; precisions and recalls are averaged.
    #[default]
    Effective,
    /// All, with tiny values for empty ones; F-scores are averaged (chrF++.py, NLTK, Moses).
    All,
}

/// The settings a chrF score depends on; the default is sacreBLEU's chrF2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChrfConfig {
    /// The longest character n-grams.
    pub char_order: usize,
    /// The longest word n-grams: 0 for chrF, 2 for chrF++.
    pub word_order: usize,
    /// Weight of recall over precision.
    pub beta: u32,
    /// Lower-case both sides first.
    pub lowercase: bool,
    /// Keep white space in character n-grams.
    pub whitespace: bool,
    /// Orders that count.
    pub orders: Orders,
}

impl Default for ChrfConfig {
    fn default() -> Self {
        let orders = Orders::default();
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false, whitespace: false, orders }
    }
}

impl ChrfConfig {
    /// The name with its parameters: `chrF2`, `chrF2++`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    /// The settings as they stand in a signature.
    pub(crate) fn settings(&self) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let case = if self.lowercase { "lc" } else { "mixed" };
        let (eff, space) = (yes(self.orders == Orders::Effective), yes(self.whitespace));
        format!("case:{case}|eff:{eff}|nc:{}|nw:{}|space:{space}", self.char_order, self.word_order)
    }

    /// The row of a segment: that of the reference it scores best against.
    pub(crate) fn row<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Vec<f64> {
        let hypothesis = Pieces::new(self, hypothesis);
        let mut best = (-1.0, vec![0.0; 3 * (self.char_order + self.word_order)]);
        for reference in references {
            let row = self.compare(&hypothesis, &Pieces::new(self, reference.as_ref()));
            let score = self.score(&row, Precision::Double);
            if score > best.0 {
                best = (score, row);
            }
        }
        best.1
    }

    fn compare(&self, hypothesis: &Pieces, reference: &Pieces) -> Vec<f64> {
        let mut row = Vec::with_capacity(3 * (self.char_order + self.word_order));
        for order in 1..=self.char_order {
            row.extend(matches(&hypothesis.chars, &reference.chars, order));
        }
        for order in 1..=self.word_order {
            row.extend(matches(&hypothesis.words, &reference.words, order));
        }
        row
    }

    /// The score, 0 to 100, of a row or of a sum of rows.
    pub(crate) fn score(&self, row: &[f64], precision: Precision) -> f64 {
        let rounded = |x: f64| precision.round(x);
        let factor = f64::from(self.beta).powi(2);
        let f_score = |precision: f64, recall: f64| {
            let weighted = rounded(rounded(factor * precision) + recall);
            if weighted > 0.0 {
                rounded(rounded(rounded((1.0 + factor) * precision) * recall) / weighted)
            } else {
                EPSILON
            }
        };
        let (mut total, mut precisions, mut recalls, mut effective) = (0.0, 0.0, 0.0, 0.0);
        for counts in row.chunks_exact(3) {
            let [in_hypothesis, in_reference, matched] = [counts[0], counts[1], counts[2]];
            let share = |of: f64| if of > 0.0 { rounded(matched / of) } else { EPSILON };
            let (precision, recall) = (share(in_hypothesis), share(in_reference));
            total = rounded(total + f_score(precision, recall));
            if in_hypothesis > 0.0 && in_reference > 0.0 {
                precisions = rounded(precisions + precision);
                recalls = rounded(recalls + recall);
                effective += 1.0;
            }
        }
        let f_score = match self.orders {
            Orders::All => {
                let orders = (self.char_order + self.word_order) as f64;
                return rounded(rounded(100.0 * total) / orders);
            }
            Orders::Effective if rounded(precisions + recalls) == 0.0 => 0.0,
            Orders::Effective => f_score(rounded(precisions / effective), rounded(recalls / effective)),
        };
        rounded(100.0 * f_score)
    }
}

/// Units of a line's n-grams.
struct Pieces {
    chars: Vec<char>,
    words: Vec<String>,
}

impl Pieces {
    fn new(config: &ChrfConfig, line: &str) -> Self {
        let lowered = config.lowercase.then(|| line.to_lowercase());
        let line = lowered.as_deref().unwrap_or(line);
        let chars = match config.whitespace {
            true => line.chars().collect(),
            false => python_words(line).flat_map(str::chars).collect(),
        };
        let words = if config.word_order > 0 { words(line) } else { Vec::new() };
        Self { chars, words }
    }
}

/// The words of a line. A mark of ASCII at the end of a word stands alone, else one at its beginning.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let is_mark = |c: char| c.is_ascii_punctuation();
    for word in python_words(line) {
        let (mut chars, mut reversed) = (word.chars(), word.chars().rev());
        let (first, last) = (chars.next(), reversed.next());
        if chars.as_str().is_empty() {
            words.push(word.to_owned());
        } else if let Some(mark) = last.filter(|&c| is_mark(c)) {
            words.extend([word[..word.len() - 1].to_owned(), mark.to_string()]);
        } else if let Some(mark) = first.filter(|&c| is_mark(c)) {
            words.extend([mark.to_string(), word[1..].to_owned()]);
        } else {
            words.push(word.to_owned());
        }
    }
    words
}

/// Numbers of n-grams of this order in the hypothesis, in the reference, and in both. The first is
/// zero where the reference has none.
fn matches<T: Eq + Hash>(hypothesis: &[T], reference: &[T], order: usize) -> [f64; 3] {
    let ngrams = |length: usize| (length + 1).saturating_sub(order) as f64;
    let in_reference = ngrams(reference.len());
    if in_reference == 0.0 {
        return [0.0; 3];
    }
    let mut left: HashMap<&[T], u32> = HashMap::with_capacity(reference.len());
    reference.windows(order).for_each(|ngram| *left.entry(ngram).or_insert(0) += 1);
    let mut matched = 0.0;
    for ngram in hypothesis.windows(order) {
        if let Some(left) = left.get_mut(ngram).filter(|left| **left > 0) {
            *left -= 1;
            matched += 1.0;
        }
    }
    [ngrams(hypothesis.len()), in_reference, matched]
}
