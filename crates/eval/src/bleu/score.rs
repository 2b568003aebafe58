//! From counts to a score.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{BleuConfig, BleuError, Compounds, MAX_ORDER, Signature};
use crate::precision::Precision;

/// The logarithm of a precision of zero, as all the reference implementations have it.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// Substitute for an n-gram precision of zero (Chen and Cherry, 2014).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoothing {
    /// The k-th order without a match counts as `1 / 2^k` of a match (NIST's mteval; the default).
    #[default]
    Exp,
    /// Nothing: one order without a match makes the score zero.
    None,
    /// An order without a match counts as this much of a match (customarily 0.1).
    Floor(f64),
    /// This much is added to the matches and to the total of every order above one (customarily 1).
    AddK(f64),
}

impl fmt::Display for Smoothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exp => f.write_str("exp"),
            Self::None => f.write_str("none"),
            Self::Floor(value) => write!(f, "floor[{value:.2}]"),
            Self::AddK(value) => write!(f, "add-k[{value:.2}]"),
        }
    }
}

impl FromStr for Smoothing {
    type Err = BleuError;

    fn from_str(text: &str) -> Result<Self, BleuError> {
        let unknown = || BleuError::UnknownSmoothing(text.to_owned());
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value.parse::<f64>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
            return Err(BleuError::SmoothingValue(value.to_string()));
        }
        match (name, value) {
            ("exp", None) => Ok(Self::Exp),
            ("none", None) => Ok(Self::None),
            ("floor", value) => Ok(Self::Floor(value.unwrap_or(0.1))),
            ("add-k", value) => Ok(Self::AddK(value.unwrap_or(1.0))),
            _ => Err(unknown()),
        }
    }
}

/// A BLEU score and what it was made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BleuScore {
    /// The score, 0 to 100.
    pub score: f64,
    /// The precisions of the orders one to four, 0 to 100, after smoothing.
    pub precisions: [f64; MAX_ORDER],
    /// The matched n-grams of each order, before smoothing.
    pub counts: [u64; MAX_ORDER],
    /// The n-grams of each order in the hypotheses, before smoothing.
    pub totals: [u64; MAX_ORDER],
    /// The brevity penalty, 0 to 1.
    pub bp: f64,
    /// The words of all hypotheses.
    pub sys_len: u64,
    /// The words of all references, of the closest one where there are several.
    pub ref_len: u64,
    /// The settings the score was made under.
    pub signature: Signature,
}

impl BleuScore {
    /// The score of these counts, with sacreBLEU's order of operations.
    #[must_use]
    pub(super) fn compute(
        counts: [u64; MAX_ORDER],
        totals: [u64; MAX_ORDER],
        sys_len: u64,
        ref_len: u64,
        signature: Signature,
    ) -> Self {
        let bp = brevity_penalty(sys_len, ref_len);
        let (matches, ngrams) = (counts.map(|count| count as f64), totals.map(|total| total as f64));
        let (score, precisions) = combine(matches, ngrams, bp, &signature.config, Precision::Double);
        Self { score, precisions, counts, totals, bp, sys_len, ref_len, signature }
    }

    /// The score of summed rows of [`BleuStats::to_row`](super::BleuStats::to_row).
    pub(crate) fn of_row(row: &[f64], signature: Signature) -> Self {
        let field = |i: usize| row[i] as u64;
        let counts = std::array::from_fn(|order| field(2 + order));
        let totals = std::array::from_fn(|order| field(2 + MAX_ORDER + order));
        Self::compute(counts, totals, field(0), field(1), signature)
    }

    /// Hypothesis length over reference length; 0 without references.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.ref_len == 0 { 0.0 } else { self.sys_len as f64 / self.ref_len as f64 }
    }

    /// The line `multi-bleu.perl` prints, to the digit:
    /// `BLEU = 34.60, 68.1/42.5/28.5/19.5 (BP=1.000, ratio=1.006, hyp_len=83262, ref_len=82787)`.
    ///
    /// Like that script it knows no smoothing. Where the script dies of a division by zero (only empty
    /// hypotheses), the line says 0.
    #[must_use]
    pub fn multi_bleu_line(&self) -> String {
        if self.ref_len == 0 {
            return format!("{}BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)", self.label());
        }
        let (label, body) = (self.label(), self.unsmoothed_body());
        format!("{label}BLEU = {body}, hyp_len={}, ref_len={})", self.sys_len, self.ref_len)
    }

    /// The line `fairseq-score` and `fairseq-generate` print, to the digit:
    /// `BLEU4 = 40.83, 67.5/46.9/34.4/25.5 (BP=1.000, ratio=1.006, syslen=83262, reflen=82787)`.
    ///
    /// Like those programs it knows no smoothing.
    #[must_use]
    pub fn fairseq_line(&self) -> String {
        let (label, body) = (self.label(), self.unsmoothed_body());
        format!("{label}BLEU4 = {body}, syslen={}, reflen={})", self.sys_len, self.ref_len)
    }

    /// Warning before a tokenised score that is not comparable with others.
    fn label(&self) -> &'static str {
        match self.signature.config.compounds {
            Compounds::Whole => "",
            Compounds::Split => "compound-split ",
        }
    }

    /// Score, precisions, penalty and ratio without smoothing, with multi-bleu's order of operations.
    fn unsmoothed_body(&self) -> String {
        let [p1, p2, p3, p4] = std::array::from_fn(|order| match self.totals[order] {
            0 => 0.0,
            total => self.counts[order] as f64 / total as f64,
        });
        let logs = floored_ln(p1) + floored_ln(p2) + floored_ln(p3) + floored_ln(p4);
        let score = self.bp * (logs / MAX_ORDER as f64).exp();
        let [p1, p2, p3, p4] = [100.0 * p1, 100.0 * p2, 100.0 * p3, 100.0 * p4];
        let (score, bp, ratio) = (100.0 * score, self.bp, self.ratio());
        format!("{score:.2}, {p1:.1}/{p2:.1}/{p3:.1}/{p4:.1} (BP={bp:.3}, ratio={ratio:.3}")
    }
}

/// The penalty for hypotheses that are shorter than their references.
fn brevity_penalty(sys_len: u64, ref_len: u64) -> f64 {
    if sys_len >= ref_len {
        1.0
    } else if sys_len == 0 {
        0.0
    } else {
        (1.0 - ref_len as f64 / sys_len as f64).exp()
    }
}

/// The score of a summed row in single precision, as sacreBLEU scores a resampled corpus.
pub(crate) fn resampled_score(row: &[f64], config: &BleuConfig) -> f64 {
    let bp = brevity_penalty(row[0] as u64, row[1] as u64);
    let counts = std::array::from_fn(|order| row[2 + order]);
    let totals = std::array::from_fn(|order| row[2 + MAX_ORDER + order]);
    combine(counts, totals, bp, config, Precision::Single).0
}

/// The score, and the smoothed precisions (0 to 100) that it is the mean of.
fn combine(
    counts: [f64; MAX_ORDER],
    totals: [f64; MAX_ORDER],
    bp: f64,
    config: &BleuConfig,
    precision: Precision,
) -> (f64, [f64; MAX_ORDER]) {
    if counts == [0.0; MAX_ORDER] {
        return (0.0, [0.0; MAX_ORDER]);
    }
    let (precisions, orders) = smooth(counts, totals, config, precision);
    let logs: f64 = precisions[..orders].iter().map(|&precision| floored_ln(precision)).sum();
    (bp * (logs / orders as f64).exp(), precisions)
}

/// The smoothed precisions (0 to 100) and how many of them the score is the mean of.
fn smooth(
    counts: [f64; MAX_ORDER],
    totals: [f64; MAX_ORDER],
    config: &BleuConfig,
    precision: Precision,
) -> ([f64; MAX_ORDER], usize) {
    let rounded = |x: f64| precision.round(x);
    let mut precisions = [0.0; MAX_ORDER];
    let mut orders = MAX_ORDER;
    let mut halvings = 1.0;
    for order in 0..MAX_ORDER {
        let (mut count, mut total) = (counts[order], totals[order]);
        if let (Smoothing::AddK(k), 1..) = (config.smoothing, order) {
            count = rounded(count + rounded(k));
            total = rounded(total + rounded(k));
        }
        if total == 0.0 {
            break;
        }
        if config.effective_order {
            orders = order + 1;
        }
        precisions[order] = match config.smoothing {
            _ if count != 0.0 => rounded(rounded(100.0 * count) / total),
            Smoothing::Exp => {
                halvings *= 2.0;
                rounded(100.0 / rounded(halvings * total))
            }
            Smoothing::Floor(value) => rounded(rounded(100.0 * value) / total),
            Smoothing::None | Smoothing::AddK(_) => 0.0,
        };
    }
    (precisions, orders)
}

/// The natural logarithm with a very low floor instead of minus infinity.
fn floored_ln(x: f64) -> f64 {
    if x == 0.0 { LOG_OF_ZERO } else { x.ln() }
}
