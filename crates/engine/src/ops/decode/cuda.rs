//! The GPU's implementation: attention of single rows, lineages, the best next tokens.

use std::ops::Range;
use std::sync::Arc;

use super::attention::Weighted;
use super::best::{Candidate, LiveRow, Next, Symbols};
use super::keys::Memory;
use super::lineage::GpuLineage;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::transfer::Arrival;
use crate::device::Buffer;
use crate::ops::batch_norm::{BatchNorm, EPSILON};
use crate::params::Params;
use crate::{Ids, ParamId, Result, Tensor, Var};

/// Threads of a block.
const THREADS: u32 = 256;
/// Threads of a block that looks for the best of a large vocabulary.
pub(crate) const BEST_THREADS: u32 = 512;
/// The best of a row of scores.
pub(crate) const BEST_ROW: (&str, &str) = ("best.cuh", include_str!("best.cuh"));
/// The struct of a batch norm.
pub(crate) const NORM: (&str, &str) = ("norm.cuh", include_str!("norm.cuh"));

kernel_struct! {
    /// A batch norm with running statistics.
    pub(crate) struct Norm { gamma: *const f32, beta: *const f32, mean: *const f32, variance: *const f32 }
}

kernels! {
    static FILE = "decode" at "decode.cu", constants [THREADS, BEST_THREADS, WORDS, END, EPSILON],
        headers &[BEST_ROW, NORM];

    /// Keys and values of the newest step go to the cache.
    struct StoreKv = store_kv {
        qkv: *const Act,
        kv: *mut Act,
        clock: *const u32,
        ring: u32,
        room: u32,
        rows: u32,
        width: u32,
        stride: u32,
    }

    /// Lineages take a step.
    struct AdvanceLineage = advance_lineage {
        lineage: *mut u32,
        parents: *const u32,
        ages: *const u32,
        clock: *const u32,
        ring: u32,
        room: u32,
        rows: u32,
    }

    /// Running means of inputs.
    struct RunningGate = running_gate {
        x: *const Act,
        sums: *mut f32,
        parents: *const u32,
        ages: *const u32,
        clock: *const u32,
        norm: Norm,
        mean: *mut Act,
        room: u32,
        rows: u32,
        cols: u32,
    }

    /// Means of the last inputs.
    struct WindowGate = window_gate {
        x: *const Act,
        inputs: *mut Act,
        lineage: *const u32,
        ages: *const u32,
        clock: *const u32,
        mean: *mut Act,
        window: u32,
        kept: u32,
        ring: u32,
        room: u32,
        rows: u32,
        cols: u32,
    }

    /// Attention of each hypothesis over its own past.
    struct AttentionCached = attention_cached {
        q: *const Act,
        q_stride: u32,
        kv: *const Act,
        lineage: *const u32,
        ages: *const u32,
        clock: *const u32,
        weights: *const f32,
        out: *mut Act,
        ring: u32,
        room: u32,
        rows: u32,
        heads: u32,
        head_width: u32,
    }

    /// Attention of each hypothesis over the encoded source.
    struct AttentionMemory = attention_memory {
        q: *const Act,
        q_stride: u32,
        kv: *const Act,
        kv_stride: u32,
        spans: *const u32,
        sentences: *const u32,
        weights: *const f32,
        out: *mut Act,
        rows: u32,
        heads: u32,
        head_width: u32,
    }

    struct Gather = gather { x: *const Act, rows: *const u32, y: *mut Act, count: u32, cols: u32 }
    struct GatherFloat = gather_float { x: *const f32, rows: *const u32, y: *mut f32, count: u32, cols: u32 }

    struct Put = put { x: *const Act, rows: *const u32, count: *const u32, y: *mut Act, cols: u32 }
    struct PutFloat = put_float { x: *const f32, rows: *const u32, count: *const u32, y: *mut f32, cols: u32 }

    /// Best continuations of each row of logits.
    struct BestRows = best_rows {
        logits: *const Act,
        types: u32,
        scores: *const f32,
        penalties: *const f32,
        rules: *const u32,
        pad: u32,
        end: u32,
        unknown: u32,
        count: u32,
        best_scores: *mut f32,
        best_tokens: *mut u32,
    }

    /// Best continuations of groups of rows.
    struct BestOfGroups = best_of_groups {
        best_scores: *const f32,
        best_tokens: *const u32,
        groups: *const u32,
        count: u32,
        scores: *mut f32,
        rows: *mut u32,
        tokens: *mut u32,
    }
}

/// Rules of rows, as kernels know them.
const WORDS: u32 = Next::Words as u32;
const END: u32 = Next::End as u32;

/// One thread for eight columns of a row.
fn runs(rows: usize, cols: usize) -> Shape {
    Shape::of((rows * cols.div_ceil(8)).div_ceil(THREADS as usize), THREADS)
}

/// One warp per row and head.
fn heads_shape(rows: usize, heads: usize) -> Shape {
    Shape::grid([rows.div_ceil(THREADS as usize / 32), heads], THREADS)
}

fn pointer(tensor: Option<&Tensor>) -> Ptr {
    tensor.map_or(Ptr::NULL, Tensor::ptr)
}

pub(super) fn gather(gpu: &Gpu, x: &Tensor, rows: &Ids, y: &Buffer) {
    let shape = Shape::over_rows(rows.len(), x.cols());
    let is_act = x.dtype() == gpu.act();
    let (count, cols) = (rows.len() as u32, x.cols() as u32);
    let (x, rows, y) = (x.ptr(), rows.ptr(), y.ptr());
    match is_act {
        true => gpu.call(shape, &Gather { x, rows, y, count, cols }),
        false => gpu.call(shape, &GatherFloat { x, rows, y, count, cols }),
    }
}

pub(super) fn put(x: &Tensor, rows: &Ids, y: &Tensor) {
    let (gpu, shape) = (x.gpu(), Shape::over_rows(rows.len(), x.cols()));
    let is_act = x.dtype() == gpu.act();
    let (count, cols) = (rows.valid(), x.cols() as u32);
    let (x, rows, y) = (x.ptr(), rows.ptr(), y.ptr());
    match is_act {
        true => gpu.call(shape, &Put { x, rows, count, y, cols }),
        false => gpu.call(shape, &PutFloat { x, rows, count, y, cols }),
    }
}

/// The lineages of `rows` hypotheses take a step.
pub(super) fn advance(lineage: &GpuLineage, rows: usize) {
    let room = lineage.room;
    lineage.table.gpu().call(
        Shape::grid([rows.div_ceil(THREADS as usize), 32], THREADS),
        &AdvanceLineage {
            lineage: lineage.table.ptr(),
            parents: lineage.parents.ptr(),
            ages: lineage.ages.ptr(),
            clock: lineage.clock.ptr(),
            ring: room.ring() as u32,
            room: room.rows as u32,
            rows: rows as u32,
        },
    );
}

/// Inputs of the last steps, of which there is room for `kept`.
pub(super) struct Ring<'a> {
    pub(super) inputs: &'a Buffer,
    pub(super) kept: usize,
    pub(super) window: usize,
}

/// The mean of the last inputs of each hypothesis.
pub(super) fn window_step(x: &Var, ring: &Ring<'_>, lineage: &GpuLineage, mean: &Buffer) {
    let [rows, cols] = x.shape();
    lineage.table.gpu().call(
        runs(rows, cols),
        &WindowGate {
            x: x.ptr(),
            inputs: ring.inputs.ptr(),
            lineage: lineage.table.ptr(),
            ages: lineage.ages.ptr(),
            clock: lineage.clock.ptr(),
            mean: mean.ptr(),
            window: ring.window as u32,
            kept: ring.kept as u32,
            ring: lineage.room.ring() as u32,
            room: lineage.room.rows as u32,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

impl Norm {
    pub(crate) fn of(params: &Params, norm: Option<BatchNorm>) -> Self {
        let at = |id: fn(BatchNorm) -> ParamId| norm.map_or(Ptr::NULL, |norm| params.master(id(norm)));
        Self {
            gamma: at(|norm| norm.weight),
            beta: at(|norm| norm.bias),
            mean: at(|norm| norm.running_mean),
            variance: at(|norm| norm.running_var),
        }
    }
}

/// The mean of all inputs of each hypothesis, normalised.
pub(super) fn running_step(
    params: &Params,
    x: &Var,
    sums: &Buffer,
    lineage: &GpuLineage,
    norm: Option<BatchNorm>,
    mean: &Buffer,
) {
    let [rows, cols] = x.shape();
    lineage.table.gpu().call(
        runs(rows, cols),
        &RunningGate {
            x: x.ptr(),
            sums: sums.ptr(),
            parents: lineage.parents.ptr(),
            ages: lineage.ages.ptr(),
            clock: lineage.clock.ptr(),
            norm: Norm::of(params, norm),
            mean: mean.ptr(),
            room: lineage.room.rows as u32,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

/// Keys and values of the newest step go to the cache.
pub(super) fn store_kv(qkv: &Var, width: usize, kv: &Buffer, lineage: &GpuLineage) {
    let [rows, stride] = qkv.shape();
    lineage.table.gpu().call(
        runs(2 * rows, width),
        &StoreKv {
            qkv: qkv.ptr(),
            kv: kv.ptr(),
            clock: lineage.clock.ptr(),
            ring: lineage.room.ring() as u32,
            room: lineage.room.rows as u32,
            rows: rows as u32,
            width: width as u32,
            stride: stride as u32,
        },
    );
}

pub(super) fn attention_cached(
    qkv: &Var,
    heads: &Weighted<'_>,
    kv: &Buffer,
    lineage: &GpuLineage,
    out: &Buffer,
) {
    let [rows, stride] = qkv.shape();
    lineage.table.gpu().call(
        heads_shape(rows, heads.count),
        &AttentionCached {
            q: qkv.ptr(),
            q_stride: stride as u32,
            kv: kv.ptr(),
            lineage: lineage.table.ptr(),
            ages: lineage.ages.ptr(),
            clock: lineage.clock.ptr(),
            weights: pointer(heads.weights),
            out: out.ptr(),
            ring: lineage.room.ring() as u32,
            room: lineage.room.rows as u32,
            rows: rows as u32,
            heads: heads.count as u32,
            head_width: heads.width as u32,
        },
    );
}

pub(super) fn attention_memory(gpu: &Gpu, q: &Var, heads: &Weighted<'_>, memory: &Memory<'_>, out: &Buffer) {
    let [rows, stride] = q.shape();
    gpu.call(
        heads_shape(rows, heads.count),
        &AttentionMemory {
            q: q.ptr(),
            q_stride: stride as u32,
            kv: memory.kv.ptr().plus(memory.first_column(heads) * gpu.act().size()),
            kv_stride: memory.kv.cols() as u32,
            spans: memory.spans.pairs().ptr(),
            sentences: memory.sentences.ptr(),
            weights: pointer(heads.weights),
            out: out.ptr(),
            rows: rows as u32,
            heads: heads.count as u32,
            head_width: heads.width as u32,
        },
    );
}

/// Ranked continuations on their way to the host.
pub(crate) struct Ranked {
    arrival: Arrival,
    groups: usize,
    count: usize,
}

pub(super) fn continuations(
    logits: &Tensor,
    live: &[LiveRow],
    groups: &[Range<usize>],
    count: usize,
    symbols: Symbols,
) -> Result<Ranked> {
    let (gpu, rows, types) = (logits.gpu(), live.len(), logits.cols());
    // In one block: scores, penalties, rules; the rows of each group.
    let mut input: Vec<u32> = live.iter().map(|live| live.score.to_bits()).collect();
    input.extend(live.iter().map(|live| live.unknown_penalty.to_bits()));
    input.extend(live.iter().map(|live| live.next as u32));
    input.extend(groups.iter().flat_map(|group| [group.start as u32, group.end as u32]));
    let given = Block::new(gpu, 4 * input.len());
    given.write(0, &input);
    let word = |at: usize| given.ptr().plus(4 * at);
    let of_rows = Block::new(gpu, 4 * 2 * rows * count);
    let (best_scores, best_tokens) = (of_rows.ptr(), of_rows.ptr().plus(4 * rows * count));
    gpu.call(
        Shape::of(rows, if types < 16_384 { BEST_THREADS / 2 } else { BEST_THREADS }),
        &BestRows {
            logits: logits.ptr(),
            types: types as u32,
            scores: word(0),
            penalties: word(rows),
            rules: word(2 * rows),
            pad: symbols.pad,
            end: symbols.end,
            unknown: symbols.unknown,
            count: count as u32,
            best_scores,
            best_tokens,
        },
    );
    best_of_groups(gpu, (best_scores, best_tokens), word(3 * rows), groups.len(), count)
}

/// The `count` best of `number` groups of rows; `best`: scores and tokens of the best of each row, `groups`: first row and end
/// of each.
pub(crate) fn best_of_groups(
    gpu: &Arc<Gpu>,
    (best_scores, best_tokens): (Ptr, Ptr),
    groups: Ptr,
    number: usize,
    count: usize,
) -> Result<Ranked> {
    Ranked::arriving(gpu, number, count, |[scores, rows, tokens]| {
        gpu.call(
            Shape::of(number, 32),
            &BestOfGroups { best_scores, best_tokens, groups, count: count as u32, scores, rows, tokens },
        );
    })
}

impl Ranked {
    /// What `find` puts at the three places: scores, rows and tokens of `count` candidates for each group.
    pub(crate) fn arriving(
        gpu: &Arc<Gpu>,
        groups: usize,
        count: usize,
        find: impl FnOnce([Ptr; 3]),
    ) -> Result<Self> {
        let words = groups * count;
        // A power of two: page-locked memory is used again for copies of the same size.
        let bytes = (12 * words).next_power_of_two();
        let found = Block::new(gpu, bytes);
        find([0, 4 * words, 8 * words].map(|at| found.ptr().plus(at)));
        Ok(Self { arrival: Arrival::of(gpu, found.ptr(), bytes)?, groups, count })
    }

    /// The continuations of each group; waits for them.
    pub(super) fn read(self) -> Result<Vec<Vec<Candidate>>> {
        let words: &[u32] = self.arrival.values()?;
        let of_kind =
            |kind: usize, group: usize| &words[(kind * self.groups + group) * self.count..][..self.count];
        let of_group = |group: usize| {
            let rows_and_tokens = of_kind(1, group).iter().zip(of_kind(2, group));
            let candidates = of_kind(0, group).iter().zip(rows_and_tokens);
            let candidates = candidates.map(|(&score, (&row, &token))| Candidate {
                score: f32::from_bits(score),
                row,
                token,
            });
            candidates.take_while(|candidate| candidate.score.is_finite()).collect()
        };
        Ok((0..self.groups).map(of_group).collect())
    }
}
