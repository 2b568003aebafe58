//! Whether the test set is large enough to tell a system from the baseline: the paired bootstrap, from what runs have left in
//! their folders.
//!
//! What is drawn are sentences, or stretches of a language model's text, of all seeds that both systems have, end to end. A
//! p-value says nothing about other seeds.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use mae_eval::metric::{Counted, Metric};
use mae_eval::perplexity::Stretch;
use mae_eval::significance::{Resampling, SignificanceError, paired_bootstrap, paired_bootstrap_of_texts};

use super::compare::{Score, folder_name};
use super::measure::bleu_configs;
use super::references::{PLAIN, TOKENS, lines_of};
use super::result::RunResult;
use super::study::Study;

/// The file of likelihoods in a language model's run.
pub const LIKELIHOODS: &str = "likelihoods.json";
/// What is in it: the stretches of every text, by its name.
pub type Likelihoods = BTreeMap<String, Vec<Stretch>>;
/// Tokens at least in a stretch. The tokens of a line belong together, and many lines are headings or empty.
pub const STRETCH_TOKENS: u64 = 200;
/// A text of fewer stretches says nothing about others.
pub const MIN_STRETCHES: usize = 10;

/// p over all seeds, and of each seed alone.
type PValues = (Option<f64>, BTreeMap<u64, f64>);

/// What runs have left to be compared by.
pub enum Kept<'a> {
    /// Translations.
    Translations(Translations<'a>),
    /// Likelihoods of a language model's last text.
    Likelihoods {
        /// The study's folder.
        out: &'a Path,
        /// The text.
        split: &'a str,
    },
}

/// Translations in the folders of runs, and how they are counted.
pub struct Translations<'a> {
    out: &'a Path,
    metric: Metric,
    file: &'static str,
    references: Vec<String>,
}

impl<'a> Kept<'a> {
    /// None where there is nothing to compare with.
    pub fn open(study: &'a Study, out: &'a Path, score: Score) -> Result<Option<Self>> {
        if let Some(test) = &study.translation {
            let [tokenised, plain] = bleu_configs(test);
            let ([reference, file], config) =
                if score == Score::Bleu { (PLAIN, plain) } else { (TOKENS, tokenised) };
            let lines = lines_of(&out.join(reference))?;
            let metric = Metric::Bleu(config);
            let kept = |references| Self::Translations(Translations { out, metric, file, references });
            return Ok(lines.map(kept));
        }
        let last = study.language_model.as_ref().and_then(|test| test.splits.last());
        Ok(last.map(|split| Self::Likelihoods { out, split }))
    }

    /// Of pairs of a run and the baseline's run with the same seed. Runs that have left nothing are left out.
    pub fn p_values(&self, pairs: &[(&RunResult, &RunResult)]) -> Result<PValues> {
        match self {
            Self::Translations(kept) => p_values(
                pairs,
                |run| kept.counts(run),
                |all, own| own.rows().iter().for_each(|row| all.push(row.clone(), 1)),
                of_translations,
            ),
            Self::Likelihoods { out, split } => p_values(
                pairs,
                |run| Ok(likelihoods(&out.join(folder_name(&run.system, run.seed)))?.remove(*split)),
                |all, own| all.extend_from_slice(own),
                |[baseline, system]| of_stretches(baseline, system),
            ),
        }
    }
}

/// Takes together what `read` finds of every pair, the baseline first; `p` is none of what cannot be compared.
fn p_values<T>(
    pairs: &[(&RunResult, &RunResult)],
    read: impl Fn(&RunResult) -> Result<Option<T>>,
    append: impl Fn(&mut T, &T),
    p: impl Fn(&[T; 2]) -> Result<Option<f64>>,
) -> Result<PValues> {
    let mut all: Option<[T; 2]> = None;
    let mut by_seed = BTreeMap::new();
    for (run, base) in pairs {
        let (Some(base), Some(own)) = (read(base)?, read(run)?) else { continue };
        let two = [base, own];
        let Some(alone) = p(&two)? else { continue };
        by_seed.insert(run.seed, alone);
        match &mut all {
            None => all = Some(two),
            Some(all) => all.iter_mut().zip(&two).for_each(|(all, own)| append(all, own)),
        }
    }
    Ok((all.map(|all| p(&all)).transpose()?.flatten(), by_seed))
}

impl Translations<'_> {
    /// BLEU's counts of a run's translations.
    fn counts(&self, run: &RunResult) -> Result<Option<Counted>> {
        let path = self.out.join(folder_name(&run.system, run.seed)).join(self.file);
        let Some(lines) = lines_of(&path)?.filter(|lines| lines.len() == self.references.len()) else {
            return Ok(None);
        };
        let mut counted = Counted::new(self.metric);
        for (line, reference) in lines.iter().zip(&self.references) {
            counted.add(line, &[reference]).with_context(|| format!("{}", path.display()))?;
        }
        Ok(Some(counted))
    }
}

/// sacreBLEU's p; but systems of the same score get 1, and not the lowest p there is.
fn of_translations(systems: &[Counted; 2]) -> Result<Option<f64>> {
    let compared = paired_bootstrap(systems, Resampling::default())?;
    Ok(if compared[0].score == compared[1].score { Some(1.0) } else { compared[1].p_value })
}

/// Those of a run's folder; nothing if it has none.
fn likelihoods(run: &Path) -> Result<Likelihoods> {
    let path = run.join(LIKELIHOODS);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is damaged; without it there is no p, so remove it or the run's folder",
                path.display()
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Likelihoods::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// None for texts that are too short or not the same.
fn of_stretches(baseline: &[Stretch], system: &[Stretch]) -> Result<Option<f64>> {
    if baseline.len() < MIN_STRETCHES {
        return Ok(None);
    }
    match paired_bootstrap_of_texts(baseline, system, Resampling::default()) {
        Ok(p) => Ok(Some(p)),
        Err(SignificanceError::Mismatch) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use mae_eval::bleu::BleuConfig;

    use super::*;

    #[test]
    fn systems_of_the_same_score_are_not_told_apart() {
        let references = ["a b c d e", "f g h i j", "k l m n o"];
        let counted = |lines: [&str; 3]| {
            let mut counted = Counted::new(Metric::Bleu(BleuConfig::multi_bleu()));
            lines.iter().zip(references).for_each(|(line, reference)| {
                counted.add(line, &[reference]).unwrap();
            });
            counted
        };
        let p = |a: [&str; 3], b: [&str; 3]| of_translations(&[counted(a), counted(b)]).unwrap().unwrap();
        let good = ["a b c d e", "f g h i x", "k l m n o"];
        assert_eq!(p(good, good), 1.0);
        // Different words, but no BLEU either way.
        assert_eq!(p(["x", "y", "z"], ["a x", "y y", "z z"]), 1.0);
        assert!(p(good, ["a b c d x", "x x x x x", "k l x n o"]) < 1.0);
    }
}
