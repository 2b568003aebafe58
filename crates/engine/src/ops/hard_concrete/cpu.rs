//! The CPU's implementation.

use super::{CLOSED, Draws, HardConcrete, LOW, MARGIN, Op, STEPS, TEMPERATURE, WIDTH};
use crate::cpu::math::sigmoid;
use crate::params::Params;
use crate::tape::Backward;

pub(super) fn forward(params: &Params, gate: HardConcrete, draws: &Draws, weights: &mut [f32]) {
    let own: Vec<f32> = params
        .values(gate.log_a)
        .iter()
        .enumerate()
        .map(|(head, value)| {
            let log_a = gate.start + value;
            let logit = match draws {
                Draws::Nothing => log_a,
                Draws::Stream(stream) => (logit_of(stream.uniform(0, head as u32)) + log_a) / TEMPERATURE,
                Draws::Given(ids) => {
                    (logit_of((ids.values()[head] as f32 + 0.5) / STEPS) + log_a) / TEMPERATURE
                }
            };
            (WIDTH * sigmoid(logit) + LOW).clamp(0.0, 1.0)
        })
        .collect();
    weights.chunks_exact_mut(own.len().max(1)).for_each(|row| row.copy_from_slice(&own));
}

fn logit_of(u: f32) -> f32 {
    let u = u.clamp(MARGIN, 1.0 - MARGIN);
    (u / (1.0 - u)).ln()
}

/// d log a = dg/d log a·Σ dw, and the penalty's λ·σ·(1 − σ). A gate at 0 or 1 does not move with log a.
pub(super) fn backward(backward: &mut Backward<'_>, op: &Op, dw: &[f32]) {
    let heads = op.weights.cols();
    let mut sums = vec![0.0; heads];
    for row in dw.chunks_exact(heads) {
        sums.iter_mut().zip(row).for_each(|(sum, dw)| *sum += dw);
    }
    let penalty = op.batch.as_ref().map_or(0.0, |batch| op.gate.penalty * batch.on_host());
    let values = backward.params.values(op.gate.log_a);
    backward.param(op.gate.log_a, |gradient, held| {
        for (j, gradient) in gradient.iter_mut().enumerate() {
            let g = op.weights.row(0)[j];
            let s = (g - LOW) / WIDTH;
            let slope = if g > 0.0 && g < 1.0 { WIDTH * s * (1.0 - s) / op.temperature } else { 0.0 };
            let open = sigmoid(op.gate.start + values[j] + CLOSED);
            let value = slope * sums[j] + penalty * open * (1.0 - open);
            *gradient = if held { *gradient + value } else { value };
        }
    });
}
