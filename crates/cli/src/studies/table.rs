//! A comparison as tables on a terminal.

use std::collections::BTreeSet;
use std::io::{self, Write};

use mae_eval::analysis::one_expert::Spread;

use crate::columns::{duration, print_columns};
use mae_study::Study;
use mae_study::compare::{Comparison, Row};
use mae_study::outputs::STRETCH_TOKENS;
use mae_study::score::Score;

/// Cell without a value.
pub const NONE: &str = "–";

/// Prints the tables, with the caveat as caption. `missing` are the runs that are not done yet.
pub fn print(
    out: &mut impl Write,
    study: &Study,
    comparison: &Comparison,
    missing: &[String],
) -> io::Result<()> {
    writeln!(out, "{}\n", study.title)?;
    columns(out, &scores(study, comparison))?;
    writeln!(out)?;
    columns(out, &runs(comparison))?;
    writeln!(out)?;
    for table in [gates(comparison), tags(comparison)].into_iter().flatten() {
        columns(out, &table)?;
        writeln!(out)?;
    }
    let notes = notes(study, comparison).into_iter().chain(lead(study)).chain(not_done(missing));
    notes.into_iter().try_for_each(|note| writeln!(out, "{note}"))
}

/// Meaning of the paper's numbers, and reasons why ours cannot be compared with them.
pub(super) fn lead(study: &Study) -> Vec<String> {
    [&study.paper, &study.caveat].into_iter().filter(|words| !words.is_empty()).cloned().collect()
}

/// Names of runs that are missing, if any are.
pub(super) fn not_done(missing: &[String]) -> Option<String> {
    (!missing.is_empty()).then(|| format!("Not done yet ({}): {}.", missing.len(), missing.join(", ")))
}

fn columns(out: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    print_columns(out, rows.iter())
}

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// `27.74 ± 0.12`; without a deviation for a single value.
pub fn spread(value: Option<Spread>, count: usize, digits: usize) -> String {
    match value {
        None => NONE.into(),
        Some(Spread { mean, .. }) if count < 2 => format!("{mean:.digits$}"),
        Some(Spread { mean, deviation }) => format!("{mean:.digits$} ± {deviation:.digits$}"),
    }
}

fn signed(value: Option<Spread>, count: usize) -> String {
    match value {
        None => NONE.into(),
        Some(Spread { mean, .. }) if count < 2 => format!("{mean:+.2}"),
        Some(Spread { mean, deviation }) => format!("{mean:+.2} ± {deviation:.2}"),
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(NONE.into(), |value| format!("{value:.digits$}"))
}

/// Scores of systems, below a row of headings.
pub(super) fn scores(study: &Study, comparison: &Comparison) -> Vec<Vec<String>> {
    let splits = study.language_model.as_ref().map_or(&[][..], |test| &test.splits[..]);
    let (difference, paper) = (format!("− {}", comparison.baseline), "paper".to_owned());
    let mut heading = headings(&["system", "seeds"]);
    match comparison.score {
        Score::Bleu => heading.extend(headings(&["BLEU", "tokenised"])),
        Score::TokenisedBleu => heading.push("tokenised BLEU".into()),
        Score::ExactMatch => heading.extend(headings(&["exact match, %", "tokenised BLEU"])),
        Score::Perplexity => heading.extend(splits.iter().map(|split| format!("ppl {split}"))),
    }
    heading.extend([difference.clone(), "p".into(), paper, format!("paper {difference}")]);
    let row = |row: &Row| {
        let count = row.seeds.len();
        let mut cells = vec![row.system.clone(), count.to_string()];
        match comparison.score {
            Score::Bleu => {
                cells.extend([spread(row.bleu, count, 2), spread(row.bleu_tokenised, count, 2)]);
            }
            Score::ExactMatch => {
                cells.extend([spread(row.exact_match, count, 1), spread(row.bleu_tokenised, count, 2)]);
            }
            Score::TokenisedBleu => cells.push(spread(row.bleu_tokenised, count, 2)),
            Score::Perplexity => {
                cells.extend(splits.iter().map(|split| spread(row.perplexity.get(split).copied(), count, 2)));
            }
        }
        let digits = if comparison.score == Score::Perplexity { 2 } else { 1 };
        cells.extend([
            signed(row.difference, count),
            number(row.p_value, 3),
            number(row.paper, digits),
            row.paper_difference.map_or(NONE.into(), |difference| format!("{difference:+.digits$}")),
        ]);
        cells
    };
    std::iter::once(heading).chain(comparison.rows.iter().map(row)).collect()
}

/// Figures of their runs, below a row of headings.
pub(super) fn runs(comparison: &Comparison) -> Vec<Vec<String>> {
    let mut heading = headings(&["system", "dev loss", "gate entropy", "one expert", "random expert"]);
    heading.extend(headings(&["parameters", "updates", "time per run"]));
    let row = |row: &Row| {
        let count = row.seeds.len();
        let mut cells =
            vec![row.system.clone(), spread(row.dev_loss, count, 3), spread(row.gate_entropy, count, 3)];
        cells.extend([signed(row.argmax, count), signed(row.random, count)]);
        let whole = |value: Option<f64>| value.map_or(NONE.into(), |value| format!("{value:.0}"));
        cells.extend([
            whole(row.parameters.map(|parameters| parameters as f64)),
            whole(row.updates.map(|updates| updates.mean)),
            row.wall_seconds.map_or(NONE.into(), |seconds| duration(seconds.mean)),
        ]);
        cells
    };
    std::iter::once(heading).chain(comparison.rows.iter().map(row)).collect()
}

/// Gates beside those that runs began with, below a row of headings; none where they were not measured.
pub(super) fn gates(comparison: &Comparison) -> Option<Vec<Vec<String>>> {
    let measured = |row: &&Row| row.untrained_entropy.is_some() || row.oracle.is_some();
    let rows: Vec<&Row> = comparison.rows.iter().filter(measured).collect();
    let mut heading = headings(&["system", "G steps", "entropy", "untrained", "I(expert; sentence)"]);
    heading.extend(headings(&["untrained", "uniform gates", "oracle, bits"]));
    let row = |row: &&Row| {
        let count = row.seeds.len();
        let updates = row.gate_updates.map_or(NONE.into(), |updates| format!("{:.0}", updates.mean));
        let mut cells = vec![row.system.clone(), updates];
        cells.extend([row.gate_entropy, row.untrained_entropy].map(|value| spread(value, count, 3)));
        cells.extend([row.information, row.untrained_information].map(|value| spread(value, count, 4)));
        let oracle = row.oracle.map_or(NONE.into(), |oracle| format!("{:+.3}", oracle.mean));
        cells.extend([signed(row.uniform_gates, count), oracle]);
        cells
    };
    (!rows.is_empty()).then(|| std::iter::once(heading).chain(rows.iter().map(row)).collect())
}

/// Scores by tag and what gates tell of tags, below a row of headings; none where sentences have no tags.
pub(super) fn tags(comparison: &Comparison) -> Option<Vec<Vec<String>>> {
    let rows = &comparison.rows;
    let names: BTreeSet<&String> = rows.iter().flat_map(|row| row.by_tag.keys()).collect();
    let mut heading = headings(&["system"]);
    heading.extend(names.iter().map(|name| (*name).clone()));
    heading.extend(headings(&["largest I(tag; expert)", "untrained", "H(tag)"]));
    let row = |row: &Row| {
        let count = row.seeds.len();
        let mut cells = vec![row.system.clone()];
        cells.extend(names.iter().map(|&name| spread(row.by_tag.get(name).copied(), count, 2)));
        cells.extend(
            [row.tag_information, row.untrained_tag_information].map(|value| spread(value, count, 3)),
        );
        cells.push(number(row.tag_entropy, 3));
        cells
    };
    (!names.is_empty()).then(|| std::iter::once(heading).chain(rows.iter().map(row)).collect())
}

/// Notes on the columns.
pub(super) fn notes(study: &Study, comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    let baseline = &comparison.baseline;
    if let Some(test) = &study.translation {
        if comparison.score == Score::Bleu {
            let case = if test.lowercase { ", in lower case" } else { "" };
            notes.push(format!("BLEU: sacreBLEU 13a of the detokenised {} set{case}.", test.split));
        }
        let compounds = if test.compound_split { ", words split at their dashes" } else { "" };
        notes.push(format!(
            "Tokenised: multi-bleu on whitespace tokens, pieces joined{compounds}. Beam {}, length penalty {}.",
            test.beam, test.lenpen
        ));
        notes.push(format!(
            "− {baseline}: difference in {}, seed by seed; p: paired bootstrap (1000 resamples) over the translations of all \
             common seeds, end to end; 1 where scores are equal.",
            comparison.score.label()
        ));
        if test.draws > 0 {
            notes.push(format!(
                "One expert, random expert: tokenised BLEU with the gates' favourite, and with random experts (mean of {} draws), \
                 less that of the mixture.",
                test.draws
            ));
        }
    }
    if let Some(test) = &study.language_model {
        notes.push(format!(
            "Perplexity per token, blocks of {} tokens of which {} are context; lower is better.",
            test.tokens_per_sample, test.context_window
        ));
        let last = test.splits.last().map_or("last", String::as_str);
        notes.push(format!(
            "− {baseline}: difference in perplexity of the {last} text, seed by seed; p: paired bootstrap (1000 resamples) over \
             stretches of the text, whole lines of together at least {STRETCH_TOKENS} tokens, of all common seeds, end to end."
        ));
        if test.draws > 0 {
            notes.push(format!(
                "One expert, random expert: perplexity per word of the last text with the gates' favourite, and with random experts \
                 (mean of {} draws), less that of the mixture.",
                test.draws
            ));
        }
    }
    if let Some(test) = study.translation.as_ref().filter(|_| gates(comparison).is_some()) {
        notes.push(
            "Gates: nats, means over encoder layers, development set. Untrained: the gates that the run began with, on the same \
             inputs. Uniform gates: the score when all experts weigh alike, less that with the learned gates."
                .into(),
        );
        if !test.tags.is_empty() {
            notes.push(format!(
                "By tag (the files {0}.{1} and valid.{1}): {2}; I(tag; expert) in nats, of the attention where it is largest.",
                test.split,
                test.tags,
                comparison.score.label()
            ));
        }
        if test.oracle > 0 {
            notes.push(format!(
                "Oracle: for each of {} sentences and each attention the best expert or the mixture, chosen by the odd target tokens \
                 one attention after the other; loss of the even tokens less that of the mixture.",
                test.oracle
            ));
        }
    }
    let entropy = if study.translation.is_some() { "mean over encoder layers" } else { "mean over layers" };
    notes.push(format!(
        "Dev loss: bits per token, of the measured model. Gate entropy: nats, {entropy}, development set. ±: sample standard \
         deviation over seeds. Time: training, validating and saving, over all sessions."
    ));
    for row in comparison.rows.iter().filter(|row| row.collapsed > 0) {
        notes.push(format!(
            "{}: in {} of {} runs a few experts take nearly everything in some attention (see result.json).",
            row.system,
            row.collapsed,
            row.seeds.len()
        ));
    }
    notes.extend(comparison.remarks.iter().cloned());
    notes
}
