//! The GPU's implementation.

use super::{Op, Positions};
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{self, Shape};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::ops::decode::Lineage;
use crate::params::Params;
use crate::rng::Dropout;
use crate::tape::Backward;
use crate::{Error, Ids, ParamId};

/// Warps of a block that adds gradients up, and types that it has room for.
const WARPS: usize = 16;
const MAX_SLOTS: usize = 1024;
/// Bits that number the rows of a batch.
const ROW_BITS: usize = 22;

/// A row with its position, for the kernels of all embeddings.
pub(crate) const EMBED_ROW: (&str, &str) = ("embed_row.cuh", include_str!("embed_row.cuh"));

kernels! {
    static FILE = "embed" at "embed.cu",
        constants [WARPS, MAX_SLOTS, ROW_BITS], headers &[EMBED_ROW];

    struct EmbedForward = embed_forward {
        table: *const f32,
        positions: *const f32,
        ids: *const u32,
        segments: launch::Segments,
        ages: *const u32,
        scale: f32,
        dropout: launch::Dropout,
        y: *mut Act,
        cols: u32,
    }

    struct EmbedBackward = embed_backward {
        ids: *const u32,
        dy: *const Act,
        valid_rows: *const u32,
        dropout: launch::Dropout,
        scale: f32,
        d_table: *mut f32,
        add: u32,
        cols: u32,
        types: u32,
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    params: &Params,
    op: &Op,
    positions: Positions<'_>,
    after: Option<&Lineage>,
    y: &Buffer,
) {
    let (rows, cols) = (op.ids.len(), positions.cols(params));
    let positions = match positions {
        Positions::Fixed(table) => table.ptr(),
        Positions::Stored(id) => params.master(id),
    };
    let ages = after.map_or(Ptr::NULL, |lineage| lineage.on_gpu().ages.ptr());
    gpu.call(
        Shape::over_rows(rows, cols),
        &EmbedForward {
            table: params.master(op.table),
            positions,
            ids: op.ids.ptr(),
            segments: op.segments.argument(),
            ages,
            scale: op.scale,
            dropout: gpu.dropout_argument(op.dropout),
            y: y.ptr(),
            cols: cols as u32,
        },
    );
}

pub(super) fn backward(gpu: &Gpu, backward: &mut Backward<'_>, op: &Op, dy: &Buffer) {
    let rows = op.segments.valid_rows();
    scatter(gpu, backward, op.table, (&op.ids, rows), dy, op.dropout, op.scale);
}

/// Rows that the scattering kernel can number.
const MOST_ROWS: usize = 1 << ROW_BITS;

/// `dE[id] += scale·dropout·dy`, for so many rows as device memory says.
pub(crate) fn scatter(
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
    // A power of two, so that a block finds its ids by their low bits: MAX_SLOTS of them at most. 128 blocks in all run
    // at once; no sum depends on their number.
    let widths = cols.div_ceil(256);
    let blocks = types.div_ceil(MAX_SLOTS).max(128_usize.div_ceil(widths)).next_power_of_two();
    gpu.call(
        Shape::grid([blocks, widths], 32 * WARPS as u32),
        &EmbedBackward {
            ids: ids.ptr(),
            dy: dy.ptr(),
            valid_rows: rows,
            dropout: gpu.dropout_argument(dropout),
            scale,
            d_table: target,
            add: held,
            cols: cols as u32,
            types: types as u32,
        },
    );
}
