//! Search: attention of single rows, lineages, the best next tokens.

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::device::Buffer;
use crate::ops::decode::{Candidate, Constraints, GpuLineage, Lineage, Room, ranked};
use crate::{Ids, Segments, Tape, Tensor, Var};

fn unit() -> Unit {
    Unit::plain("decode")
}

/// Threads of 256-thread blocks that each take eight columns of a row.
fn runs(rows: usize, cols: usize) -> Shape {
    Shape::of((rows * cols.div_ceil(8)).div_ceil(256), 256)
}

/// One warp per row and head.
fn heads_shape(rows: usize, heads: usize) -> Shape {
    Shape::grid([rows.div_ceil(8), heads], 256)
}

fn pointer(tensor: Option<&Tensor>) -> Ptr {
    tensor.map_or(Ptr::NULL, Tensor::ptr)
}

/// The lineages of `rows` hypotheses take a step.
pub(crate) fn advance(lineage: &GpuLineage, rows: usize) {
    let Room { rows: room, steps } = lineage.room;
    lineage.table.gpu().launch(
        &unit(),
        "advance_lineage",
        Shape::grid([rows.div_ceil(256), 32], 256),
        &[
            &lineage.table.ptr(),
            &lineage.parents.ptr(),
            &lineage.before.ptr(),
            &(steps as u32),
            &(room as u32),
            &(rows as u32),
        ],
    );
}

/// The mean of the last inputs of each hypothesis; `kept` steps have room in the ring.
pub(crate) fn window_step(
    tape: &mut Tape<'_>,
    x: &Var,
    ring: &Buffer,
    [window, kept]: [usize; 2],
    lineage: &Lineage,
) -> Tensor {
    let (rows, cols, lineage) = (x.rows(), x.cols(), lineage.on_gpu());
    let mean = tape.device().scratch(rows * cols);
    lineage.table.gpu().launch(
        &unit(),
        "window_gate",
        runs(rows, cols),
        &[
            &x.ptr(),
            &ring.ptr(),
            &lineage.table.ptr(),
            &lineage.before.ptr(),
            &mean.ptr(),
            &(window as u32),
            &(kept as u32),
            &(lineage.room.steps as u32),
            &(lineage.room.rows as u32),
            &(rows as u32),
            &(cols as u32),
        ],
    );
    Tensor::new([rows, cols], mean)
}

pub(crate) fn attention_cached(
    tape: &mut Tape<'_>,
    qkv: &Var,
    heads: usize,
    kv: &Buffer,
    lineage: &Lineage,
    weights: Option<&Tensor>,
) -> Var {
    let (rows, width, lineage) = (qkv.rows(), qkv.cols() / 3, lineage.on_gpu());
    let gpu = lineage.table.gpu();
    let [room, steps, n, d] = [lineage.room.rows, lineage.room.steps, rows, width].map(|n| n as u32);
    let before = lineage.before.ptr();
    gpu.launch(&unit(), "store_kv", runs(2 * rows, width), &[&qkv.ptr(), &kv.ptr(), &before, &room, &n, &d]);
    let out = tape.device().scratch(rows * width);
    gpu.launch(
        &unit(),
        "attention_cached",
        heads_shape(rows, heads),
        &[
            &qkv.ptr(),
            &(3 * d),
            &kv.ptr(),
            &lineage.table.ptr(),
            &before,
            &pointer(weights),
            &out.ptr(),
            &steps,
            &room,
            &n,
            &(heads as u32),
            &((width / heads) as u32),
        ],
    );
    Var::constant(Tensor::new([rows, width], out))
}

#[expect(clippy::too_many_arguments, reason = "one kernel's arguments")]
pub(crate) fn attention_memory(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    q: &Var,
    heads: usize,
    kv: &Tensor,
    keys: &Segments,
    sentences: &Ids,
    weights: Option<&Tensor>,
) -> Var {
    let (rows, width) = (q.rows(), q.cols());
    let out = tape.device().scratch(rows * width);
    gpu.launch(
        &unit(),
        "attention_memory",
        heads_shape(rows, heads),
        &[
            &q.ptr(),
            &(width as u32),
            &kv.ptr(),
            &keys.argument().starts,
            &sentences.ptr(),
            &pointer(weights),
            &out.ptr(),
            &(rows as u32),
            &(heads as u32),
            &((width / heads) as u32),
        ],
    );
    Var::constant(Tensor::new([rows, width], out))
}

pub(crate) fn running_step(tape: &mut Tape<'_>, x: &Var, sums: &Buffer, lineage: &Lineage) -> Tensor {
    let (rows, cols, lineage) = (x.rows(), x.cols(), lineage.on_gpu());
    let mean = tape.device().scratch(rows * cols);
    lineage.table.gpu().launch(
        &unit(),
        "running_gate",
        runs(rows, cols),
        &[
            &x.ptr(),
            &sums.ptr(),
            &lineage.parents.ptr(),
            &lineage.before.ptr(),
            &mean.ptr(),
            &(lineage.room.rows as u32),
            &(rows as u32),
            &(cols as u32),
        ],
    );
    Tensor::new([rows, cols], mean)
}

/// The best continuations of each row, on the host.
pub(crate) struct BestRows {
    count: usize,
    scores: Vec<f32>,
    tokens: Vec<u32>,
    end_scores: Vec<f32>,
}

/// Looks at as many rows of `logits` as there are scores.
pub(crate) fn best_rows(
    logits: &Tensor,
    scores: &[f32],
    count: usize,
    constraints: &Constraints,
    end: u32,
) -> BestRows {
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
    gpu.launch(
        &unit(),
        "best_rows",
        Shape::of(rows, if types < 16_384 { 256 } else { 512 }),
        &[
            &logits.ptr(),
            &(types as u32),
            &word(0),
            &word(rows),
            &(forbidden as u32),
            &word(rows + forbidden),
            &word(rows + forbidden + penalised),
            &(penalised as u32),
            &(count as u32),
            &output(0),
            &output(rows * count),
            &output(2 * rows * count),
            &end,
        ],
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
    pub(crate) fn merge(&self, rows: Range<usize>, count: usize) -> Vec<Candidate> {
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
    pub(crate) fn ends(&self, rows: Range<usize>, end: u32) -> Vec<Candidate> {
        ranked(
            rows.map(|row| Candidate { score: self.end_scores[row], row: row as u32, token: end }).collect(),
        )
    }
}
