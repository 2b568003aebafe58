//! Figure of a transfer study.

use super::chart::draw;
use super::curves::Series;
use crate::points::Point;
use crate::transfer::{Method, Plan};

/// Draws the paper's figure: BLEU against the part of the training set; a dashed line for methods that train nothing. `None`
/// before the first result.
pub fn draw_points(plan: &Plan, points: &[Point]) -> Option<String> {
    let ends = plan.fractions.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], fraction| {
        [low.min(*fraction), high.max(*fraction)]
    });
    let line = |(number, method): (usize, &Method)| {
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
        Series { legend: Some(name.clone()), name, run: number, dashed, points: places, band: Vec::new() }
    };
    let series: Vec<Series> = plan.methods.iter().enumerate().map(line).collect();
    let series: Vec<Series> = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    let label = format!("BLEU, {} set", plan.translation.split);
    draw(&series, "per cent of the training set", &label, 0.0)
}
