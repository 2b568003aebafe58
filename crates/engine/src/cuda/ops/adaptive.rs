//! Rows of a table, rows of a value, rows of several values back in their order. The number of rows that a band has is
//! read from device memory; surplus rows are zeros.

use std::sync::Arc;

use super::elementwise::{GiveRows, TakeRows};
use super::record;
use crate::cuda::launch::Shape;
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::ops::adaptive::{BandedIds, Placing};
use crate::ops::decode::Lineage;
use crate::ops::embed::cuda::{self as embed, BandParts, EmbedBandsBackward, EmbedBandsForward, MOST_BANDS};
use crate::rng::Dropout;
use crate::{Error, Ids, ParamId, Segments, Tape, Var};

/// Takes the rows `rows` of `x`, which has `cols` columns.
fn take(gpu: &Gpu, x: Ptr, rows: &Ids, y: Ptr, cols: usize) {
    let shape = Shape::over_rows(rows.len(), cols);
    gpu.call(shape, &rows_of(x, rows, y, cols));
}

fn rows_of(x: Ptr, rows: &Ids, y: Ptr, cols: usize) -> TakeRows {
    let count = rows.len() as u32;
    TakeRows { x, rows: rows.ptr(), valid: rows.valid(), y, count, cols: cols as u32 }
}

pub(crate) fn lookup(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, table: ParamId, ids: &Ids) -> Var {
    let (rows, cols) = (ids.len(), tape.params.block(table).cols);
    let y = tape.device().scratch(rows * cols);
    take(gpu, tape.params.weights(table), ids, y.ptr(), cols);
    let tracked = tape.is_free(table);
    let y = tape.output([rows, cols], y, tracked);
    let ids = ids.clone();
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        embed::scatter(gpu, backward, table, (&ids, ids.valid()), &dy, None, 1.0);
    });
    y
}

pub(crate) fn take_rows(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, x: &Var, rows: &Ids) -> Var {
    let cols = x.cols();
    let y = tape.device().scratch(rows.len() * cols);
    take(gpu, x.ptr(), rows, y.ptr(), cols);
    let y = tape.output([rows.len(), cols], y, x.tracked());
    let (x, rows) = (x.clone(), rows.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        let (dx, held) = backward.target(&x);
        if dx == Ptr::NULL {
            return;
        }
        if held == 0 {
            gpu.clear(dx, x.tensor().count() * gpu.act().size());
        }
        let shape = Shape::over_rows(rows.len(), cols);
        gpu.call(shape, &GiveRows(rows_of(dy.ptr(), &rows, dx, cols)));
    });
    y
}

/// The rows of all bands, end to end; `None` where there are too many bands.
fn band_parts(parts: &[Var]) -> Option<BandParts> {
    let mut all = BandParts { part: [Ptr::NULL; MOST_BANDS], first: [u32::MAX; MOST_BANDS] };
    let mut first = 0;
    for (band, part) in parts.iter().enumerate() {
        *all.part.get_mut(band)? = part.ptr();
        all.first[band] = first;
        first += part.rows() as u32;
    }
    Some(all)
}

#[expect(clippy::too_many_arguments, reason = "one kernel's arguments")]
pub(crate) fn embed_bands(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    parts: &[Var],
    ids: &BandedIds,
    placing: &Placing<'_>,
    segments: &Segments,
    after: Option<&Lineage>,
    dropout: Option<Dropout>,
) -> Var {
    let (rows, cols, scale) = (ids.len(), placing.positions.cols(), placing.scale);
    let y = tape.device().scratch(rows * cols);
    let offset = after.map_or(gpu.live(Live::Zero), |lineage| lineage.on_gpu().before.ptr());
    match band_parts(parts) {
        Some(bands) => gpu.call(
            Shape::over_rows(rows, cols),
            &EmbedBandsForward {
                bands,
                positions: placing.positions.ptr(),
                places: ids.places().ptr(),
                segments: segments.argument(),
                offset,
                scale,
                dropout: gpu.dropout_argument(dropout),
                y: y.ptr(),
                cols: cols as u32,
            },
        ),
        None => gpu.fail(Error::Gpu(format!(
            "a vocabulary of {} bands; on a GPU there can be {MOST_BANDS}: give fewer cutoffs",
            parts.len()
        ))),
    }
    let y = tape.output([rows, cols], y, parts.iter().any(Var::tracked));
    let (parts, ids) = (parts.to_vec(), ids.clone());
    record(tape, gpu.clone(), &y, move |gpu, backward, dy| {
        for (band, part) in parts.iter().enumerate() {
            let (dz, held) = backward.target(part);
            if dz == Ptr::NULL {
                continue;
            }
            let rows = ids.rows(band);
            gpu.call(
                Shape::over_rows(rows.len(), cols),
                &EmbedBandsBackward {
                    dy: dy.ptr(),
                    rows: rows.ptr(),
                    valid: rows.valid(),
                    dropout: gpu.dropout_argument(dropout),
                    scale,
                    dz,
                    add: held,
                    room: rows.len() as u32,
                    cols: cols as u32,
                },
            );
        }
    });
    y
}
