//! The CPU's implementation: one loop over a flat buffer each.

use rayon::prelude::*;

use super::{Adam, Nag};
use crate::cpu::vectorised;
use crate::device::Buffer;
use crate::params::{Gradients, GroupId};

/// Values that one task takes.
const CHUNK: usize = 1 << 14;

/// `[size, decay, clip]` are this step's.
pub(super) fn adam(
    adam: &Adam,
    p: &mut [f32],
    g: &[f32],
    [first, second]: [&mut Buffer; 2],
    [size, decay, clip]: [f32; 3],
) {
    let Adam { beta1, beta2, epsilon, .. } = *adam;
    p.par_chunks_mut(CHUNK)
        .zip(g.par_chunks(CHUNK))
        .zip(first.par_chunks_mut(CHUNK))
        .zip(second.par_chunks_mut(CHUNK))
        .for_each(|(((p, g), m), v)| {
            vectorised(
                #[inline(always)]
                || {
                    for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                        let g = clip * g;
                        *m = beta1.mul_add(*m, (1.0 - beta1) * g);
                        *v = beta2.mul_add(*v, (1.0 - beta2) * g * g);
                        let decayed = decay.mul_add(-*p, *p);
                        *p = size.mul_add(-*m / (v.sqrt() + epsilon), decayed);
                    }
                },
            );
        });
}

/// `[rate, decay, clip]` are this step's.
pub(super) fn nag(nag: &Nag, p: &mut [f32], g: &[f32], velocity: &mut Buffer, [rate, decay, clip]: [f32; 3]) {
    let momentum = nag.momentum;
    p.par_chunks_mut(CHUNK).zip(g.par_chunks(CHUNK)).zip(velocity.par_chunks_mut(CHUNK)).for_each(
        |((p, g), u)| {
            vectorised(
                #[inline(always)]
                || {
                    for ((p, g), u) in p.iter_mut().zip(g).zip(u) {
                        let g = clip * g;
                        let step = (momentum * momentum).mul_add(*u, -(1.0 + momentum) * g);
                        *p = rate.mul_add(step, decay.mul_add(-*p, *p));
                        *u = momentum.mul_add(*u, -g);
                    }
                },
            );
        },
    );
}

pub(super) fn sgd(p: &mut [f32], g: &[f32], rate: f32) {
    p.par_chunks_mut(CHUNK).zip(g.par_chunks(CHUNK)).for_each(|(p, g)| {
        p.iter_mut().zip(g).for_each(|(p, g)| *p = rate.mul_add(-*g, *p));
    });
}

/// The Euclidean norm of the gradients of `groups`.
pub(super) fn norm(gradients: &Gradients, groups: &[GroupId]) -> f64 {
    let squares = groups.iter().map(|&group| {
        let partial = |chunk: &[f32]| chunk.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        // Summed in order: the result does not depend on the threads.
        gradients.group(group).par_chunks(CHUNK).map(partial).collect::<Vec<_>>().into_iter().sum::<f64>()
    });
    squares.sum::<f64>().sqrt()
}
