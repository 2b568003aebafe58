//! The GPU's implementation, on tensor cores.

use super::tiles::{LONG_TILE, TILE};
use super::{Gradients, HeadWeights, Inputs, Op, Plan};
use crate::Device;
use crate::cuda::Gpu;
use crate::cuda::compile::{AttentionKind, Unit};
use crate::cuda::kernel::{Act, Pair, kernel_struct, kernels};
use crate::cuda::launch::{Dropout, Segments, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;

/// The widest head that fits the kernels.
const WIDEST_HEAD: usize = 128;
/// Sentences of at least this length on average are long.
const LONG: usize = 128;
/// Shared memory that a block on Hopper asks for at least: so much that three at most share a multiprocessor. With more,
/// all blocks would begin at once, and none would be left to go where others have ended early.
const HOPPER_SHARED: usize = 57 << 10;
/// Sentences up to this length have a backward kernel of their own.
const SHORT: usize = 64;
/// Rows of all heads from which on a batch is large.
const LARGE: usize = 1 << 17;
/// Blocks for longer sentences that share a multiprocessor.
const BLOCKS_AT_ONCE: usize = 8;
/// Tiles of the other side in shared memory, where a block loads one while it works on another.
const MOST_STAGES: usize = 2;
/// Values between the rows of a tile in shared memory, so that eight rows lie in different banks.
const PADDING: usize = 8;

kernel_struct! {
    /// Arguments of the forward kernel; `attention.cuh` says what each is.
    struct Attend {
        q: *const Act,
        k: *const Act,
        v: *const Act,
        weights: *const f32,
        out: *mut Act,
        log_sums: *mut f32,
        kept: *mut u16,
        query_tiles: *const Pair,
        queries: Segments,
        keys: Segments,
        dropout: Dropout,
        heads: u32,
        q_stride: u32,
        kv_stride: u32,
        kept_stride: u32,
        every_head: u32,
    }
}

kernel_struct! {
    /// Arguments of the backward kernels.
    struct AttendBackward {
        forward: Attend,
        d_out: *const Act,
        d_q: *mut Act,
        d_k: *mut Act,
        d_v: *mut Act,
        d_weights: *mut f32,
        delta: *mut f32,
        key_tiles: *const Pair,
        query_tile_count: u32,
        key_tile_count: u32,
        short_apart: u32,
    }
}

/// Files before those of the kernels.
const HEADERS: &[(&str, &str)] = &[
    ("attention.cuh", include_str!("attention.cuh")),
    ("attention_hopper.cuh", include_str!("attention_hopper.cuh")),
    ("attention_tiles.cuh", include_str!("attention_tiles.cuh")),
];

kernels! {
    static FORWARD = "attention" at "attention.cu",
        constants [TILE, LONG_TILE, MOST_STAGES, PADDING], headers HEADERS;

    struct AttentionForward = attention_forward { a: Attend }
}

kernels! {
    static BACKWARD = "attention_backward" at "attention_backward.cu",
        constants [TILE, LONG_TILE, MOST_STAGES, SHORT, PADDING], headers HEADERS;

    /// All gradients of sentences of at most [`SHORT`] rows.
    struct BackwardShort = attention_backward_short { b: AttendBackward }
    /// Gradients of queries, and of weights per row.
    struct BackwardRows = attention_backward_rows { b: AttendBackward }
    /// Gradients of keys and values.
    struct BackwardKeys = attention_backward_keys { b: AttendBackward }
    /// Gradients of weights per sentence.
    struct WeightGradients = attention_weight_gradients { b: AttendBackward }
}

/// Addresses of queries, keys and values, and the distance of their rows.
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
    match inputs.keys_and_values() {
        None => Layout {
            q: first,
            k: first.plus(d * size),
            v: first.plus(2 * d * size),
            q_stride: 3 * d,
            kv_stride: 3 * d,
        },
        Some((kv, column)) => Layout {
            q: first,
            k: second.plus(column * size),
            v: second.plus((column + d) * size),
            q_stride: d,
            kv_stride: kv.cols(),
        },
    }
}

fn kind(plan: &Plan) -> AttentionKind {
    let weights = match plan.weights {
        HeadWeights::One => 0,
        HeadWeights::PerSentence(_) => 1,
        HeadWeights::PerRow(_) => 2,
    };
    AttentionKind {
        head: plan.head_width() as u32,
        causal: plan.causal,
        dropout: plan.dropout.is_some(),
        weights,
        long: is_long(plan),
    }
}

/// By the room for sentences and rows, so that a captured pass runs the kernels it was captured with.
fn is_long(plan: &Plan) -> bool {
    plan.queries.rows() >= LONG * plan.queries.count()
}

/// Rows of one sentence that a block works on, two threads for each.
fn block_rows(plan: &Plan) -> usize {
    if is_long(plan) { LONG_TILE } else { TILE }
}

/// The tiles of these sentences, one for each block: a list in device memory, and its number of entries.
fn tiles(plan: &Plan, segments: &crate::Segments) -> (Ptr, u32) {
    if is_long(plan) { segments.long_tiles() } else { segments.tiles() }
}

/// A launch over tiles, with so many tiles of a block's own rows in shared memory, and so many pairs of the other side:
/// the kernels' STAGES.
fn shape(gpu: &Gpu, plan: &Plan, unit: &Unit, tiles: u32, [own_tiles, stages]: [usize; 2]) -> Shape {
    let rows = block_rows(plan);
    let tile_rows = own_tiles * rows + 2 * stages * TILE;
    let shared = match gpu.is_for_hopper(unit) {
        true => (tile_rows * plan.head_width() * gpu.act().size()).max(HOPPER_SHARED),
        false => tile_rows * pitch(plan) * gpu.act().size(),
    };
    Shape::grid([plan.heads, tiles as usize], 2 * rows as u32).shared(shared)
}

/// Values from one row of a tile in shared memory to the next, where it is not laid out for Hopper.
fn pitch(plan: &Plan) -> usize {
    plan.head_width().next_multiple_of(16) + PADDING
}

/// Room for the bits of probabilities that dropout keeps: long sentences read them in the backward pass, short ones
/// make them again.
pub(super) fn mask(device: &Device, plan: &Plan) -> Option<Buffer> {
    let words = plan.queries.rows() * plan.heads * mask_stride(plan);
    // Words of 16 bits.
    (is_long(plan) && plan.dropout.is_some()).then(|| device.scratch_floats(words / 2))
}

/// Words of 16 bits from one row of the mask to the next, a bit for each key; a multiple of 64 bits.
fn mask_stride(plan: &Plan) -> usize {
    plan.keys.longest().next_multiple_of(64) / 16
}

/// The arguments that both directions share.
fn attend(
    gpu: &Gpu,
    plan: &Plan,
    inputs: &Inputs,
    [out, log_sums]: [Ptr; 2],
    mask: Option<&Buffer>,
) -> Attend {
    let at = match inputs {
        Inputs::Packed(qkv) => [qkv.ptr(), Ptr::NULL],
        Inputs::Apart(q, kv) => [q.ptr(), kv.ptr()],
        Inputs::Shared(q, kv) => [q.ptr(), kv.whole().ptr()],
    };
    let from = layout(gpu, plan, inputs, at);
    let weights = match &plan.weights {
        HeadWeights::One => Ptr::NULL,
        HeadWeights::PerSentence(w) | HeadWeights::PerRow(w) => w.ptr(),
    };
    Attend {
        q: from.q,
        k: from.k,
        v: from.v,
        weights,
        out,
        log_sums,
        kept: mask.map_or(Ptr::NULL, Buffer::ptr),
        query_tiles: tiles(plan, &plan.queries).0,
        queries: plan.queries.argument(),
        keys: plan.keys.argument(),
        dropout: gpu.dropout_argument(plan.dropout),
        heads: plan.heads as u32,
        q_stride: from.q_stride as u32,
        kv_stride: from.kv_stride as u32,
        kept_stride: mask_stride(plan) as u32,
        every_head: u32::from(plan.tracked_weights().is_some()),
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    plan: &Plan,
    inputs: &Inputs,
    out: &Buffer,
    log_sums: &Buffer,
    mask: Option<&Buffer>,
) {
    assert!(plan.head_width() <= WIDEST_HEAD, "attention: heads on a GPU are at most {WIDEST_HEAD} wide");
    let a = attend(gpu, plan, inputs, [out.ptr(), log_sums.ptr()], mask);
    let (unit, (_, tile_count)) = (Unit::attention_forward(kind(plan)), tiles(plan, &plan.queries));
    let stages = if is_long(plan) { MOST_STAGES } else { 1 };
    gpu.call_in(&unit, shape(gpu, plan, &unit, tile_count, [1, stages]), &AttentionForward { a });
}

pub(super) fn backward(gpu: &Gpu, op: &Op, d_out: &Buffer, gradients: &Gradients) {
    let Op { plan, inputs, out, log_sums, mask } = op;
    let second = gradients.second.as_ref().map_or(Ptr::NULL, Buffer::ptr);
    let to = layout(gpu, plan, inputs, [gradients.first.ptr(), second]);
    let delta = Block::new(out.gpu(), 4 * plan.queries.rows() * plan.heads);
    let ((_, query_tile_count), (key_tiles, key_tile_count)) =
        (tiles(plan, &plan.queries), tiles(plan, &plan.keys));
    let all = AttendBackward {
        forward: attend(gpu, plan, inputs, [out.ptr(), log_sums.ptr()], mask.as_ref()),
        d_out: d_out.ptr(),
        d_q: to.q,
        d_k: to.k,
        d_v: to.v,
        d_weights: gradients.weights.as_ref().map_or(Ptr::NULL, Buffer::ptr),
        delta: delta.ptr(),
        key_tiles,
        query_tile_count,
        key_tile_count,
        short_apart: u32::from(short_apart(plan)),
    };
    launch_backward(gpu, plan, all);
}

fn launch_backward(gpu: &Gpu, plan: &Plan, b: AttendBackward) {
    let unit = Unit::attention_backward(kind(plan));
    let sentences = plan.queries.count();
    let short_apart = b.short_apart != 0;
    if short_apart {
        let shared = (4 * SHORT * pitch(plan) + 2 * SHORT * (SHORT + PADDING)) * gpu.act().size();
        let shape = Shape::grid([plan.heads, sentences], SHORT as u32).halves().shared(shared);
        gpu.call_in(&unit, shape, &BackwardShort { b });
    }
    if short_apart && longest(plan) <= SHORT {
        return;
    }
    // Where most tiles are those of short sentences, as many blocks as can run at once look for the others.
    let most = (BLOCKS_AT_ONCE * gpu.multiprocessors()).div_ceil(plan.heads) as u32;
    let shape = |tiles: u32| {
        let blocks = if short_apart { tiles.min(most) } else { tiles };
        shape(gpu, plan, &unit, blocks, [2, MOST_STAGES])
    };
    gpu.call_in(&unit, shape(b.query_tile_count), &BackwardRows { b });
    gpu.call_in(&unit, shape(b.key_tile_count), &BackwardKeys { b });
    if b.d_weights != Ptr::NULL && matches!(plan.weights, HeadWeights::PerSentence(_)) {
        let (warps, block) = (sentences * plan.heads, 2 * block_rows(plan));
        let blocks = (32 * warps).div_ceil(block);
        gpu.call_in(&unit, Shape::of(blocks, block as u32), &WeightGradients { b });
    }
}

/// Rows of the longest sentence, or a bound.
fn longest(plan: &Plan) -> usize {
    plan.queries.longest().max(plan.keys.longest())
}

/// True if sentences of up to [`SHORT`] rows are computed by a kernel of their own: if all are that short, or most in a
/// large batch. In a small one all blocks run at once, and those of one more kernel would come late. By the room, which
/// may have twice as many sentences as there are.
fn short_apart(plan: &Plan) -> bool {
    let (rows, sentences) = (plan.queries.rows().max(plan.keys.rows()), plan.queries.count());
    let large = rows * plan.heads >= LARGE;
    !is_long(plan) && (longest(plan) <= SHORT || large && 2 * rows < SHORT * sentences)
}
