//! Inference only: attention whose heads are weighted by a gate that reads the running mean of x, at each step of a
//! search; and its parts, a projection of x and the head weights.
//!
//! The first layer of the gate and the mean can change places: W₁·norm(mean x) + b₁ = mean(W₁'·x) + b₁', where W₁' is
//! W₁ with its columns times γ/√(variance + ε), and b₁' = b₁ + W₁·(β − mean·γ/√(variance + ε)). So both products have the
//! same input and are computed at once, and sums of hidden units are kept. A GPU multiplies x by one matrix, the rows
//! of the projection with those of W₁' below them. A CPU with several threads computes what follows that product, for a
//! few rows, beside the attention that its weights are for.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;
#[cfg(test)]
mod tests;

use crate::device::Backend;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::decode::{Heads, Keys, KvCache, Lineage, Room, RunningSum};
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
    /// Attention of x `[R, D]` with heads that are weighted by the gate, up to the projection of its output.
    pub fn attend_gated(
        &mut self,
        x: &Var,
        state: &mut GatedProjection,
        experts: &Tensor,
        lineage: &Lineage,
        (heads, mut keys): (Heads, Keys<'_>),
    ) -> Var {
        if let GatedProjection { gated, folded: Folded::Cpu(folded) } = state
            && cpu::attends(x.rows())
        {
            return cpu::attend(self, x, (gated, folded), experts, lineage, (heads, keys));
        }
        let cache = match &mut keys {
            Keys::Steps(cache) => Some((&mut **cache, heads.count * heads.width)),
            Keys::Memory(_) => None,
        };
        let (projected, weights) = self.project_gated(x, state, experts, lineage, cache);
        match keys {
            Keys::Steps(cache) => self.attention_cached(&projected, heads, cache, lineage, Some(&weights)),
            Keys::Memory(memory) => self.attention_memory(&projected, heads, &memory, Some(&weights)),
        }
    }

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
