//! The CPU's implementation, for matrices that are packed for inference; others are multiplied one after the other.

use rayon::prelude::*;

use super::Gated;
use crate::cpu::{for_rows, math, prefetch_all, vectorised};
use crate::cuda::memory::Dtype;
use crate::device::{Buffer, Device};
use crate::ops::batch_norm::Running;
use crate::ops::decode::{Heads, Keys, Lineage, weigh};
use crate::ops::mixture::cpu::{Tail, fits as fits_network, second_layer};
use crate::params::{Matrix, PackedGate, Params};
use crate::{Tape, Tensor, Var};

/// Returns true if matrices are packed and the second layer of the gate is not.
pub(super) fn fits(params: &Params, gated: &Gated) -> bool {
    let packed = |id| params.matrix(id).plain().is_none();
    packed(gated.projection[0]) && packed(gated.network.fc1[0]) && fits_network(params, &gated.network)
}

/// The parameters of a gate, and the sums of hidden units.
pub(super) struct Folded {
    /// W₁'.
    weight: PackedGate,
    /// Hidden units.
    hidden: usize,
    /// b₁', W₂ and b₂, side by side: nothing of a gate is still in the cache when its next step comes.
    rest: Buffer,
    /// Sums over the steps of each hypothesis, as of the last step; there may be room for more.
    sums: Buffer,
    /// The products of this step, which become sums.
    next: Buffer,
    /// State of the parameters that it was made of.
    state: u64,
}

impl Folded {
    pub(super) fn new(params: &Params, gated: &Gated) -> Self {
        let [fc1, b1] = gated.network.fc1;
        let (matrix, mut bias) = (params.matrix(fc1), params.values(b1).to_vec());
        let norm = Running::new(params, gated.norm);
        // What the norm makes of 0 and of 1: its shifts, and with its scales.
        let cols = params.block(fc1).cols;
        let [mut shifts, mut scales] = [vec![0.0; cols], vec![1.0; cols]];
        norm.apply(&mut shifts);
        norm.apply(&mut scales);
        scales.iter_mut().zip(&shifts).for_each(|(scale, shift)| *scale -= shift);
        let mut values = matrix.values().into_owned();
        for (row, bias) in values.chunks_exact_mut(cols).zip(&mut bias) {
            let moved: f64 = row.iter().zip(&shifts).map(|(w, s)| f64::from(*w) * f64::from(*s)).sum();
            *bias += moved as f32;
            row.iter_mut().zip(&scales).for_each(|(w, scale)| *w *= scale);
        }
        let weight = params.matrix(gated.projection[0]).packed_gate(&values).expect("`fits` has looked");
        let (second, b2) = second_layer(params, &gated.network);
        let (device, hidden) = (params.device(), bias.len());
        let rest = Buffer::from_host(device, Dtype::F32, &[&bias, second, b2].concat());
        let [sums, next] = [0; 2].map(|none| device.scratch_floats(none));
        Self { weight, hidden, rest, sums, next, state: params.state() }
    }

    /// Takes over the parameters as they are now.
    pub(super) fn refresh(&mut self, params: &Params, gated: &Gated) {
        if self.state != params.state() {
            *self = Self::new(params, gated);
        }
    }

    /// Multiplies x with the projection and with W₁', whose products are summands of the next sums, in one go.
    fn project(&mut self, device: &Device, projection: Matrix<'_>, x: &Var, projected: &mut [f32]) {
        let Self { weight, hidden, rest, sums, next, .. } = self;
        let (rows, len) = (x.rows(), x.rows() * *hidden);
        if next.count() < len {
            *next = device.scratch_floats(len);
        }
        // What `weigh` reads is no longer in the cache, as products of matrices evict it from step to step, and it would be
        // waited for line by line.
        let ask = || {
            if rows <= FEW_ROWS {
                prefetch_all(rest);
                prefetch_all(&sums[..sums.count().min(len)]);
            }
        };
        projection.products(weight, rows, x.values(), [projected, &mut next[..len]], ask);
    }

    /// Head weights `[R, H]` after [`Self::project`].
    fn weigh(&mut self, experts: &Tensor, lineage: &Lineage, weights: &mut [f32]) {
        let Self { hidden, rest, sums, next, .. } = self;
        let (hidden, count, heads, rows) = (*hidden, experts.rows(), experts.cols(), lineage.rows());
        let (bias, second) = rest.split_at(hidden);
        let (second, b2) = second.split_at(count * hidden);
        let (tail, before, products) = (Tail { second, b2, experts }, &**sums, &mut next[..rows * hidden]);
        let task = |first: usize, sums: &mut [f32], weights: &mut [f32]| {
            vectorised(
                #[inline(always)]
                || {
                    let rows = weights.len() / heads;
                    let mut scratch = vec![0.0; rows * (hidden + count)];
                    let (units, gates) = scratch.split_at_mut(rows * hidden);
                    let rows = sums.chunks_exact_mut(hidden).zip(units.chunks_exact_mut(hidden));
                    for (row, (sums, units)) in (first..).zip(rows) {
                        if let Some(parent) = lineage.parent(row) {
                            let past = &before[parent * hidden..][..hidden];
                            sums.iter_mut().zip(past).for_each(|(sum, past)| *sum += past);
                        }
                        let factor = 1.0 / (lineage.ages()[row] + 1) as f32;
                        for ((unit, sum), b) in units.iter_mut().zip(&*sums).zip(bias) {
                            *unit = math::quick_tanh(*sum * factor + b);
                        }
                    }
                    tail.weigh(units, gates, weights);
                },
            );
        };
        if rows <= ROWS_PER_TASK {
            task(0, products, weights);
        } else {
            let [of_units, of_weights] = [hidden, heads].map(|width| ROWS_PER_TASK * width);
            let tasks = products.par_chunks_mut(of_units).zip(weights.par_chunks_mut(of_weights)).enumerate();
            tasks.for_each(|(i, (sums, weights))| task(i * ROWS_PER_TASK, sums, weights));
        }
        std::mem::swap(sums, next);
    }
}

/// Rows of a gate that one task takes, behind the product.
const ROWS_PER_TASK: usize = 8;

/// A projection and head weights.
pub(super) fn step(
    tape: &mut Tape<'_>,
    x: &Var,
    (gated, folded): (&Gated, &mut Folded),
    experts: &Tensor,
    lineage: &Lineage,
) -> (Var, Tensor) {
    let projected = project(tape.params, x, (gated, folded));
    let shape = [x.rows(), experts.cols()];
    let mut weights = tape.device().scratch_floats(shape[0] * shape[1]);
    folded.weigh(experts, lineage, &mut weights);
    (Var::constant(projected), Tensor::new(shape, weights))
}

/// A projection; the products of x with W₁' are made with it, by all threads.
fn project(params: &Params, x: &Var, (gated, folded): (&Gated, &mut Folded)) -> Tensor {
    let (rows, [weight, bias]) = (x.rows(), gated.projection);
    let cols = params.block(weight).rows;
    let mut y = params.device().scratch_floats(rows * cols);
    folded.project(params.device(), params.matrix(weight), x, &mut y);
    add_bias(&mut y, params.values(bias));
    Tensor::new([rows, cols], y)
}

/// Rows of a step up to which what follows the product of a gate is asked for, and threads attend beside it: it is then
/// too short to be shared, and too long to be waited for.
const FEW_ROWS: usize = 16;

/// Returns true if [`attend`] is faster than [`step`] and attention after it.
pub(super) fn attends(rows: usize) -> bool {
    rows <= FEW_ROWS && rayon::current_num_threads() > 1
}

/// Attention with weighted heads: one thread computes what follows the product of the gate while others attend, and the
/// heads are weighted at the end.
pub(super) fn attend(
    tape: &mut Tape<'_>,
    x: &Var,
    (gated, folded): (&Gated, &mut Folded),
    experts: &Tensor,
    lineage: &Lineage,
    (heads, mut keys): (Heads, Keys<'_>),
) -> Var {
    let (params, rows, width) = (tape.params, x.rows(), heads.count * heads.width);
    let projected = project(params, x, (gated, folded));
    let [mut context, mut weights] =
        [width, heads.count].map(|cols| params.device().scratch_floats(rows * cols));
    let attention = || {
        keys.store(params.device(), &projected, heads, lineage);
        keys.attend(&projected, heads, lineage, &mut context);
    };
    rayon::join(attention, || folded.weigh(experts, lineage, &mut weights));
    weigh(&mut context, heads.width, &weights);
    Var::constant(Tensor::new([rows, width], context))
}

fn add_bias(y: &mut [f32], bias: &[f32]) {
    for_rows(
        y,
        bias.len(),
        #[inline(always)]
        |_, rows| {
            for row in rows.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
            }
        },
    );
}
