//! The page of a study: its tables, its figure, and learning curves of its runs.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::table;
use crate::page::charts::PageChart;
use crate::page::{self, page};
use mae_study::compare::Comparison;
use mae_study::figures::of_study::{self, LearningCurves};
use mae_study::job::folder_name;
use mae_study::{RunResult, Study};

/// Contents of a study's page.
#[derive(Serialize)]
pub struct StudyPage<'a> {
    /// Title.
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
    let svg = of_study::scores(study, comparison.score, runs);
    let mut notes = table::notes(study, comparison);
    notes.extend(table::not_done(missing));
    let done = runs.iter().map(|run| folder_name(&run.system, run.seed));
    let names = done.chain(missing.iter().cloned());
    let curves = of_study::learning_curves(study, out, names, &mut notes);
    let draw = |curves: LearningCurves| PageChart::of(curves.label, curves.against, curves.series);
    let more = [("Gates", table::gates(comparison)), ("Tags", table::tags(comparison))];
    let mut tables = vec![PageTable::new("Scores", &scores), PageTable::new("Runs", &costs)];
    tables.extend(more.iter().filter_map(|(name, rows)| Some(PageTable::new(name, rows.as_ref()?))));
    let page = StudyPage {
        title: &study.title,
        lead: table::lead(study),
        tables,
        svg: svg.as_deref(),
        charts: curves.into_iter().filter_map(draw).collect(),
        notes,
    };
    page.html()
}
