//! Rows of one model and of two, rules, best continuations, draws.

use super::{Bounds, Chances, Draw, Place, Rule};
use crate::device::{Device, Numbers};
use crate::ops::decode::{Continuations, Symbols};
use crate::suite::{Case, Outcome, Quantity, Tolerance, gradient_of, random};
use crate::{Result, Tensor, Var};

pub(crate) fn cases() -> Vec<Case> {
    let sizes = [(11, 1, 3), (101, 2, 10), (6_632, 1, 10), (6_632, 2, 8), (33_000, 3, 8)];
    let case = |(types, models, count): (usize, usize, usize)| {
        let what = format!("{types} types, {models} models, {count} best");
        Case::new("chances", what, Tolerance::new(1e-2, 3e-5), move |device, numbers| {
            chances(device, numbers, types, models, count).unwrap_or_default()
        })
    };
    sizes.into_iter().map(case).collect()
}

const SYMBOLS: Symbols = Symbols { pad: 1, end: 2, unknown: 3 };

fn chances(device: &Device, numbers: Numbers, types: usize, models: usize, count: usize) -> Result<Outcome> {
    let places = [(4, 1.0), (0, 1.0), (2, 0.7), (1, 1.0), (1, 3.0), (3, 1.0)];
    let places = places.map(|(row, temperature)| Place { row, temperature });
    let logits = |model: usize| activations(device, numbers, 1 + model as u32, [5, types]);
    let mut rows = Chances::of(&logits(0), &places, models);
    (1..models).for_each(|model| rows.add(&logits(model), &places));
    let rule = |i: usize| Rule {
        unknown_penalty: [0.7, -1.5, 0.0][i % 3],
        only: (i == 1).then_some(7),
        too_short: i.is_multiple_of(2),
        forbidden: match i {
            // Everything: the row may end.
            2 => (0..types as u32).collect(),
            3 => vec![4, 9, 5, 9],
            _ => Vec::new(),
        },
    };
    rows.constrain(&(0..places.len()).map(rule).collect::<Vec<_>>(), SYMBOLS);
    let scores = [0.0, -0.5, -1.0, -1.5, -2.0, -2.5];
    let mut outcome = Outcome::new();
    let best = rows.best(&scores, &[0..2, 2..3, 1..2, 3..6, 5..6], count)?;
    outcome.extend(scores_of("best", best)?);
    // Numbers far from the borders of tokens: rounding must not decide.
    let bounds = [
        Bounds::default(),
        Bounds { most: Some(3), share: None },
        Bounds { most: None, share: Some(0.6) },
        Bounds { most: Some(5), share: Some(0.9) },
    ];
    for (kind, bounds) in bounds.into_iter().enumerate() {
        let draw = |row: u32| Draw { row, uniform: [0.0, 0.37, 0.81][row as usize % 3], bounds };
        let drawn = rows.draw(&scores, &(0..6).map(draw).collect::<Vec<_>>())?;
        outcome.extend(scores_of(&format!("drawn {kind}"), drawn)?);
    }
    Ok(outcome)
}

fn scores_of(what: &str, found: Continuations) -> Result<Vec<Quantity>> {
    let quantity = |(i, candidates): (usize, Vec<crate::ops::decode::Candidate>)| {
        let scores: Vec<f32> = candidates.iter().map(|candidate| candidate.score).collect();
        Quantity::value(format!("{what} {i}"), 1, scores)
    };
    Ok(found.ranked()?.into_iter().enumerate().map(quantity).collect())
}

fn activations(device: &Device, numbers: Numbers, stream: u32, [rows, cols]: [usize; 2]) -> Tensor {
    let room = Var::constant(Tensor::new([rows, cols], device.scratch(rows * cols)));
    let values = random(numbers, stream, rows * cols);
    Tensor::new([rows, cols], gradient_of(device, &room, &values))
}
