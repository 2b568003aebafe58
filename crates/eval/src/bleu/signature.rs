//! sacreBLEU's signature: everything a score depends on, in one line.

use std::fmt;

use serde::Serialize;

use super::{BleuConfig, BleuScore, Compounds};

/// The version of sacreBLEU whose results this module has been checked against, digit by digit.
///
/// It is what stands in the signatures, because it says which definition the score follows.
pub const SACREBLEU_VERSION: &str = "2.6.0";

/// Number of references of the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum References {
    /// Nothing has been counted yet.
    #[default]
    Unknown,
    /// This many each.
    Fixed(usize),
    /// Some more than others.
    Varying,
}

impl References {
    /// Combines the numbers of two parts of a corpus.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (one, another) if one == another => one,
            _ => Self::Varying,
        }
    }
}

impl fmt::Display for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("0"),
            Self::Fixed(count) => count.fmt(f),
            Self::Varying => f.write_str("var"),
        }
    }
}

/// The settings of a score and the number of its references; it displays as sacreBLEU prints it:
/// `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Signature {
    /// The settings.
    pub config: BleuConfig,
    /// The number of references.
    pub references: References,
}

impl BleuConfig {
    /// The settings as they stand in a signature.
    pub(crate) fn settings(&self) -> String {
        let Self { tokenizer, lowercase, smoothing, effective_order, compounds } = self;
        let case = if *lowercase { "lc" } else { "mixed" };
        let eff = if *effective_order { "yes" } else { "no" };
        let compounds = if *compounds == Compounds::Split { "|compounds:split" } else { "" };
        format!("case:{case}|eff:{eff}|tok:{tokenizer}|smooth:{smoothing}{compounds}")
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nrefs:{}|{}|version:{SACREBLEU_VERSION}", self.references, self.config.settings())
    }
}

impl BleuScore {
    /// The line sacreBLEU prints, with this many digits after the point of the score (its command line
    /// has one, its Python interface two):
    /// `BLEU|nrefs:1|… = 20.8 54.4/26.6/14.9/8.7 (BP = 1.000 ratio = 1.026 hyp_len = 62880 ref_len = 61287)`.
    #[must_use]
    pub fn sacrebleu_line(&self, digits: usize) -> String {
        format!("BLEU|{} = {:.digits$} {}", self.signature, self.score, self.details())
    }

    /// Precisions, penalty and lengths, as they follow the score in sacreBLEU's line.
    pub(crate) fn details(&self) -> String {
        let [p1, p2, p3, p4] = self.precisions;
        let (bp, ratio) = (self.bp, self.ratio());
        format!(
            "{p1:.1}/{p2:.1}/{p3:.1}/{p4:.1} (BP = {bp:.3} ratio = {ratio:.3} hyp_len = {} ref_len = {})",
            self.sys_len, self.ref_len
        )
    }
}
