//! Figures of a study: its scores as dots, and the learning curves of its runs.

use std::path::Path;

use mae_train::artifacts;
use mae_train::history::History;

use super::curves::{Against, Curve, Series};
use super::dots::{self, Dots};
use crate::result::RunResult;
use crate::score::{Score, value};
use crate::study::Study;

/// Lines of one chart.
pub struct LearningCurves {
    /// Name of the curve, with its unit.
    pub label: &'static str,
    /// The axis.
    pub against: Against,
    /// One line per run; runs of one system have one colour.
    pub series: Vec<Series>,
}

/// Draws the score of every run by system, with the paper's number. `None` without any score.
pub fn scores(study: &Study, score: Score, runs: &[RunResult]) -> Option<String> {
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

/// Returns what runs of these names have logged of the development set. A log that cannot be read is noted.
pub fn learning_curves(
    study: &Study,
    out: &Path,
    names: impl Iterator<Item = String>,
    notes: &mut Vec<String>,
) -> Vec<LearningCurves> {
    // The runs that have a log, and the numbers of their systems.
    let (mut runs, mut systems): (Vec<History>, Vec<usize>) = (Vec::new(), Vec::new());
    for name in names {
        let system = name.rsplit_once('-').map_or("", |(system, _)| system);
        let number = study.systems.iter().position(|known| known.name == system);
        let (Some(number), true) = (number, out.join(&name).join(artifacts::LOG).exists()) else { continue };
        match History::read(&out.join(&name)) {
            Ok(run) => {
                systems.push(number);
                runs.push(run);
            }
            Err(error) => notes.push(format!("{name} has no learning curve: {error}.")),
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
        (Curve::GateInformation, "I(expert; input) of the development set, nats"),
    ];
    let mut curves = Vec::new();
    for (curve, label) in shown {
        for against in Against::ALL {
            curves.push(LearningCurves { label, against, series: of_system((curve, against)) });
        }
    }
    curves
}
