//! What a transfer study has found: methods × parts of the data, as a table and as the paper's figure.

use std::collections::{BTreeMap, BTreeSet};

use mae_eval::analysis::one_expert::Spread;
use mae_train::checkpoint;
use serde::Serialize;

use super::result::RunResult;
use super::table::{NONE, spread};
use super::transfer::Plan;
use crate::columns::duration;
use crate::runs::chart::draw;
use crate::runs::curves::Series;

/// A method on a part of the data. Means and sample standard deviations are over seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The method.
    pub method: String,
    /// The part, in per cent; none where nothing is trained.
    pub fraction: Option<f64>,
    /// The seeds that are done.
    pub seeds: Vec<u64>,
    /// sacreBLEU where the plan has a reference for it, else tokenised BLEU.
    pub bleu: Option<Spread>,
    /// Parameters that were trained.
    pub trained_parameters: u64,
    /// Updates made, mean.
    pub updates: f64,
    /// The update after which the development loss was lowest, mean.
    pub best_update: Option<f64>,
    /// Seconds of a run, mean.
    pub wall_seconds: f64,
}

/// The points of a plan from the results that are there, by the names of their folders.
pub fn points(plan: &Plan, results: &BTreeMap<String, RunResult>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for method in &plan.methods {
        let cells: Vec<_> = plan.cells().into_iter().filter(|cell| cell.method.name == method.name).collect();
        let mut fractions: Vec<Option<f64>> = cells.iter().map(|cell| cell.fraction).collect();
        fractions.sort_by(|a, b| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)));
        fractions.dedup();
        for fraction in fractions {
            let own: Vec<&RunResult> = cells
                .iter()
                .filter(|cell| cell.fraction == fraction)
                .filter_map(|cell| results.get(&cell.name()))
                .collect();
            let Some(first) = own.first() else { continue };
            let bleu =
                |run: &&RunResult| run.translation.as_ref().map(|t| t.bleu.unwrap_or(t.bleu_tokenised));
            let mean = |of: &dyn Fn(&RunResult) -> Option<f64>| {
                Spread::of(&own.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
                    .map(|spread| spread.mean)
            };
            points.push(Point {
                method: method.name.clone(),
                fraction,
                seeds: own.iter().map(|run| run.seed).collect(),
                bleu: Spread::of(&own.iter().filter_map(bleu).collect::<Vec<_>>()),
                trained_parameters: first.trained_parameters,
                updates: mean(&|run| Some(run.updates as f64)).unwrap_or(0.0),
                best_update: mean(&|run| run.best_update.map(|update| update as f64)),
                wall_seconds: mean(&|run| Some(run.wall_seconds)).unwrap_or(0.0),
            });
        }
    }
    points
}

/// BLEU of methods and parts.
pub fn table(plan: &Plan, points: &[Point]) -> Vec<Vec<String>> {
    let mut fractions = plan.fractions.clone();
    fractions.sort_by(f64::total_cmp);
    let mut heading = vec!["method".to_owned()];
    heading.extend(fractions.iter().map(|fraction| format!("{fraction} %")));
    heading.push("paper, 100 %".into());
    let mut rows = vec![heading];
    for method in &plan.methods {
        let cell = |fraction: f64| {
            let at = |point: &&Point| {
                point.method == method.name && point.fraction.is_none_or(|other| other == fraction)
            };
            points.iter().find(at).map_or(NONE.into(), |point| spread(point.bleu, point.seeds.len(), 2))
        };
        let mut row = vec![method.name.clone()];
        row.extend(fractions.iter().map(|fraction| cell(*fraction)));
        row.push(method.paper.map_or(NONE.into(), |paper| format!("{paper:.1}")));
        rows.push(row);
    }
    rows
}

/// What the methods cost, on the largest part that is done.
pub fn costs(plan: &Plan, points: &[Point]) -> Vec<Vec<String>> {
    let heading = ["method", "part", "parameters trained", "updates", "best after", "time per run"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for method in &plan.methods {
        let own = points.iter().filter(|point| point.method == method.name);
        let Some(point) = own.max_by(|a, b| a.fraction.unwrap_or(0.0).total_cmp(&b.fraction.unwrap_or(0.0)))
        else {
            continue;
        };
        rows.push(vec![
            method.name.clone(),
            point.fraction.map_or(NONE.into(), |fraction| format!("{fraction} %")),
            point.trained_parameters.to_string(),
            format!("{:.0}", point.updates),
            point.best_update.map_or(NONE.into(), |update| format!("{update:.0}")),
            duration(point.wall_seconds),
        ]);
    }
    rows
}

/// The paper's figure: BLEU against the part of the training set; a dashed line for what is not trained. None before
/// the first result.
pub fn figure(plan: &Plan, points: &[Point]) -> Option<String> {
    let ends = plan.fractions.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], fraction| {
        [low.min(*fraction), high.max(*fraction)]
    });
    let line = |(number, method): (usize, &super::transfer::Method)| {
        let mut places = Vec::new();
        for point in points.iter().filter(|point| point.method == method.name) {
            let Some(bleu) = point.bleu else { continue };
            match point.fraction {
                Some(fraction) => places.push((fraction, bleu.mean)),
                None => places.extend(ends.map(|end| (end, bleu.mean))),
            }
        }
        let dashed = method.free.is_none();
        let name = method.name.clone();
        Series { legend: Some(name.clone()), name, run: number, dashed, points: places }
    };
    let series: Vec<Series> = plan.methods.iter().enumerate().map(line).collect();
    let series: Vec<Series> = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    let label = format!("BLEU, {} set", plan.translation.split);
    draw(&series, "per cent of the training set", &label, 0.0).map(|chart| chart.svg)
}

/// What the table shows.
pub fn notes<'a>(plan: &Plan, results: impl Iterator<Item = &'a RunResult>) -> Vec<String> {
    let test = &plan.translation;
    let score = if test.reference.is_empty() {
        "tokenised (multi-bleu on whitespace tokens, pieces joined)"
    } else {
        "sacreBLEU 13a of the detokenised text"
    };
    // What is measured where nothing is trained is the parent.
    let models: BTreeSet<&str> = results.filter(|run| run.trained_parameters > 0).map(measured).collect();
    let models = if models.is_empty() { BTreeSet::from([BEST_LOSS]) } else { models };
    let mut notes = vec![format!(
        "BLEU of the {} set, {score}, beam {}, of {}; columns: part of the training set. ±: sample standard deviation over \
         seeds.",
        test.split,
        test.beam,
        models.into_iter().collect::<Vec<_>>().join(" or ")
    )];
    notes.extend([&plan.paper, &plan.caveat].into_iter().filter(|note| !note.is_empty()).cloned());
    notes
}

const BEST_LOSS: &str = "the checkpoint with the lowest development loss";

/// Which checkpoint of a run was measured, in words.
fn measured(run: &RunResult) -> &'static str {
    let by_bleu = run.config.get("train.best_checkpoint_metric").is_some_and(|metric| metric == "\"bleu\"");
    match run.model.as_str() {
        checkpoint::BEST if by_bleu => "the checkpoint with the highest development BLEU",
        checkpoint::BEST => BEST_LOSS,
        checkpoint::LAST => "the last checkpoint, for there was no validation",
        _ => "the mean of the last checkpoints",
    }
}
