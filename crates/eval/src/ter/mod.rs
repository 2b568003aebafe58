//! Translation edit rate (Snover et al., 2006), as sacreBLEU and tercom define it: the fewest insertions, deletions,
//! substitutions and shifts of word sequences found that make a hypothesis a reference, per word of the reference.
//!
//! A segment is a row of two numbers: the edits against the closest reference and the mean length of all references.
//! Rows add up to the row of a corpus.

mod edits;
mod shifts;
mod tokens;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::precision::Precision;
use crate::text::python_words;

/// The settings a TER depends on; the default is sacreBLEU's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerConfig {
    /// Undo entities and split punctuation off.
    pub normalized: bool,
    /// Remove punctuation.
    pub no_punct: bool,
    /// Apply the two above to Chinese and Japanese as well, whose characters become words of their own.
    pub asian_support: bool,
    /// Distinguish upper and lower case.
    pub case_sensitive: bool,
}

impl TerConfig {
    /// The settings as they stand in a signature.
    pub(crate) fn settings(&self) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let case = if self.case_sensitive { "mixed" } else { "lc" };
        let (norm, punct, asian) = (yes(self.normalized), yes(!self.no_punct), yes(self.asian_support));
        format!("case:{case}|tok:tercom|norm:{norm}|punct:{punct}|asian:{asian}")
    }

    /// The row of a segment.
    pub(crate) fn row<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Vec<f64> {
        let hypothesis = self.prepare(hypothesis);
        let references: Vec<String> = references.iter().map(|line| self.prepare(line.as_ref())).collect();
        let mut ids = HashMap::new();
        let mut numbered = |line| numbers(&mut ids, line);
        let hypothesis = numbered(&hypothesis);
        let (mut fewest, mut lengths) = (usize::MAX, 0);
        for reference in &references {
            let reference = numbered(reference);
            fewest = fewest.min(shifts::edits(&hypothesis, &reference));
            lengths += reference.len();
        }
        vec![fewest as f64, lengths as f64 / references.len() as f64]
    }

    /// The rate, in percent, of a row or of a sum of rows.
    pub(crate) fn score(&self, row: &[f64], precision: Precision) -> f64 {
        let (edits, length) = (row[0], row[1]);
        if length > 0.0 {
            precision.round(100.0 * precision.round(edits / length))
        } else if edits > 0.0 {
            100.0
        } else {
            0.0
        }
    }
}

/// The words of a line as numbers: equal words have equal ones.
fn numbers<'t>(ids: &mut HashMap<&'t str, u32>, line: &'t str) -> Vec<u32> {
    let mut number = |word| {
        let next = ids.len() as u32;
        *ids.entry(word).or_insert(next)
    };
    python_words(line).map(&mut number).collect()
}
