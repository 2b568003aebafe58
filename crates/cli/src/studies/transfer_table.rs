//! Table and costs of a transfer study: methods × parts of the data.

use std::collections::BTreeSet;

use mae_study::RunResult;
use mae_study::points::Point;
use mae_study::transfer::Plan;
use mae_train::artifacts;

use super::table::{NONE, spread};
use crate::columns::duration;

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

/// Costs of the methods, on the largest part that is done.
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

/// Notes on the table.
pub fn notes<'a>(plan: &Plan, results: impl Iterator<Item = &'a RunResult>) -> Vec<String> {
    let test = &plan.translation;
    let score = if test.reference.is_empty() {
        "tokenised (multi-bleu on whitespace tokens, pieces joined)"
    } else {
        "sacreBLEU 13a of the detokenised text"
    };
    // Where nothing is trained, the parent is measured.
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

/// The checkpoint of a run that was measured, in words.
fn measured(run: &RunResult) -> &'static str {
    let by_bleu = run.config.get("train.best_checkpoint_metric").is_some_and(|metric| metric == "\"bleu\"");
    match run.model.as_str() {
        artifacts::BEST if by_bleu => "the checkpoint with the highest development BLEU",
        artifacts::BEST => BEST_LOSS,
        artifacts::LAST => "the last checkpoint, for there was no validation",
        _ => "the mean of the last checkpoints",
    }
}
