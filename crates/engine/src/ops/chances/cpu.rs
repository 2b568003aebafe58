//! The CPU's implementation: the definition.

use std::ops::Range;

use rayon::prelude::*;

use super::{Draw, Place, Rule};
use crate::Tensor;
use crate::cpu::math;
use crate::ops::decode::{Candidate, Symbols};

/// `ln softmax(logits / temperature)` of each place, `[places, types]`.
pub(super) fn log_probs_at(logits: &Tensor, places: &[Place]) -> Vec<f32> {
    let types = logits.cols();
    let mut values = vec![0.0; places.len() * types];
    values.par_chunks_exact_mut(types.max(1)).zip(places).for_each(|(values, place)| {
        let sharpness = 1.0 / place.temperature;
        let row = logits.row(place.row as usize);
        values.iter_mut().zip(row).for_each(|(value, logit)| {
            *value = if sharpness == 1.0 { *logit } else { logit * sharpness };
        });
        let highest = math::max(values);
        let log_sum = highest + math::sum_by(values, |v| math::exp(v - highest)).ln();
        values.iter_mut().for_each(|value| *value -= log_sum);
    });
    values
}

pub(super) fn constrain(rows: &mut [f32], types: usize, rules: &[Rule], symbols: Symbols) {
    rows.par_chunks_exact_mut(types).zip(rules).for_each(|(row, rule)| apply(row, rule, symbols));
}

fn apply(row: &mut [f32], rule: &Rule, symbols: Symbols) {
    row[symbols.unknown as usize] -= rule.unknown_penalty;
    if let Some(only) = rule.only {
        let kept = row[only as usize];
        row.fill(f32::NEG_INFINITY);
        row[only as usize] = kept;
        return;
    }
    let end = symbols.end as usize;
    let at_end = row[end];
    row[symbols.pad as usize] = f32::NEG_INFINITY;
    if rule.too_short {
        row[end] = f32::NEG_INFINITY;
    }
    rule.forbidden.iter().for_each(|&token| row[token as usize] = f32::NEG_INFINITY);
    // Too short to end, but everything else is forbidden: better an end than nothing.
    if !rule.forbidden.is_empty() && !row.iter().any(|p| p.is_finite()) {
        row[end] = at_end;
    }
}

pub(super) fn best(
    rows: &[f32],
    types: usize,
    scores: &[f32],
    groups: &[Range<usize>],
    count: usize,
) -> Vec<Vec<Candidate>> {
    let best_of = |group: &Range<usize>| {
        let mut best: Vec<Candidate> = Vec::with_capacity(count + 1);
        for row in group.clone() {
            for (token, log_prob) in rows[row * types..(row + 1) * types].iter().enumerate() {
                let candidate =
                    Candidate { score: scores[row] + log_prob, row: row as u32, token: token as u32 };
                // Most tokens need one comparison. Equal scores are in order already.
                let worthwhile =
                    best.len() < count || best.last().is_some_and(|last| candidate.score > last.score);
                if worthwhile && candidate.score.is_finite() {
                    let at = best.partition_point(|other| other.order(&candidate).is_lt());
                    best.insert(at, candidate);
                    best.truncate(count);
                }
            }
        }
        best
    };
    groups.par_iter().map(best_of).collect()
}

pub(super) fn draw(rows: &[f32], types: usize, scores: &[f32], draws: &[Draw]) -> Vec<Vec<Candidate>> {
    let drawn = |draw: &Draw| {
        let row = draw.row as usize;
        let log_probs = &rows[row * types..(row + 1) * types];
        let token = draw.bounds.draw(log_probs, draw.uniform)?;
        Some(Candidate { score: scores[row] + log_probs[token as usize], row: draw.row, token })
    };
    draws.par_iter().map(|draw| drawn(draw).into_iter().collect()).collect()
}
