//! Points of a transfer study: methods × parts of the data.

use std::collections::BTreeMap;

use mae_eval::analysis::one_expert::Spread;
use serde::Serialize;

use crate::result::RunResult;
use crate::transfer::Plan;

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

/// Returns the points of a plan from results, by the names of their folders.
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
