//! BLEU, chrF or TER behind one face: a row of statistics for each segment, rows that add up, and a score of
//! their sum.
//!
//! ```
//! # use mae_eval::metric::{Counted, Metric};
//! # use mae_eval::chrf::ChrfConfig;
//! let mut counted = Counted::new(Metric::Chrf(ChrfConfig::default()));
//! counted.add("The cat sat on a mat.", &["The cat sat on the mat."])?;
//! assert_eq!(counted.line(2), "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0 = 65.80");
//! # Ok::<(), mae_eval::metric::NoReference>(())
//! ```

use thiserror::Error;

use crate::bleu::{
    BleuConfig, BleuScore, BleuStats, References, SACREBLEU_VERSION, Signature, resampled_score,
};
use crate::chrf::{ChrfConfig, Orders};
use crate::precision::Precision;
use crate::significance::{Interval, Method, Resampling};
use crate::ter::TerConfig;

/// A segment came without any reference.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a hypothesis needs at least one reference")]
pub struct NoReference;

/// A metric of sacreBLEU and its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// Precision of word n-grams.
    Bleu(BleuConfig),
    /// F-score of character n-grams.
    Chrf(ChrfConfig),
    /// Edits per word; less is better.
    Ter(TerConfig),
}

impl Metric {
    /// The name as sacreBLEU prints it: `BLEU`, `chrF2++`, `TER`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Bleu(_) => "BLEU".to_owned(),
            Self::Chrf(config) => config.name(),
            Self::Ter(_) => "TER".to_owned(),
        }
    }

    /// The statistics of one segment; those of many add up.
    pub fn row<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<Vec<f64>, NoReference> {
        if references.is_empty() {
            return Err(NoReference);
        }
        match self {
            Self::Bleu(config) => {
                let mut stats = BleuStats::new(*config);
                stats.add(hypothesis, references).map_err(|_| NoReference)?;
                Ok(stats.to_row())
            }
            Self::Chrf(config) => Ok(config.row(hypothesis, references)),
            Self::Ter(config) => Ok(config.row(hypothesis, references)),
        }
    }

    /// The score of a resampled corpus, and the precision that sacreBLEU has it in.
    pub(crate) fn resampled_score(&self, row: &[f64]) -> (f64, Precision) {
        let exact = |exact: bool| if exact { Precision::Double } else { Precision::Single };
        match self {
            Self::Bleu(config) => (resampled_score(row, config), Precision::Double),
            Self::Chrf(config) => {
                let score = config.score(row, Precision::Single);
                (score, exact(config.orders == Orders::Effective && score == 0.0))
            }
            Self::Ter(config) => (config.score(row, Precision::Single), exact(row[1] == 0.0)),
        }
    }

    fn settings(&self) -> String {
        match self {
            Self::Bleu(config) => config.settings(),
            Self::Chrf(config) => config.settings(),
            Self::Ter(config) => config.settings(),
        }
    }
}

/// A metric's statistics of every segment of a corpus.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    metric: Metric,
    references: References,
    rows: Vec<Vec<f64>>,
}

impl Counted {
    /// Nothing yet.
    #[must_use]
    pub fn new(metric: Metric) -> Self {
        Self { metric, references: References::Unknown, rows: Vec::new() }
    }

    /// Counts one segment: a hypothesis and its references (raw lines).
    pub fn add<R: AsRef<str>>(&mut self, hypothesis: &str, references: &[R]) -> Result<(), NoReference> {
        let row = self.metric.row(hypothesis, references)?;
        self.push(row, references.len());
        Ok(())
    }

    /// Adds a segment that [`Metric::row`] has counted, with this many references.
    pub fn push(&mut self, row: Vec<f64>, references: usize) {
        self.rows.push(row);
        self.references = self.references.and(References::Fixed(references));
    }

    /// The metric.
    #[must_use]
    pub fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The statistics of each segment.
    #[must_use]
    pub fn rows(&self) -> &[Vec<f64>] {
        &self.rows
    }

    /// The statistics of the corpus.
    fn sum(&self) -> Vec<f64> {
        let mut rows = self.rows.iter();
        let Some(mut sum) = rows.next().cloned() else { return Vec::new() };
        for row in rows {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        sum
    }

    /// The score of the corpus; 0 before the first segment.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.score_of(&self.sum())
    }

    /// The score of a corpus with these statistics.
    pub(crate) fn score_of(&self, sum: &[f64]) -> f64 {
        match &self.metric {
            _ if sum.is_empty() => 0.0,
            Metric::Bleu(config) => self.bleu_of(*config, sum).score,
            Metric::Chrf(config) => config.score(sum, Precision::Double),
            Metric::Ter(config) => config.score(sum, Precision::Double),
        }
    }

    /// Parts of the score, where it is BLEU.
    #[must_use]
    pub fn bleu(&self) -> Option<BleuScore> {
        match self.metric {
            Metric::Bleu(config) if !self.rows.is_empty() => Some(self.bleu_of(config, &self.sum())),
            _ => None,
        }
    }

    fn bleu_of(&self, config: BleuConfig, sum: &[f64]) -> BleuScore {
        BleuScore::of_row(sum, Signature { config, references: self.references })
    }

    /// sacreBLEU's signature, with the resampling where there was one.
    #[must_use]
    pub fn signature(&self, resampling: Option<Resampling>) -> String {
        let resampling = resampling.map_or(String::new(), |r| {
            let method = if r.method == Method::Bootstrap { "bs" } else { "ar" };
            format!("|{method}:{}|seed:{}", r.samples, r.seed)
        });
        let (references, settings) = (self.references, self.metric.settings());
        format!("nrefs:{references}{resampling}|{settings}|version:{SACREBLEU_VERSION}")
    }

    /// The line sacreBLEU prints, with this many digits after the point.
    #[must_use]
    pub fn line(&self, digits: usize) -> String {
        self.compose(digits, None)
    }

    /// The same with the confidence interval that a resampling gave.
    #[must_use]
    pub fn confidence_line(&self, digits: usize, resampling: Resampling, interval: Interval) -> String {
        self.compose(digits, Some((resampling, interval)))
    }

    fn compose(&self, digits: usize, confidence: Option<(Resampling, Interval)>) -> String {
        let signature = self.signature(confidence.map(|(resampling, _)| resampling));
        let mut line = format!("{}|{signature} = {:.digits$}", self.metric.name(), self.score());
        // sacreBLEU is silent about an interval around zero.
        if let Some((_, Interval { mean, half_width })) =
            confidence.filter(|(_, interval)| interval.mean > 0.0)
        {
            line += &format!(" (μ = {mean:.digits$} ± {half_width:.digits$})");
        }
        if let Some(bleu) = self.bleu() {
            line += &format!(" {}", bleu.details());
        }
        line
    }
}
