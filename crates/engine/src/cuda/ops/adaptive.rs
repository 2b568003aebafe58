//! Rows of a table, rows of a value, rows of several values back in their order. How many rows of a band there really
//! are is read from device memory; surplus rows are zeros.

use std::sync::Arc;

use super::linear::record;
use super::{by_rows, embed};
use crate::cuda::compile::Unit;
use crate::cuda::launch::Argument;
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::ops::adaptive::{BandedIds, Placing};
use crate::ops::decode::Lineage;
use crate::rng::Dropout;
use crate::{Error, Ids, ParamId, Segments, Tape, Var};

/// Rows by index, either way; `x` and `y` as the kernel names them.
fn move_rows(gpu: &Gpu, kernel: &'static str, x: Ptr, rows: &Ids, y: Ptr, cols: usize) {
    gpu.launch(
        &Unit::plain("elementwise"),
        kernel,
        by_rows(rows.len(), cols),
        &[&x, &rows.ptr(), &rows.valid(), &y, &(rows.len() as u32), &(cols as u32)],
    );
}

pub(crate) fn lookup(tape: &mut Tape<'_>, gpu: &Arc<Gpu>, table: ParamId, ids: &Ids) -> Var {
    let (rows, cols) = (ids.len(), tape.params.block(table).cols);
    let y = tape.device().scratch(rows * cols);
    move_rows(gpu, "take_rows", tape.params.weights(table), ids, y.ptr(), cols);
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
    move_rows(gpu, "take_rows", x.ptr(), rows, y.ptr(), cols);
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
        move_rows(gpu, "give_rows", dy.ptr(), &rows, dx, cols);
    });
    y
}

/// Bands that a kernel takes.
const MOST_BANDS: usize = 8;

/// `Bands` of the kernel.
#[repr(C)]
struct Parts {
    part: [Ptr; MOST_BANDS],
    first: [u32; MOST_BANDS],
}

// SAFETY: `repr(C)` with the fields of the kernel's struct.
unsafe impl Argument for Parts {}

impl Parts {
    /// `None` where there are too many.
    fn of(parts: &[Var]) -> Option<Self> {
        let mut all = Self { part: [Ptr::NULL; MOST_BANDS], first: [u32::MAX; MOST_BANDS] };
        let mut first = 0;
        for (band, part) in parts.iter().enumerate() {
            *all.part.get_mut(band)? = part.ptr();
            all.first[band] = first;
            first += part.rows() as u32;
        }
        Some(all)
    }
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
    match Parts::of(parts) {
        Some(bands) => gpu.launch(
            &Unit::plain("embed"),
            "embed_bands_forward",
            by_rows(rows, cols),
            &[
                &bands,
                &placing.positions.ptr(),
                &ids.places().ptr(),
                &segments.argument(),
                &offset,
                &scale,
                &gpu.dropout_argument(dropout),
                &y.ptr(),
                &(cols as u32),
            ],
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
            gpu.launch(
                &Unit::plain("embed"),
                "embed_bands_backward",
                by_rows(rows.len(), cols),
                &[
                    &dy.ptr(),
                    &rows.ptr(),
                    &rows.valid(),
                    &gpu.dropout_argument(dropout),
                    &scale,
                    &dz,
                    &held,
                    &(rows.len() as u32),
                    &(cols as u32),
                ],
            );
        }
    });
    y
}
