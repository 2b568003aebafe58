//! Inference only: a projection of x, and the head weights that a gate makes of the running mean of x, at each step of a
//! search.
//!
//! The first layer of the gate and the mean can change places: W₁·norm(mean x) + b₁ = mean(W₁'·x) + b₁', where column c of
//! W₁' is that of W₁ times γ/√(variance + ε), and b₁' = b₁ + W₁·(β − mean·γ/√(variance + ε)). So a GPU multiplies x by
//! one matrix, the rows of the projection with those of W₁' below them, and keeps sums of hidden units. A CPU computes the
//! gate beside the projection.

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
    sum: RunningSum,
    /// On a GPU, for gates of usual sizes.
    folded: Option<cuda::Folded>,
}

impl GatedProjection {
    /// Nothing read yet.
    pub fn new(params: &Params, gated: Gated, room: Room) -> Self {
        let folded = match params.device().backend() {
            Backend::Gpu(_) if cuda::fits(params, &gated) => Some(cuda::Folded::new(params, &gated, room)),
            _ => None,
        };
        let sum = RunningSum::new(params.device(), room, params.block(gated.projection[0]).cols);
        Self { gated, sum, folded }
    }

    /// Takes over the parameters as they are now: before the first step of a search.
    pub fn refresh(&mut self, params: &Params) {
        if let (Some(folded), Backend::Gpu(gpu)) = (&self.folded, params.device().backend()) {
            folded.fold(gpu, params, &self.gated);
        }
    }
}

impl Tape<'_> {
    /// The projection of x `[R, D]`, and the head weights `[R, H]` of a mixture of `experts` by the gate. The first P columns
    /// of the result are the projection; on a GPU there may be more. A `cache` is given the keys and values, if the projection
    /// has them: its columns are queries, keys and values, of `width` each.
    pub fn project_gated(
        &mut self,
        x: &Var,
        state: &mut GatedProjection,
        experts: &Tensor,
        lineage: &Lineage,
        cache: Option<(&mut KvCache, usize)>,
    ) -> (Var, Tensor) {
        let GatedProjection { gated, sum, folded } = state;
        if let (Some(folded), Backend::Gpu(gpu)) = (folded, self.backend()) {
            return cuda::step(gpu, self.params, x, (gated, folded), experts, lineage, cache);
        }
        let Gated { projection: [weight, bias], norm, network } = *gated;
        let weigh = |tape: &mut Tape<'_>| {
            let mean = Var::constant(tape.running_step(x, sum, lineage, Some(norm)));
            tape.mix_by_gate(&mean, &network, experts).weights.tensor().clone()
        };
        // The gate is a chain of small ops: some threads project meanwhile.
        let (weights, projected) =
            self.side_by_side(weigh, |tape| tape.linear(x, weight, bias, Activation::Identity, 0.0));
        if let Some((cache, width)) = cache {
            self.store_kv(&projected, width, cache, lineage);
        }
        (projected, weights)
    }
}
