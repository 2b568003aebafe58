//! Metrics of translations, equal to the printed digit to the tools that papers report.
//!
//! ```
//! use mae::metrics;
//!
//! let (found, wanted) = (["the cat sat on a mat ."], ["the cat sat on the mat ."]);
//! assert!(metrics::bleu(&found, &wanted)? > 40.0);
//! assert!(metrics::chrf(&found, &wanted)? > 60.0);
//! assert!(metrics::ter(&found, &wanted)? < 20.0);
//! # Ok::<(), mae::Error>(())
//! ```
//!
//! These three have sacreBLEU's defaults. Other settings, signatures and statistics of single lines are in
//! [`metric`], [`mod@bleu`] and [`mod@chrf`], confidence intervals and paired tests in [`significance`].

pub use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats};
pub use mae_eval::chrf::ChrfConfig;
pub use mae_eval::metric::{Counted, Metric};
pub use mae_eval::significance::{Comparison, Interval, Resampling};
pub use mae_eval::ter::TerConfig;
pub use mae_eval::{bleu, chrf, metric, significance, ter};

use crate::error::{Error, Result};

/// BLEU of translations, 0 to 100, with one reference each.
pub fn bleu<H: AsRef<str>, R: AsRef<str>>(translations: &[H], references: &[R]) -> Result<f64> {
    score(Metric::Bleu(BleuConfig::default()), translations, references)
}

/// chrF of translations, 0 to 100, with one reference each.
pub fn chrf<H: AsRef<str>, R: AsRef<str>>(translations: &[H], references: &[R]) -> Result<f64> {
    score(Metric::Chrf(ChrfConfig::default()), translations, references)
}

/// TER of translations in per cent, less is better, with one reference each.
pub fn ter<H: AsRef<str>, R: AsRef<str>>(translations: &[H], references: &[R]) -> Result<f64> {
    score(Metric::Ter(TerConfig::default()), translations, references)
}

fn score<H: AsRef<str>, R: AsRef<str>>(metric: Metric, translations: &[H], references: &[R]) -> Result<f64> {
    Ok(counted(metric, translations, references)?.score())
}

/// Counts the statistics of translations with one reference each, for scores, signatures and significance
/// tests.
pub fn counted<H: AsRef<str>, R: AsRef<str>>(
    metric: Metric,
    translations: &[H],
    references: &[R],
) -> Result<Counted> {
    if translations.len() != references.len() {
        let (found, wanted) = (references.len(), translations.len());
        return Err(Error::Lengths { what: "references", found, wanted });
    }
    let mut counted = Counted::new(metric);
    for (translation, reference) in translations.iter().zip(references) {
        counted.add(translation.as_ref(), &[reference]).expect("each translation has one reference");
    }
    Ok(counted)
}
