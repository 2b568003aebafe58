//! The page of a study: its tables, its figure, and how its runs learned.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::compare::{Comparison, Score, folder_name, value};
use super::result::RunResult;
use super::study::Study;
use super::table;
use crate::page::charts::PageChart;
use crate::page::{self, page};
use crate::runs::curves::{Against, Curve, Series};
use crate::runs::dots::{self, Dots};
use crate::runs::{Run, read_all};

/// What the page of a study shows.
#[derive(Serialize)]
pub struct StudyPage<'a> {
    /// What it is about.
    pub title: &'a str,
    /// Sentences that come before the numbers.
    pub lead: Vec<String>,
    /// The tables.
    pub tables: Vec<PageTable<'a>>,
    /// The figure, drawn.
    pub svg: Option<&'a str>,
    /// Learning curves.
    pub charts: Vec<PageChart>,
    /// Sentences that come after the numbers.
    pub notes: Vec<String>,
}

impl StudyPage<'_> {
    /// The page, which needs no other file.
    pub fn html(&self) -> Result<String> {
        page(self.title, page::STUDY, self)
    }
}

/// A table of the page.
#[derive(Serialize)]
pub struct PageTable<'a> {
    name: &'a str,
    headings: &'a [String],
    rows: &'a [Vec<String>],
}

impl<'a> PageTable<'a> {
    /// A table whose first row has the headings.
    pub fn new(name: &'a str, rows: &'a [Vec<String>]) -> Self {
        Self { name, headings: &rows[0], rows: &rows[1..] }
    }
}

/// The page of a comparison; runs that are not done yet show how far they have learned.
pub fn of_study(
    (study, out): (&Study, &Path),
    comparison: &Comparison,
    (runs, missing): (&[RunResult], &[String]),
) -> Result<String> {
    let [scores, costs] = [table::scores(study, comparison), table::runs(comparison)];
    let svg = figure(study, comparison.score, runs);
    let mut notes = table::notes(study, comparison);
    notes.extend(table::not_done(missing));
    let done = runs.iter().map(|run| folder_name(&run.system, run.seed));
    let charts = curves(study, out, done.chain(missing.iter().cloned()), &mut notes);
    let page = StudyPage {
        title: &study.title,
        lead: table::lead(study),
        tables: vec![PageTable::new("Scores", &scores), PageTable::new("Runs", &costs)],
        svg: svg.as_deref(),
        charts,
        notes,
    };
    page.html()
}

/// The main number of every run by system, with the paper's.
fn figure(study: &Study, score: Score, runs: &[RunResult]) -> Option<String> {
    let rows: Vec<Dots> = study
        .systems
        .iter()
        .map(|system| {
            let own = runs.iter().filter(|run| run.system == system.name);
            let dot = |run: &RunResult| Some((format!("seed {}", run.seed), value(study, score, run)?));
            Dots { name: system.name.clone(), values: own.filter_map(dot).collect(), beside: system.paper }
        })
        .collect();
    let label = match (&study.translation, &study.language_model) {
        (Some(test), _) => format!("{}, {} set", score.label(), test.split),
        (_, Some(test)) => {
            let text = test.splits.last().map_or("last", String::as_str);
            format!("perplexity per token, {text} text (lower is better)")
        }
        _ => score.label().to_owned(),
    };
    dots::draw(&rows, &label, "the paper's number")
}

/// What runs have logged of the development set, one colour per system. A log that cannot be read is noted.
fn curves(
    study: &Study,
    out: &Path,
    names: impl Iterator<Item = String>,
    notes: &mut Vec<String>,
) -> Vec<PageChart> {
    // The runs that have a log, and the numbers of their systems.
    let (mut runs, mut systems): (Vec<Run>, Vec<usize>) = (Vec::new(), Vec::new());
    for name in names {
        let system = name.rsplit_once('-').map_or("", |(system, _)| system);
        let number = study.systems.iter().position(|known| known.name == system);
        let (Some(number), true) = (number, out.join(&name).join("log.jsonl").exists()) else { continue };
        match read_all(&[out.join(&name)]) {
            Ok(read) => {
                systems.extend(read.iter().map(|_| number));
                runs.extend(read);
            }
            Err(error) => notes.push(format!("{name} has no learning curve: {error:#}.")),
        }
    }
    let of_system = |(curve, against): (Curve, Against)| {
        let mut named = vec![false; study.systems.len()];
        let mut series: Vec<Series> = curve.series(&runs, against);
        for line in &mut series {
            let number = systems[line.run];
            let first = !std::mem::replace(&mut named[number], true);
            line.run = number;
            line.legend = first.then(|| study.systems[number].name.clone());
        }
        series
    };
    let shown = [
        (Curve::DevLoss, Curve::DevLoss.label()),
        (Curve::Bleu, Curve::Bleu.label()),
        (Curve::GateEntropy, "gate entropy of the development set, nats"),
    ];
    let mut charts = Vec::new();
    for (curve, label) in shown {
        for against in Against::ALL {
            charts.extend(PageChart::draw(label, against, of_system((curve, against))));
        }
    }
    charts
}
