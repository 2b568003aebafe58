//! The CPU's implementation: one loop over a flat buffer each.

use rayon::prelude::*;

use super::{Adam, Nag};
use crate::Stream;
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

/// Bits of a Philox block: each decides a sign.
const SIGNS: usize = 128;

/// Sign i is bit i mod 128, counted from the lowest bit of the first word, of block ⌊i/128⌋.
pub(super) fn random_signs(g: &mut [f32], stream: Stream) {
    g.par_chunks_mut(SIGNS).enumerate().for_each(|(block, g)| {
        let words = stream.block(0, block as u32);
        for (i, g) in g.iter_mut().enumerate() {
            let sign = words[i / 32] >> (i % 32) & 1;
            *g = f32::from_bits(g.to_bits() ^ sign << 31);
        }
    });
}

/// Sums that one thread adds to in turn: the processor does not wait for one while it adds to the others.
const CHAINS: usize = 8;

/// Σ g² of each of up to [`CHAINS`] chunks, each in its order.
fn sums_of_squares(chunks: &[&[f32]]) -> Vec<f64> {
    let square = |g: f32| f64::from(g) * f64::from(g);
    let Ok(together) = <[&[f32]; CHAINS]>::try_from(chunks) else {
        return chunks.iter().map(|chunk| chunk.iter().map(|&g| square(g)).sum()).collect();
    };
    let shortest = together.iter().map(|chunk| chunk.len()).min().unwrap_or(0);
    let mut sums = [0.0; CHAINS];
    for i in 0..shortest {
        sums.iter_mut().zip(&together).for_each(|(sum, chunk)| *sum += square(chunk[i]));
    }
    for (sum, chunk) in sums.iter_mut().zip(&together) {
        chunk[shortest..].iter().for_each(|&g| *sum += square(g));
    }
    sums.to_vec()
}

/// The Euclidean norm of the gradients of `groups`.
pub(super) fn norm(gradients: &Gradients, groups: &[GroupId]) -> f64 {
    let squares = groups.iter().map(|&group| {
        let chunks: Vec<&[f32]> = gradients.group(group).chunks(CHUNK).collect();
        let partials: Vec<Vec<f64>> = chunks.par_chunks(CHAINS).map(sums_of_squares).collect();
        // Summed in order: the result does not depend on the threads.
        partials.into_iter().flatten().sum::<f64>()
    });
    squares.sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several sums at a time have the bits of one after the other.
    #[test]
    fn sums_of_squares_keep_their_order() {
        let values: Vec<f32> = (0..9 * 501).map(|i| ((i * 7919) % 1013) as f32 * 1e-3 - 0.4).collect();
        for (count, last) in [(1, 501), (CHAINS, 501), (CHAINS, 7), (CHAINS, 0)] {
            let mut chunks: Vec<&[f32]> = values.chunks(501).take(count).collect();
            chunks[count - 1] = &chunks[count - 1][..last];
            let plain = |chunk: &&[f32]| chunk.iter().fold(0.0, |sum, &g| sum + f64::from(g) * f64::from(g));
            let want: Vec<f64> = chunks.iter().map(plain).collect();
            assert_eq!(sums_of_squares(&chunks), want);
        }
    }
}
