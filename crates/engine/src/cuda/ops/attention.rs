//! Packed attention with head weights, on tensor cores.

use std::sync::Arc;

use super::linear::record;
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Dropout, Segments, Shape};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::ops::attention::{HeadWeights, Inputs, Plan};
use crate::tensor::TILE;
use crate::{Tape, Tensor, Var};

/// The widest head that fits the kernels.
const WIDEST_HEAD: usize = 128;
/// Of a block that works on one tile.
const THREADS: u32 = 2 * TILE as u32;
/// Sentences up to this length have a backward kernel of their own.
const SHORT: usize = 64;

/// `Attend` of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attend {
    q: Ptr,
    k: Ptr,
    v: Ptr,
    weights: Ptr,
    out: Ptr,
    log_sums: Ptr,
    query_tiles: Ptr,
    queries: Segments,
    keys: Segments,
    dropout: Dropout,
    heads: u32,
    q_stride: u32,
    kv_stride: u32,
    every_head: u32,
}

/// `AttendBackward` of the kernels.
#[repr(C)]
struct AttendBackward {
    forward: Attend,
    d_out: Ptr,
    d_q: Ptr,
    d_k: Ptr,
    d_v: Ptr,
    d_weights: Ptr,
    delta: Ptr,
    key_tiles: Ptr,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Attend {}
// SAFETY: as above.
unsafe impl Argument for AttendBackward {}

/// Where queries, keys and values begin, and the distance of their rows.
struct Layout {
    q: Ptr,
    k: Ptr,
    v: Ptr,
    q_stride: usize,
    kv_stride: usize,
}

/// The layout of `inputs`, or of their gradients, at these addresses.
fn layout(gpu: &Gpu, plan: &Plan, inputs: &Inputs, [first, second]: [Ptr; 2]) -> Layout {
    let (d, size) = (plan.width, gpu.act().size());
    match inputs {
        Inputs::Packed(_) => Layout {
            q: first,
            k: first.plus(d * size),
            v: first.plus(2 * d * size),
            q_stride: 3 * d,
            kv_stride: 3 * d,
        },
        Inputs::Apart(..) => {
            Layout { q: first, k: second, v: second.plus(d * size), q_stride: d, kv_stride: 2 * d }
        }
    }
}

fn unit(plan: &Plan, file: &'static str) -> Unit {
    let weights = match plan.weights {
        HeadWeights::One => 0,
        HeadWeights::PerSentence(_) => 1,
        HeadWeights::PerRow(_) => 2,
    };
    Unit::attention(file, plan.head_width() as u32, plan.causal, plan.dropout.is_some(), weights)
}

/// Bytes between rows of a tile in shared memory.
fn pitch(plan: &Plan) -> usize {
    plan.head_width().next_multiple_of(16) + 8
}

pub(crate) fn attention(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, inputs: &Inputs, plan: Plan) -> Var {
    assert!(plan.head_width() <= WIDEST_HEAD, "attention: heads on a GPU are at most {WIDEST_HEAD} wide");
    let rows = plan.queries.rows();
    let out = tape.device().scratch(rows * plan.width);
    let log_sums = tape.device().scratch_floats(rows * plan.heads);
    let at = match inputs {
        Inputs::Packed(qkv) => [qkv.ptr(), Ptr::NULL],
        Inputs::Apart(q, kv) => [q.ptr(), kv.ptr()],
    };
    let from = layout(gpu, &plan, inputs, at);
    let (query_tiles, tile_count) = plan.queries.tiles();
    let weights = match &plan.weights {
        HeadWeights::One => Ptr::NULL,
        HeadWeights::PerSentence(w) | HeadWeights::PerRow(w) => w.ptr(),
    };
    let attend = Attend {
        q: from.q,
        k: from.k,
        v: from.v,
        weights,
        out: out.ptr(),
        log_sums: log_sums.ptr(),
        query_tiles,
        queries: plan.queries.argument(),
        keys: plan.keys.argument(),
        dropout: gpu.dropout_argument(plan.dropout),
        heads: plan.heads as u32,
        q_stride: from.q_stride as u32,
        kv_stride: from.kv_stride as u32,
        every_head: u32::from(plan.tracked_weights().is_some()),
    };
    let shared = 3 * TILE * pitch(&plan) * gpu.act().size();
    let shape = Shape::grid([plan.heads, tile_count as usize], THREADS).shared(shared);
    gpu.launch(&unit(&plan, "attention"), "attention_forward", shape, &[&attend]);

    let tracked = inputs.tracked() || plan.tracked_weights().is_some();
    let out = tape.output([rows, plan.width], out, tracked);
    let log_sums = Tensor::new([rows, plan.heads], log_sums);
    let inputs = inputs.clone();
    record(tape, gpu.clone(), &out, move |gpu, backward, d_out| {
        let device = backward.device().clone();
        let d_weights = plan.tracked_weights().map(|w| device.scratch_floats(w.tensor().count()));
        let (first, second) = match &inputs {
            Inputs::Packed(qkv) => (device.scratch(qkv.tensor().count()), None),
            Inputs::Apart(q, kv) => {
                (device.scratch(q.tensor().count()), Some(device.scratch(kv.tensor().count())))
            }
        };
        let to = layout(gpu, &plan, &inputs, [first.ptr(), second.as_ref().map_or(Ptr::NULL, Buffer::ptr)]);
        let delta = device.scratch_floats(rows * plan.heads);
        let (key_tiles, key_tile_count) = plan.keys.tiles();
        let all = AttendBackward {
            forward: Attend { out: Ptr::NULL, log_sums: log_sums.ptr(), ..attend },
            d_out: d_out.ptr(),
            d_q: to.q,
            d_k: to.k,
            d_v: to.v,
            d_weights: d_weights.as_ref().map_or(Ptr::NULL, Buffer::ptr),
            delta: delta.ptr(),
            key_tiles,
        };
        launch_backward(gpu, &plan, &all, [tile_count as usize, key_tile_count as usize]);
        if let (Some(w), Some(d_weights)) = (plan.tracked_weights(), d_weights) {
            backward.give(w, d_weights);
        }
        match (&inputs, second) {
            (Inputs::Apart(q, kv), Some(second)) => {
                backward.give(q, first);
                backward.give(kv, second);
            }
            (Inputs::Packed(qkv), _) => backward.give(qkv, first),
            (Inputs::Apart(..), None) => unreachable!("keys have a gradient of their own"),
        }
    });
    out
}

fn launch_backward(gpu: &Arc<Gpu>, plan: &Plan, all: &AttendBackward, [query_tiles, key_tiles]: [usize; 2]) {
    let unit = unit(plan, "attention_backward");
    let size = gpu.act().size();
    let sentences = plan.queries.count();
    let longest = plan.queries.longest().max(plan.keys.longest());
    if longest <= SHORT {
        let shared = (4 * SHORT * pitch(plan) + 2 * SHORT * (SHORT + 8)) * size;
        let shape = Shape::grid([plan.heads, sentences], 2 * SHORT as u32).shared(shared);
        return gpu.launch(&unit, "attention_backward_short", shape, &[all]);
    }
    let shared = 4 * TILE * pitch(plan) * size;
    let shape = |tiles: usize| Shape::grid([plan.heads, tiles], THREADS).shared(shared);
    gpu.launch(&unit, "attention_backward_rows", shape(query_tiles), &[all]);
    gpu.launch(&unit, "attention_backward_keys", shape(key_tiles), &[all]);
    if all.d_weights != Ptr::NULL && matches!(plan.weights, HeadWeights::PerSentence(_)) {
        let warps = sentences * plan.heads;
        gpu.launch(&unit, "attention_weight_gradients", Shape::of(warps.div_ceil(2), THREADS), &[all]);
    }
}
