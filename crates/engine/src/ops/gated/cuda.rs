//! The GPU's implementation: one product, and one kernel for what follows.

use super::Gated;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::batch_norm::EPSILON;
use crate::ops::decode::cuda::{self as decode, Norm};
use crate::ops::decode::{KvCache, Lineage, Room};
use crate::ops::mixture::cuda::{self as mixture, GATE_ROWS, GATE_RUNS};
use crate::params::Params;
use crate::{Tensor, Var};

/// Threads of a block that folds one row.
const THREADS: u32 = 256;

kernels! {
    static FILE = "gated" at "gated.cu", constants [THREADS, GATE_ROWS, GATE_RUNS, EPSILON],
        headers &[mixture::GATE, decode::NORM];

    /// A row of the joint matrix.
    struct FoldGate = fold_gate {
        projection: *const Act,
        projection_bias: *const Act,
        w1: *const f32,
        b1: *const f32,
        norm: Norm,
        weight: *mut Act,
        bias: *mut Act,
        hidden_bias: *mut f32,
        projected: u32,
        cols: u32,
    }

    /// What follows the product.
    struct GatedWeights = gated_weights {
        z: *const Act,
        stride: u32,
        projected: u32,
        sums: *mut f32,
        parents: *const u32,
        ages: *const u32,
        clock: *const u32,
        b1: *const f32,
        w2: *const f32,
        b2: *const f32,
        inner: u32,
        experts: *const f32,
        weights: *mut f32,
        kv: *mut Act,
        ring: u32,
        room: u32,
        n: u32,
        count: u32,
        heads: u32,
        width: u32,
    }
}

/// Returns true if the kernels can take this gate: rows that are read eight values at a time.
pub(super) fn fits(params: &Params, gated: &Gated) -> bool {
    let [projection, fc1] = [gated.projection[0], gated.network.fc1[0]].map(|id| params.block(id));
    let whole_runs = [projection.rows, projection.cols, fc1.rows].iter().all(|size| size.is_multiple_of(8));
    whole_runs && mixture::fits(params, &gated.network)
}

/// The joint matrix, and the sums of hidden units.
pub(super) struct Folded {
    /// P and the number of hidden units.
    sizes: [usize; 2],
    /// `[P + hidden, D]`, and its bias.
    weight: Buffer,
    bias: Buffer,
    /// What rounding takes from b₁' in the bias.
    hidden_bias: Buffer,
    /// `[2, rows, hidden]`.
    sums: Buffer,
}

impl Folded {
    pub(super) fn new(params: &Params, gated: &Gated, room: Room) -> Self {
        let device = params.device();
        let projection = params.block(gated.projection[0]);
        let sizes @ [projected, hidden] = [projection.rows, params.block(gated.network.fc1[0]).rows];
        Self {
            sizes,
            weight: device.scratch((projected + hidden) * projection.cols),
            bias: device.scratch(projected + hidden),
            hidden_bias: device.scratch_floats(hidden),
            sums: device.scratch_floats(2 * room.rows * hidden),
        }
    }

    /// Makes the joint matrix.
    pub(super) fn fold(&self, gpu: &Gpu, params: &Params, gated: &Gated) {
        let [projected, hidden] = self.sizes;
        let Gated { projection, norm, network } = gated;
        gpu.call(
            Shape::of(projected + hidden, THREADS),
            &FoldGate {
                projection: params.weights(projection[0]),
                projection_bias: params.weights(projection[1]),
                w1: params.master(network.fc1[0]),
                b1: params.master(network.fc1[1]),
                norm: Norm::of(params, Some(*norm)),
                weight: self.weight.ptr(),
                bias: self.bias.ptr(),
                hidden_bias: self.hidden_bias.ptr(),
                projected: projected as u32,
                cols: params.block(projection[0]).cols as u32,
            },
        );
    }
}

pub(super) fn step(
    params: &Params,
    x: &Var,
    (gated, folded): (&Gated, &Folded),
    experts: &Tensor,
    lineage: &Lineage,
    cache: Option<(&mut KvCache, usize)>,
) -> (Var, Tensor) {
    let ([rows, cols], [projected, hidden], device) = (x.shape(), folded.sizes, params.device());
    let (gpu, stride) = (x.tensor().gpu(), projected + hidden);
    let z = device.scratch(rows * stride);
    gpu.product(&Product {
        size: [rows, stride, cols],
        a: Factor::new(x.ptr(), cols),
        b: Factor::new(folded.weight.ptr(), cols).t(),
        c: z.ptr(),
        c_cols: stride,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Bias,
        bias: folded.bias.ptr(),
    });
    let weights = device.scratch_floats(rows * experts.cols());
    let [w2, b2] = gated.network.fc2.map(|id| params.master(id));
    let (lineage, (kv, width)) = (
        lineage.on_gpu(),
        match cache {
            Some((cache, width)) => (cache.on_gpu(), width),
            None => (Ptr::NULL, 0),
        },
    );
    let kernel = GatedWeights {
        z: z.ptr(),
        stride: stride as u32,
        projected: projected as u32,
        sums: folded.sums.ptr(),
        parents: lineage.parents.ptr(),
        ages: lineage.ages.ptr(),
        clock: lineage.clock.ptr(),
        b1: folded.hidden_bias.ptr(),
        w2,
        b2,
        inner: hidden as u32,
        experts: experts.ptr(),
        weights: weights.ptr(),
        kv,
        ring: lineage.room.ring() as u32,
        room: lineage.room.rows as u32,
        n: rows as u32,
        count: experts.rows() as u32,
        heads: experts.cols() as u32,
        width: width as u32,
    };
    let unit = Unit::with(&FILE, vec![mixture::gate_runs(hidden)]);
    gpu.call_in(&unit, Shape::of(rows.div_ceil(GATE_ROWS as usize), 32 * GATE_ROWS), &kernel);
    let weights = Tensor::new([rows, experts.cols()], weights);
    (Var::constant(Tensor::new([rows, stride], z)), weights)
}
