//! The CPU's implementation: the products of the projection and of the gate's first layer in one go, then the rest of
//! the gate. For matrices that are packed for inference; others are multiplied one after the other.

use super::Gated;
use crate::cpu::gemm::Precision;
use crate::cpu::{for_rows, for_rows_of_two, math};
use crate::ops::batch_norm::Running;
use crate::ops::decode::Lineage;
use crate::ops::mixture::Results;
use crate::ops::mixture::cpu as mixture;
use crate::params::{PackedMatrix, Params};
use crate::{Tape, Tensor, Var};

/// Returns true if matrices are packed and the second layer of the gate is not.
pub(super) fn fits(params: &Params, gated: &Gated) -> bool {
    let packed = |id| params.matrix(id).plain().is_none();
    packed(gated.projection[0]) && packed(gated.network.fc1[0]) && mixture::fits(params, &gated.network)
}

/// W₁' and b₁', and the sums of hidden units.
pub(super) struct Folded {
    weight: PackedMatrix,
    bias: Vec<f32>,
    sums: Option<Tensor>,
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
        let weight = params.matrix(gated.projection[0]).packed_like(&values).expect("`fits` has looked");
        Self { weight, bias, sums: None, state: params.state() }
    }

    /// Takes over the parameters as they are now.
    pub(super) fn refresh(&mut self, params: &Params, gated: &Gated) {
        if self.state != params.state() {
            *self = Self::new(params, gated);
        }
    }
}

/// Rows of a step up to which one thread computes the gate while others project: what follows the product of a gate is
/// then too short to be shared, and too long to be waited for.
const FEW_ROWS: usize = 16;

pub(super) fn step(
    tape: &mut Tape<'_>,
    x: &Var,
    (gated, folded): (&Gated, &mut Folded),
    experts: &Tensor,
    lineage: &Lineage,
) -> (Var, Tensor) {
    let (params, rows) = (tape.params, x.rows());
    let ([weight, bias], hidden) = (gated.projection, folded.bias.len());
    let (projection, projected) = (params.matrix(weight), params.block(weight).rows);
    let [mut y, mut units] = [projected, hidden].map(|cols| params.device().scratch_floats(rows * cols));
    let mut results = Results::new(tape, rows, experts);
    let Folded { weight, bias: b1, sums, .. } = folded;
    let mut weigh = |units: &mut [f32]| {
        let mut total = params.device().scratch_floats(rows * hidden);
        add_up(sums.as_ref(), lineage, &mut total, units);
        *sums = Some(Tensor::new([rows, hidden], total));
        mixture::weigh_units(params, (units, b1, math::quick_tanh), &gated.network, experts, &mut results);
    };
    if rows <= FEW_ROWS && rayon::current_num_threads() > 1 {
        let gate = || {
            weight.product(rows, x.values(), &mut units);
            weigh(&mut units);
        };
        // The one that this thread begins with is the one that gives work to the most threads.
        rayon::join(|| projection.product(rows, x.values(), &mut y, Precision::Full), gate);
    } else {
        projection.products(weight, rows, x.values(), [&mut y, &mut units]);
        weigh(&mut units);
    }
    add_bias(&mut y, params.values(bias));
    let weights = results.constant().weights.tensor().clone();
    (Var::constant(Tensor::new([rows, projected], y)), weights)
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

/// Sums of hidden units over the steps of each hypothesis; `units` become their means.
fn add_up(before: Option<&Tensor>, lineage: &Lineage, sums: &mut [f32], units: &mut [f32]) {
    let hidden = units.len() / lineage.rows();
    for_rows_of_two(
        (sums, units),
        hidden,
        #[inline(always)]
        |first, sums, units| {
            for (i, (sum, units)) in
                sums.chunks_exact_mut(hidden).zip(units.chunks_exact_mut(hidden)).enumerate()
            {
                let factor = 1.0 / (lineage.ages()[first + i] + 1) as f32;
                sum.copy_from_slice(units);
                if let (Some(before), Some(parent)) = (before, lineage.parent(first + i)) {
                    sum.iter_mut().zip(before.row(parent)).for_each(|(sum, past)| *sum += past);
                }
                units.iter_mut().zip(sum).for_each(|(mean, sum)| *mean = *sum * factor);
            }
        },
    );
}
