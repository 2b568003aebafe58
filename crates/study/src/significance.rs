//! p-values of differences to the baseline: the paired bootstrap, from files that runs have left in their folders.
//!
//! Sentences, or stretches of a language model's text, are drawn from all seeds that both systems have, end to end. A p-value
//! says whether the test set is large enough to tell two systems apart; it says nothing about other seeds.

use std::collections::BTreeMap;
use std::path::Path;

use mae_eval::metric::{Counted, Metric};
use mae_eval::perplexity::Stretch;
use mae_eval::significance::{
    Resampling, SignificanceError, paired_bootstrap, paired_bootstrap_of_shares, paired_bootstrap_of_texts,
};

use crate::error::Result;
use crate::job::folder_name;
use crate::outputs::{PLAIN, TOKENS, read_likelihoods, read_lines};
use crate::result::RunResult;
use crate::score::{BleuConfigs, Score};
use crate::study::Study;

/// A text of fewer stretches says nothing about others.
const MIN_STRETCHES: usize = 10;

/// p over all seeds, and of each seed alone.
type PValues = (Option<f64>, BTreeMap<u64, f64>);

/// Files that runs have left to be compared by.
pub(crate) enum Evidence<'a> {
    /// Translations.
    Translations(Translations<'a>),
    /// Translations of which lines are right or not.
    Lines(Translations<'a>),
    /// Likelihoods of a language model's last text.
    Likelihoods {
        /// The study's folder.
        out: &'a Path,
        /// Name of the text.
        split: &'a str,
    },
}

/// Translations in the folders of runs, and how they are counted.
pub(crate) struct Translations<'a> {
    out: &'a Path,
    metric: Metric,
    file: &'static str,
    references: Vec<String>,
}

impl<'a> Evidence<'a> {
    /// Opens the references; `None` where there are none.
    pub(crate) fn open(study: &'a Study, out: &'a Path, score: Score) -> Result<Option<Self>> {
        if let Some(test) = &study.translation {
            let configs = BleuConfigs::of(test);
            let (lines, config) =
                if score == Score::Bleu { (PLAIN, configs.plain) } else { (TOKENS, configs.tokens) };
            let (metric, file) = (Metric::Bleu(config), lines.translations);
            let of = |references| {
                let translations = Translations { out, metric, file, references };
                match score {
                    Score::ExactMatch => Self::Lines(translations),
                    Score::Bleu | Score::TokenisedBleu | Score::Perplexity => {
                        Self::Translations(translations)
                    }
                }
            };
            return Ok(read_lines(&out.join(lines.references))?.map(of));
        }
        let last = study.language_model.as_ref().and_then(|test| test.splits.last());
        Ok(last.map(|split| Self::Likelihoods { out, split }))
    }

    /// Computes p-values from pairs of a run and the baseline's run with the same seed. Runs without files are left out.
    pub(crate) fn p_values(&self, pairs: &[(&RunResult, &RunResult)]) -> Result<PValues> {
        match self {
            Self::Translations(translations) => p_values(
                pairs,
                |run| translations.counts(run),
                |all, own| own.rows().iter().for_each(|row| all.push(row.clone(), 1)),
                of_translations,
            ),
            Self::Lines(translations) => p_values(
                pairs,
                |run| translations.right(run),
                |all, own| all.extend_from_slice(own),
                |[baseline, system]| {
                    Ok(Some(paired_bootstrap_of_shares(baseline, system, Resampling::default())?))
                },
            ),
            Self::Likelihoods { out, split } => p_values(
                pairs,
                |run| Ok(read_likelihoods(&out.join(folder_name(&run.system, run.seed)))?.remove(*split)),
                |all, own| all.extend_from_slice(own),
                |[baseline, system]| of_stretches(baseline, system),
            ),
        }
    }
}

/// Joins what `read` finds of every pair, the baseline first; `p` is `None` where it cannot be computed.
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
    /// Translations of a run, if they are those of the references.
    fn lines(&self, run: &RunResult) -> Result<Option<Vec<String>>> {
        let path = self.out.join(folder_name(&run.system, run.seed)).join(self.file);
        Ok(read_lines(&path)?.filter(|lines| lines.len() == self.references.len()))
    }

    /// For each line of a run, whether it is right.
    fn right(&self, run: &RunResult) -> Result<Option<Vec<bool>>> {
        let equal = |(line, reference): (&String, &String)| line.trim() == reference.trim();
        Ok(self.lines(run)?.map(|lines| lines.iter().zip(&self.references).map(equal).collect()))
    }

    /// Counts of a run's translations.
    fn counts(&self, run: &RunResult) -> Result<Option<Counted>> {
        let Some(lines) = self.lines(run)? else { return Ok(None) };
        let mut counted = Counted::new(self.metric);
        for (line, reference) in lines.iter().zip(&self.references) {
            counted.add(line, &[reference]).expect("each line has one reference");
        }
        Ok(Some(counted))
    }
}

/// sacreBLEU's p, but 1 for systems of the same score, and not the lowest p there is.
fn of_translations(systems: &[Counted; 2]) -> Result<Option<f64>> {
    let compared = paired_bootstrap(systems, Resampling::default())?;
    Ok(if compared[0].score == compared[1].score { Some(1.0) } else { compared[1].p_value })
}

/// p of two texts; `None` if they are too short or not the same.
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
