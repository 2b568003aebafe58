//! Figures of a study: its scores as dots, scores against what gates have learned, what gates tell about the tags of lines,
//! and the learning curves of its runs.

use std::path::Path;

use mae_train::artifacts;
use mae_train::history::History;

use super::chart;
use super::curves::{Against, Curve, Series};
use super::dots::{self, Dots};
use super::scatter::{self, Cloud};
use crate::result::RunResult;
use crate::score::{Score, value};
use crate::study::Study;

/// Lines of one chart.
pub struct LearningCurves {
    /// Short name.
    pub name: &'static str,
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
    dots::draw(&rows, &label(study, score), "the paper's number")
}

/// Name of a score, with its text.
fn label(study: &Study, score: Score) -> String {
    match (&study.translation, &study.language_model) {
        (Some(test), _) => format!("{}, {} set", score.label(), test.split),
        (_, Some(test)) => {
            let text = test.splits.last().map_or("last", String::as_str);
            format!("perplexity per token, {text} text (lower is better)")
        }
        _ => score.label().to_owned(),
    }
}

/// Draws the score of every run against what its encoder's gates tell their inputs apart by: does a score rise where gates
/// have learned? Systems without gates stand at 0. `None` where no run has gates.
pub fn score_by_information(study: &Study, score: Score, runs: &[RunResult]) -> Option<String> {
    let information =
        |run: &RunResult| run.gates.as_ref().and_then(|gates| gates.information.as_ref()?.encoder);
    runs.iter().find_map(information)?;
    let clouds: Vec<Cloud> = study
        .systems
        .iter()
        .map(|system| {
            let own = runs.iter().filter(|run| run.system == system.name);
            let place = |run: &RunResult| {
                let at = (information(run).unwrap_or(0.0), value(study, score, run)?);
                Some((format!("seed {}", run.seed), at))
            };
            Cloud { name: system.name.clone(), runs: own.filter_map(place).collect() }
        })
        .filter(|cloud| !cloud.runs.is_empty())
        .collect();
    scatter::draw(&clouds, "I(expert; input), encoder, nats", &label(study, score))
}

/// Draws how much every attention's experts tell about the tags of lines, run by run, with the mean of untrained gates beside
/// it: a map of what gates have learned about them. Systems whose gates take no steps are left out. `None` without tags.
pub fn tag_information(study: &Study, runs: &[RunResult]) -> Option<String> {
    let mut rows: Vec<Dots> = Vec::new();
    for system in &study.systems {
        let own = runs.iter().filter(|run| run.system == system.name);
        let gates: Vec<_> = own.filter_map(|run| Some((run.seed, run.gates.as_ref()?))).collect();
        let Some((_, first)) = gates.iter().find(|(_, gates)| gates.updates.is_some_and(|steps| steps > 0))
        else {
            continue;
        };
        for (number, attention) in first.attentions.iter().enumerate() {
            let here =
                || gates.iter().filter_map(|(seed, gates)| Some((*seed, gates.attentions.get(number)?)));
            let values: Vec<_> =
                here().filter_map(|(seed, at)| Some((format!("seed {seed}"), at.tag_information?))).collect();
            let untrained: Vec<f64> = here().filter_map(|(_, at)| at.untrained_tag_information).collect();
            let mean = untrained.iter().sum::<f64>() / untrained.len() as f64;
            let beside = (!untrained.is_empty()).then_some(mean);
            rows.push(Dots { name: format!("{}, {}", system.name, attention.attention), values, beside });
        }
    }
    dots::draw(&rows, "I(tag; expert), nats", "untrained gate")
}

/// Draws a curve over epochs, a line for the mean of each system and a band from its lowest to its highest seed, from epoch
/// `begin` on. `None` where nobody logged it.
pub fn bands(curves: &LearningCurves, begin: f64) -> Option<String> {
    let mut systems: Vec<(usize, Vec<&Series>)> = Vec::new();
    for line in &curves.series {
        match systems.iter_mut().find(|(system, _)| *system == line.run) {
            Some((_, lines)) => lines.push(line),
            None => systems.push((line.run, vec![line])),
        }
    }
    let means: Vec<Series> = systems.iter().map(|(_, lines)| mean_line(lines, begin)).collect();
    chart::draw(&means, curves.against.label(), curves.label, begin)
}

/// Mean of the lines at the points that all of them have.
fn mean_line(lines: &[&Series], begin: f64) -> Series {
    let (mut points, mut band) = (Vec::new(), Vec::new());
    for &(x, _) in lines[0].points.iter().filter(|point| point.0 >= begin) {
        let at = |line: &&Series| line.points.iter().find(|point| point.0 == x).map(|point| point.1);
        let values: Vec<f64> = lines.iter().filter_map(at).collect();
        if values.len() == lines.len() {
            points.push((x, values.iter().sum::<f64>() / values.len() as f64));
            let [low, high] = [f64::min, f64::max].map(|pick| values.iter().copied().reduce(pick));
            band.push([low.unwrap_or(x), high.unwrap_or(x)]);
        }
    }
    let name = lines[0].legend.clone().unwrap_or_else(|| lines[0].name.clone());
    Series { legend: Some(name.clone()), name, run: lines[0].run, dashed: false, points, band }
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
            let name = curve.name();
            curves.push(LearningCurves { name, label, against, series: of_system((curve, against)) });
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_hold_the_mean_and_its_seeds() {
        let line = |points: &[(f64, f64)]| Series {
            name: "a-1".into(),
            legend: Some("a".into()),
            run: 0,
            dashed: false,
            points: points.to_vec(),
            band: Vec::new(),
        };
        let lines = [line(&[(1.0, 9.0), (2.0, 4.0), (3.0, 3.0)]), line(&[(1.0, 8.0), (2.0, 6.0)])];
        let mean = mean_line(&[&lines[0], &lines[1]], 2.0);
        // The third epoch has one seed only, the first comes before the beginning.
        assert_eq!((mean.points, mean.band), (vec![(2.0, 5.0)], vec![[4.0, 6.0]]));
        let curves =
            LearningCurves { name: "loss", label: "loss", against: Against::Epochs, series: lines.to_vec() };
        assert_eq!(bands(&curves, 0.0).unwrap().matches("<polygon").count(), 1);
        assert!(bands(&LearningCurves { series: Vec::new(), ..curves }, 0.0).is_none());
    }
}
