//! Inference only: a projection of x, and the head weights that a gate makes of the running mean of x, at each step of
//! a search.
//!
//! The first layer of the gate and the mean can change places: W₁·norm(mean x) + b₁ = mean(W₁'·x) + b₁', where W₁' is
//! W₁ with its columns times γ/√(variance + ε), and b₁' = b₁ + W₁·(β − mean·γ/√(variance + ε)). So both products have the
//! same input and are computed at once, and sums of hidden units are kept. A GPU multiplies x by one matrix, the rows
//! of the projection with those of W₁' below them.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::decode::{KvCache, Lineage, Room, RunningSum};
use crate::ops::linear::Activation;
use crate::ops::mixture::GateNetwork;
use crate::{ParamId, Params, Tape, Tensor, Var};

/// The parameters of a projection and of the gate beside it.
#[derive(Clone, Copy, Debug)]
pub struct Gated {
    /// Weight `[P, D]` and bias of the projection.
    pub projection: [ParamId; 2],
    /// Norm of the gate's input.
    pub norm: BatchNorm,
    /// Network of the gate.
    pub network: GateNetwork,
}

/// A projection and a gate between the steps of a search.
pub struct GatedProjection {
    gated: Gated,
    folded: Folded,
}

enum Folded {
    /// Gates of unusual sizes, and matrices in the layout of training: the running sum of x.
    Not(RunningSum),
    Cpu(cpu::Folded),
    Gpu(cuda::Folded),
}

impl GatedProjection {
    /// Nothing read yet.
    pub fn new(params: &Params, gated: Gated, room: Room) -> Self {
        let folded = match params.device().backend() {
            Backend::Gpu(_) if cuda::fits(params, &gated) => {
                Folded::Gpu(cuda::Folded::new(params, &gated, room))
            }
            Backend::Cpu if cpu::fits(params, &gated) => Folded::Cpu(cpu::Folded::new(params, &gated)),
            _ => Folded::Not(RunningSum::new(params.device(), room, params.block(gated.projection[0]).cols)),
        };
        Self { gated, folded }
    }

    /// Takes over the parameters as they are now: before the first step of a search.
    pub fn refresh(&mut self, params: &Params) {
        match (&mut self.folded, params.device().backend()) {
            (Folded::Cpu(folded), _) => folded.refresh(params, &self.gated),
            (Folded::Gpu(folded), Backend::Gpu(gpu)) => folded.fold(gpu, params, &self.gated),
            (Folded::Not(_) | Folded::Gpu(_), _) => {}
        }
    }
}

impl Tape<'_> {
    /// The projection of x `[R, D]`, and the head weights `[R, H]` of a mixture of `experts` by the gate. The first P
    /// columns of the result are the projection; on a GPU there may be more. A `cache` is given the keys and values, if
    /// the projection has them: its columns are queries, keys and values, of `width` each.
    pub fn project_gated(
        &mut self,
        x: &Var,
        state: &mut GatedProjection,
        experts: &Tensor,
        lineage: &Lineage,
        cache: Option<(&mut KvCache, usize)>,
    ) -> (Var, Tensor) {
        let GatedProjection { gated, folded } = state;
        let Gated { projection: [weight, bias], norm, network } = *gated;
        let (projected, weights) = match folded {
            Folded::Gpu(folded) => {
                return cuda::step(self.params, x, (gated, folded), experts, lineage, cache);
            }
            Folded::Cpu(folded) => cpu::step(self, x, (gated, folded), experts, lineage),
            Folded::Not(sum) => {
                let mean = Var::constant(self.running_step(x, sum, lineage, Some(norm)));
                let weights = self.mix_by_gate(&mean, &network, experts).weights;
                let projected = self.linear(x, weight, bias, Activation::Identity, 0.0);
                (projected, weights.tensor().clone())
            }
        };
        if let Some((cache, width)) = cache {
            self.store_kv(&projected, width, cache, lineage);
        }
        (projected, weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{ComputeType, GroupId};
    use crate::{Device, ParamsBuilder, Rng};

    const SIZES: [usize; 3] = [64, 256, 4];

    /// A projection to queries, keys and values with a gate, in this number type; `shift` changes the norm.
    fn gated(compute: ComputeType, shift: f32) -> (Params, Gated) {
        let [width, hidden, experts] = SIZES;
        let (mut builder, group) = (ParamsBuilder::default(), GroupId(0));
        let mut sizes = Vec::new();
        let mut block = |name: &str, rows: usize, cols: usize| {
            sizes.push((name.to_owned(), rows * cols));
            match cols {
                1 => builder.vector(name.into(), rows, group),
                _ => builder.matrix(name.into(), [rows, cols], group),
            }
        };
        let gated = Gated {
            projection: [block("w", 3 * width * 2, width), block("b", 3 * width * 2, 1)],
            norm: BatchNorm {
                weight: block("gamma", width, 1),
                bias: block("beta", width, 1),
                running_mean: block("mean", width, 1),
                running_var: block("variance", width, 1),
            },
            network: GateNetwork {
                fc1: [block("w1", hidden, width), block("b1", hidden, 1)],
                fc2: [block("w2", experts, hidden), block("b2", experts, 1)],
                dropout: 0.1,
            },
        };
        let mut params = builder.finish(&Device::cpu().holding(compute).unwrap());
        for (i, (name, len)) in sizes.iter().enumerate() {
            let stream = Rng::new(5, 0).stream(i as u32);
            let value = |j: u32| match name.as_str() {
                "variance" => 0.5 + stream.uniform(j, 0),
                "mean" => shift * stream.normal(j, 0),
                _ => 0.2 * stream.normal(j, 0),
            };
            params.set(name, &(0..*len as u32).map(value).collect::<Vec<_>>()).unwrap();
        }
        (params, gated)
    }

    /// Head weights and projections of five steps in which hypotheses change places; `rows` of them.
    fn steps(params: &Params, state: &mut GatedProjection, rows: usize) -> Vec<Vec<f32>> {
        let device = params.device();
        let matrix: Vec<f32> = (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { 4.0 / 3.0 }).collect();
        let experts = Tensor::from_host(device, [4, 4], &matrix);
        let mut lineage = Lineage::new(device, Room { rows, steps: 5 });
        let (mut tape, mut found) = (Tape::evaluation(params), Vec::new());
        lineage.begin(rows);
        state.refresh(params);
        for step in 0..5 {
            if step == 2 {
                lineage.reorder(&(0..rows as u32).map(|row| row / 2).rev().collect::<Vec<_>>());
            }
            let stream = Rng::new(6, 0).stream(step);
            let values: Vec<f32> = (0..(rows * SIZES[0]) as u32).map(|i| stream.normal(i, 0)).collect();
            let x = Var::constant(Tensor::from_host(device, [rows, SIZES[0]], &values));
            tape.advance(&mut lineage, rows);
            let (projected, weights) = tape.project_gated(&x, state, &experts, &lineage, None);
            lineage.count_step();
            found.extend([projected.tensor().to_host(), weights.to_host()]);
        }
        found
    }

    #[test]
    fn products_at_once_are_those_one_after_the_other() {
        let cases = [(ComputeType::F32, 1e-5), (ComputeType::Bf16, 2e-2), (ComputeType::Int8, 4e-2)];
        for ((compute, tolerance), rows) in cases.into_iter().flat_map(|case| [(case, 3), (case, 40)]) {
            let room = Room { rows, steps: 5 };
            let (params, gated) = gated(compute, 0.3);
            let mut folded = GatedProjection::new(&params, gated, room);
            assert!(matches!(folded.folded, Folded::Cpu(_)));
            let sum = RunningSum::new(params.device(), room, SIZES[0]);
            let mut plain = GatedProjection { gated, folded: Folded::Not(sum) };
            let (found, wanted) = (steps(&params, &mut folded, rows), steps(&params, &mut plain, rows));
            for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let far = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                // Projections are the same to the bit.
                let allowed = if i % 2 == 0 { 0.0 } else { tolerance };
                assert!(far <= allowed, "{compute}, {rows} rows, {i}: {far}");
            }
        }
    }

    #[test]
    fn changed_parameters_are_taken_over_by_the_next_search() {
        let (mut params, gated_by) = gated(ComputeType::F32, 0.3);
        let mut state = GatedProjection::new(&params, gated_by, Room { rows: 3, steps: 5 });
        let before = steps(&params, &mut state, 3);
        let (other, _) = gated(ComputeType::F32, -2.0);
        params.set("mean", &other.get("mean").unwrap()).unwrap();
        let after = steps(&params, &mut state, 3);
        let mut fresh = GatedProjection::new(&other, gated_by, Room { rows: 3, steps: 5 });
        assert_ne!(before[1], after[1]);
        assert_eq!(steps(&other, &mut fresh, 3), after);
    }
}
