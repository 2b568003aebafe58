//! The CPU's implementation, for matrices that are packed for inference; others are multiplied one after the other.

use rayon::prelude::*;

use super::Gated;
use crate::cpu::panels::Half;
use crate::cpu::{for_rows, math, prefetch_all, vectorised};
use crate::cuda::memory::Dtype;
use crate::device::{Buffer, Device};
use crate::ops::batch_norm::Running;
use crate::ops::decode::{Heads, Kept, Keys, Lineage, dtype_of_kept, weigh};
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
    /// b₁' and b₂.
    biases: Buffer,
    /// W₂: bf16 where matrices have no more bits.
    second: Buffer,
    /// Sums over the steps of each hypothesis, as of the last step.
    sums: Buffer,
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
        let biases = Buffer::from_host(device, Dtype::F32, &[&bias, b2].concat());
        let second = Buffer::from_host(device, dtype_of_kept(device), second);
        Self { weight, hidden, biases, second, sums: device.scratch_floats(0), state: params.state() }
    }

    /// Takes over the parameters as they are now.
    pub(super) fn refresh(&mut self, params: &Params, gated: &Gated) {
        if self.state != params.state() {
            *self = Self::new(params, gated);
        }
    }

    /// Multiplies x with the projection and with W₁', in one go; the latter products are given.
    fn project(&self, device: &Device, projection: Matrix<'_>, x: &Var, projected: &mut [f32]) -> Buffer {
        let (rows, len) = (x.rows(), x.rows() * self.hidden);
        let mut products = device.scratch_floats(len);
        // What `weigh` reads is no longer in the cache, as products of matrices evict it from step to step, and it would be
        // waited for line by line.
        let ask = || {
            if rows <= FEW_ROWS {
                prefetch_all(&self.biases);
                match self.second.dtype() {
                    Dtype::F32 => prefetch_all(&self.second),
                    Dtype::Bf16 => prefetch_all(self.second.halves()),
                }
                prefetch_all(&self.sums[..len.min(self.sums.count())]);
            }
        };
        projection.products(&self.weight, rows, x.values(), [projected, &mut products], ask);
        products
    }

    /// Head weights `[R, H]`, by what [`Self::project`] has given; the second buffer is room for as many sums.
    fn weigh(
        &mut self,
        products_and_sums: [Buffer; 2],
        experts: &Tensor,
        lineage: &Lineage,
        weights: &mut [f32],
    ) {
        match self.second.dtype() {
            Dtype::F32 => self.weigh_by::<f32>(products_and_sums, experts, lineage, weights),
            Dtype::Bf16 => self.weigh_by::<Half>(products_and_sums, experts, lineage, weights),
        }
    }

    fn weigh_by<W: Kept>(
        &mut self,
        [mut products, mut sums]: [Buffer; 2],
        experts: &Tensor,
        lineage: &Lineage,
        weights: &mut [f32],
    ) {
        let Self { hidden, biases, second, sums: before, .. } = self;
        let (hidden, count, heads) = (*hidden, experts.rows(), experts.cols());
        let (bias, b2) = biases.split_at(hidden);
        let tail = Tail { second: W::all(second), b2, experts };
        let task = |first: usize, products: &mut [f32], sums: &mut [f32], weights: &mut [f32]| {
            vectorised(
                #[inline(always)]
                || {
                    let rows = products.chunks_exact_mut(hidden).zip(sums.chunks_exact_mut(hidden));
                    for (row, (products, sums)) in (first..).zip(rows) {
                        match lineage.parent(row) {
                            Some(parent) => {
                                let past = &before[parent * hidden..][..hidden];
                                for ((sum, new), past) in sums.iter_mut().zip(&*products).zip(past) {
                                    *sum = new + past;
                                }
                            }
                            None => sums.copy_from_slice(products),
                        }
                        let factor = 1.0 / (lineage.ages()[row] + 1) as f32;
                        for ((unit, sum), b) in products.iter_mut().zip(&*sums).zip(bias) {
                            *unit = math::quick_tanh(*sum * factor + b);
                        }
                    }
                    tail.weigh(products, &mut vec![0.0; weights.len() / heads * count], weights);
                },
            );
        };
        if lineage.rows() <= ROWS_PER_TASK {
            task(0, &mut products, &mut sums, weights);
        } else {
            let [of_units, of_weights] = [hidden, heads].map(|width| ROWS_PER_TASK * width);
            let tasks = products.par_chunks_mut(of_units).zip(sums.par_chunks_mut(of_units));
            tasks.zip(weights.par_chunks_mut(of_weights)).enumerate().for_each(
                |(i, ((products, sums), weights))| task(i * ROWS_PER_TASK, products, sums, weights),
            );
        }
        *before = sums;
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
    let (projected, products) = project(tape.params, x, (gated, folded));
    let shape = [x.rows(), experts.cols()];
    let mut weights = tape.device().scratch_floats(shape[0] * shape[1]);
    // Memory that another gate has just given back: it is still in the cache.
    let sums = tape.device().scratch_floats(products.count());
    folded.weigh([products, sums], experts, lineage, &mut weights);
    (Var::constant(projected), Tensor::new(shape, weights))
}

/// A projection and the products of x with W₁', by all threads.
fn project(params: &Params, x: &Var, (gated, folded): (&Gated, &Folded)) -> (Tensor, Buffer) {
    let (rows, [weight, bias]) = (x.rows(), gated.projection);
    let cols = params.block(weight).rows;
    let mut y = params.device().scratch_floats(rows * cols);
    let products = folded.project(params.device(), params.matrix(weight), x, &mut y);
    add_bias(&mut y, params.values(bias));
    (Tensor::new([rows, cols], y), products)
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
    let (projected, products) = project(params, x, (gated, folded));
    let [mut context, mut weights] =
        [width, heads.count].map(|cols| params.device().scratch_floats(rows * cols));
    let attention = || {
        keys.store(params.device(), &projected, heads, lineage);
        keys.attend(&projected, heads, lineage, &mut context);
    };
    let sums = params.device().scratch_floats(products.count());
    rayon::join(attention, || folded.weigh([products, sums], experts, lineage, &mut weights));
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
