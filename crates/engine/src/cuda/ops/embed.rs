//! Token embeddings with positions.

use std::sync::Arc;

use crate::cuda::compile::Unit;
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::ops::decode::Lineage;
use crate::ops::embed::Embedding;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{Error, Ids, ParamId, Segments, Tape, Var};

pub(crate) fn embed(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    e: Embedding<'_>,
    ids: &Ids,
    segments: &Segments,
    after: Option<&Lineage>,
    dropout: Option<Dropout>,
) -> Var {
    let table = tape.params.block(e.table);
    let (cols, rows) = (table.cols, ids.len());
    let y = tape.device().scratch(rows * cols);
    let offset = after.map_or(gpu.live(Live::Zero), |lineage| lineage.on_gpu().before.ptr());
    gpu.launch(
        &Unit::plain("embed"),
        "embed_forward",
        super::by_rows(rows, cols),
        &[
            &tape.params.master(e.table),
            &e.positions.ptr(),
            &ids.ptr(),
            &segments.argument(),
            &offset,
            &e.scale,
            &gpu.dropout_argument(dropout),
            &y.ptr(),
            &(cols as u32),
        ],
    );
    let tracked = tape.is_free(e.table);
    let y = tape.output([rows, cols], y, tracked);
    let (ids, segments, table, scale) = (ids.clone(), segments.clone(), e.table, e.scale);
    super::linear::record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        scatter(gpu, backward, table, (&ids, segments.valid_rows()), &dy, dropout, scale);
    });
    y
}

/// Rows that the scattering kernel can number.
const MOST_ROWS: usize = 1 << 22;

/// `dE[id] += scale·dropout·dy`, for so many rows as device memory says.
pub(super) fn scatter(
    gpu: &Gpu,
    backward: &mut Backward<'_>,
    table: ParamId,
    (ids, rows): (&Ids, Ptr),
    dy: &Buffer,
    dropout: Option<Dropout>,
    scale: f32,
) {
    let block = backward.params.block(table);
    let (cols, types) = (block.cols, block.rows);
    let (target, held) = backward.param_target(table);
    if target == Ptr::NULL {
        return;
    }
    if ids.len() > MOST_ROWS {
        return gpu.fail(Error::Gpu(format!(
            "a batch of {} tokens; on a GPU there can be {MOST_ROWS}: make batches smaller",
            ids.len()
        )));
    }
    // A power of two, so that a block finds its ids by their low bits: 1,024 of them at most, and 128 blocks in all,
    // which run at once.
    let widths = cols.div_ceil(256);
    let blocks = types.div_ceil(1024).max(128_usize.div_ceil(widths)).next_power_of_two();
    gpu.launch(
        &Unit::plain("embed"),
        "embed_backward",
        Shape::grid([blocks, widths], 512),
        &[
            &ids.ptr(),
            &dy.ptr(),
            &rows,
            &gpu.dropout_argument(dropout),
            &scale,
            &target,
            &held,
            &(cols as u32),
            &(types as u32),
        ],
    );
}
