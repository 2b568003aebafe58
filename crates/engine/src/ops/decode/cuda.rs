//! The GPU's implementation: attention of single rows, lineages, the best next tokens.

use std::ops::Range;

use super::attention::{Heads, Memory};
use super::best::{Candidate, Constraints, Continuations, Groups, ranked};
use super::lineage::{GpuLineage, Room};
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;
use crate::{Ids, Tensor, Var};

/// Threads of a block.
const THREADS: u32 = 256;
/// Threads of a block that looks for the best of a large vocabulary.
const BEST_THREADS: u32 = 512;

kernels! {
    static FILE = "decode" at "decode.cu", constants [THREADS, BEST_THREADS];

    /// Keys and values of the newest step go to the cache.
    struct StoreKv = store_kv {
        qkv: *const Act,
        kv: *mut Act,
        before: *const u32,
        room: u32,
        rows: u32,
        width: u32,
    }

    /// Lineages take a step.
    struct AdvanceLineage = advance_lineage {
        lineage: *mut u32,
        parents: *const u32,
        before: *const u32,
        steps: u32,
        room: u32,
        rows: u32,
    }

    /// Running means of inputs.
    struct RunningGate = running_gate {
        x: *const Act,
        sums: *mut f32,
        parents: *const u32,
        before: *const u32,
        mean: *mut Act,
        room: u32,
        rows: u32,
        cols: u32,
    }

    /// Means of the last inputs.
    struct WindowGate = window_gate {
        x: *const Act,
        ring: *mut Act,
        lineage: *const u32,
        before: *const u32,
        mean: *mut Act,
        window: u32,
        kept: u32,
        steps: u32,
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
        before: *const u32,
        weights: *const f32,
        out: *mut Act,
        steps: u32,
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
        starts: *const u32,
        sentences: *const u32,
        weights: *const f32,
        out: *mut Act,
        rows: u32,
        heads: u32,
        head_width: u32,
    }

    struct Gather = gather { x: *const Act, rows: *const u32, y: *mut Act, count: u32, cols: u32 }
    struct GatherFloat = gather_float { x: *const f32, rows: *const u32, y: *mut f32, count: u32, cols: u32 }

    /// Best continuations of each row of logits.
    struct BestContinuations = best_rows {
        logits: *const Act,
        types: u32,
        scores: *const f32,
        forbidden: *const u32,
        forbidden_count: u32,
        penalised: *const u32,
        penalties: *const f32,
        penalty_count: u32,
        count: u32,
        best_scores: *mut f32,
        best_tokens: *mut u32,
        end_scores: *mut f32,
        end_token: u32,
    }
}

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

/// The lineages of `rows` hypotheses take a step.
pub(super) fn advance(lineage: &GpuLineage, rows: usize) {
    let Room { rows: room, steps } = lineage.room;
    lineage.table.gpu().call(
        Shape::grid([rows.div_ceil(THREADS as usize), 32], THREADS),
        &AdvanceLineage {
            lineage: lineage.table.ptr(),
            parents: lineage.parents.ptr(),
            before: lineage.before.ptr(),
            steps: steps as u32,
            room: room as u32,
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
            ring: ring.inputs.ptr(),
            lineage: lineage.table.ptr(),
            before: lineage.before.ptr(),
            mean: mean.ptr(),
            window: ring.window as u32,
            kept: ring.kept as u32,
            steps: lineage.room.steps as u32,
            room: lineage.room.rows as u32,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

/// The mean of all inputs of each hypothesis.
pub(super) fn running_step(x: &Var, sums: &Buffer, lineage: &GpuLineage, mean: &Buffer) {
    let [rows, cols] = x.shape();
    lineage.table.gpu().call(
        runs(rows, cols),
        &RunningGate {
            x: x.ptr(),
            sums: sums.ptr(),
            parents: lineage.parents.ptr(),
            before: lineage.before.ptr(),
            mean: mean.ptr(),
            room: lineage.room.rows as u32,
            rows: rows as u32,
            cols: cols as u32,
        },
    );
}

pub(super) fn attention_cached(
    qkv: &Var,
    heads: &Heads<'_>,
    kv: &Buffer,
    lineage: &GpuLineage,
    out: &Buffer,
) {
    let (gpu, rows, width) = (lineage.table.gpu(), qkv.rows(), qkv.cols() / 3);
    let (before, room) = (lineage.before.ptr(), lineage.room.rows as u32);
    let store =
        StoreKv { qkv: qkv.ptr(), kv: kv.ptr(), before, room, rows: rows as u32, width: width as u32 };
    gpu.call(runs(2 * rows, width), &store);
    gpu.call(
        heads_shape(rows, heads.count),
        &AttentionCached {
            q: qkv.ptr(),
            q_stride: 3 * width as u32,
            kv: kv.ptr(),
            lineage: lineage.table.ptr(),
            before,
            weights: pointer(heads.weights),
            out: out.ptr(),
            steps: lineage.room.steps as u32,
            room,
            rows: rows as u32,
            heads: heads.count as u32,
            head_width: (width / heads.count) as u32,
        },
    );
}

pub(super) fn attention_memory(gpu: &Gpu, q: &Var, heads: &Heads<'_>, memory: &Memory<'_>, out: &Buffer) {
    let [rows, width] = q.shape();
    gpu.call(
        heads_shape(rows, heads.count),
        &AttentionMemory {
            q: q.ptr(),
            q_stride: width as u32,
            kv: memory.kv.ptr(),
            starts: memory.keys.argument().starts,
            sentences: memory.sentences.ptr(),
            weights: pointer(heads.weights),
            out: out.ptr(),
            rows: rows as u32,
            heads: heads.count as u32,
            head_width: (width / heads.count) as u32,
        },
    );
}

pub(super) fn continuations(
    logits: &Tensor,
    groups: &Groups<'_>,
    count: usize,
    constraints: &Constraints,
    end: u32,
) -> Continuations {
    let found = best_rows(logits, groups.scores, count, constraints, end);
    let open = groups.going_on.iter().map(|group| found.merge(group.clone(), count)).collect();
    let closed = groups.at_limit.iter().map(|group| found.ends(group.clone(), end)).collect();
    Continuations { open, closed }
}

/// The best continuations of each row, on the host.
struct BestRows {
    count: usize,
    scores: Vec<f32>,
    tokens: Vec<u32>,
    end_scores: Vec<f32>,
}

/// Looks at as many rows of `logits` as there are scores.
fn best_rows(logits: &Tensor, scores: &[f32], count: usize, constraints: &Constraints, end: u32) -> BestRows {
    let (gpu, rows, types) = (logits.gpu(), scores.len(), logits.cols());
    // In one block each way: scores, forbidden and penalised tokens, penalties; best scores and tokens, end scores.
    let mut input: Vec<u32> = scores.iter().map(|score| score.to_bits()).collect();
    input.extend(&constraints.forbidden);
    input.extend(constraints.penalties.iter().map(|(token, _)| *token));
    input.extend(constraints.penalties.iter().map(|(_, penalty)| penalty.to_bits()));
    let given = Block::new(gpu, 4 * input.len());
    given.write(0, &input);
    let word = |at: usize| given.ptr().plus(4 * at);
    let (forbidden, penalised) = (constraints.forbidden.len(), constraints.penalties.len());
    let found = Block::new(gpu, 4 * rows * (2 * count + 1));
    let output = |at: usize| found.ptr().plus(4 * at);
    gpu.call(
        Shape::of(rows, if types < 16_384 { BEST_THREADS / 2 } else { BEST_THREADS }),
        &BestContinuations {
            logits: logits.ptr(),
            types: types as u32,
            scores: word(0),
            forbidden: word(rows),
            forbidden_count: forbidden as u32,
            penalised: word(rows + forbidden),
            penalties: word(rows + forbidden + penalised),
            penalty_count: penalised as u32,
            count: count as u32,
            best_scores: output(0),
            best_tokens: output(rows * count),
            end_scores: output(2 * rows * count),
            end_token: end,
        },
    );
    let mut words = vec![0u32; rows * (2 * count + 1)];
    found.read(0, &mut words);
    let floats = |words: &[u32]| words.iter().map(|&bits| f32::from_bits(bits)).collect();
    BestRows {
        count,
        scores: floats(&words[..rows * count]),
        tokens: words[rows * count..2 * rows * count].to_vec(),
        end_scores: floats(&words[2 * rows * count..]),
    }
}

impl BestRows {
    /// The `count` best continuations over a run of rows.
    fn merge(&self, rows: Range<usize>, count: usize) -> Vec<Candidate> {
        let of_row = |row: usize| {
            let range = row * self.count..(row + 1) * self.count;
            let each = self.scores[range.clone()].iter().zip(&self.tokens[range]);
            each.map(move |(&score, &token)| Candidate { score, row: row as u32, token })
        };
        let mut all = ranked(rows.flat_map(of_row).collect());
        all.truncate(count);
        all
    }

    /// A run of rows closed with the end mark.
    fn ends(&self, rows: Range<usize>, end: u32) -> Vec<Candidate> {
        ranked(
            rows.map(|row| Candidate { score: self.end_scores[row], row: row as u32, token: end }).collect(),
        )
    }
}
