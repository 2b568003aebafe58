//! The GPU's implementation. The number of rows that a band has is read from device memory; surplus rows are zeros.

use super::Bands;
use super::rows::EmbedBands;
use super::softmax::BandFeatures;
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::{Dropout, Segments as Sentences, Shape};
use crate::cuda::memory::Ptr;
use crate::device::Buffer;
use crate::ops::cross_entropy::cuda::{ROW_THREADS, SOFTMAX_ROW, pitched_logits};
use crate::ops::decode::Lineage;
use crate::ops::embed::cuda::{EMBED_ROW, scatter};
use crate::params::Params;
use crate::tape::Backward;
use crate::{Error, Ids, ParamId, Segments, Tensor, Var};

/// Bands that a kernel takes.
const MOST_BANDS: usize = 8;

kernel_struct! {
    /// The rows of all bands, end to end: those from `first[b]` on are `part[b]`'s.
    struct BandParts {
        part: [*const Act; MOST_BANDS],
        first: [u32; MOST_BANDS],
    }
}

kernels! {
    static FILE = "adaptive" at "adaptive.cu", constants [MOST_BANDS, ROW_THREADS],
        headers &[EMBED_ROW, SOFTMAX_ROW];

    /// Rows by index, as many as there really are; zeros for the others.
    struct TakeRows = take_rows {
        x: *const Act,
        rows: *const u32,
        valid: *const u32,
        y: *mut Act,
        count: u32,
        cols: u32,
    }
    /// The way back: rows are added to where they came from.
    struct GiveRows = give_rows(TakeRows);

    /// Rows of bands with their positions.
    struct EmbedBandsForward = embed_bands_forward {
        bands: BandParts,
        positions: *const f32,
        places: *const u32,
        segments: Sentences,
        ages: *const u32,
        scale: f32,
        dropout: Dropout,
        y: *mut Act,
        cols: u32,
    }

    /// Gradient of one band's rows.
    struct EmbedBandsBackward = embed_bands_backward {
        dy: *const Act,
        rows: *const u32,
        valid: *const u32,
        dropout: Dropout,
        scale: f32,
        dz: *mut Act,
        add: u32,
        room: u32,
        cols: u32,
    }

    /// Adds losses of a tail to those of all rows.
    struct AddTail = add_tail {
        tail_log_probs: *const f32,
        tail_losses: *const f32,
        rows: *const u32,
        valid: *const u32,
        log_probs: *mut f32,
        losses: *mut f32,
        count: u32,
    }

    /// ln p of the words of one band.
    struct BandLogProbs = band_log_probs {
        head: *const Act,
        head_types: u32,
        class_of_tail: u32,
        tail: *const Act,
        y: *mut Act,
        first: u32,
        count: u32,
        types: u32,
    }
}

fn rows_of(x: Ptr, rows: &Ids, y: Ptr, cols: usize) -> TakeRows {
    let count = rows.len() as u32;
    TakeRows { x, rows: rows.ptr(), valid: rows.valid(), y, count, cols: cols as u32 }
}

/// The rows of `x`, which has `cols` columns, that `rows` names.
pub(super) fn take(gpu: &Gpu, x: Ptr, rows: &Ids, cols: usize, y: &Buffer) {
    gpu.call(Shape::over_rows(rows.len(), cols), &rows_of(x, rows, y.ptr(), cols));
}

pub(super) fn lookup_backward(
    gpu: &Gpu,
    backward: &mut Backward<'_>,
    table: ParamId,
    ids: &Ids,
    dy: &Buffer,
) {
    scatter(gpu, backward, table, (ids, ids.valid()), dy, None, 1.0);
}

pub(super) fn take_backward(gpu: &Gpu, backward: &mut Backward<'_>, x: &Var, rows: &Ids, dy: &Buffer) {
    let (dx, held) = backward.target(x);
    if dx == Ptr::NULL {
        return;
    }
    if held == 0 {
        gpu.clear(dx, x.tensor().count() * gpu.act().size());
    }
    let shape = Shape::over_rows(rows.len(), x.cols());
    gpu.call(shape, &GiveRows(rows_of(dy.ptr(), rows, dx, x.cols())));
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

pub(super) fn embed_bands(
    gpu: &Gpu,
    op: &EmbedBands,
    positions: &Tensor,
    segments: &Segments,
    after: Option<&Lineage>,
    y: &Buffer,
) {
    let Some(bands) = band_parts(&op.parts) else {
        return gpu.fail(Error::Gpu(format!(
            "a vocabulary of {} bands; on a GPU there can be {MOST_BANDS}: give fewer cutoffs",
            op.parts.len()
        )));
    };
    let (rows, cols) = (op.ids.len(), positions.cols());
    let ages = after.map_or(Ptr::NULL, |lineage| lineage.on_gpu().ages.ptr());
    gpu.call(
        Shape::over_rows(rows, cols),
        &EmbedBandsForward {
            bands,
            positions: positions.ptr(),
            places: op.ids.places().ptr(),
            segments: segments.argument(),
            ages,
            scale: op.scale,
            dropout: gpu.dropout_argument(op.dropout),
            y: y.ptr(),
            cols: cols as u32,
        },
    );
}

pub(super) fn embed_bands_backward(gpu: &Gpu, backward: &mut Backward<'_>, op: &EmbedBands, dy: &Buffer) {
    for (band, part) in op.parts.iter().enumerate() {
        let (dz, add) = backward.target(part);
        if dz == Ptr::NULL {
            continue;
        }
        let (rows, cols) = (op.ids.rows(band), part.cols());
        gpu.call(
            Shape::over_rows(rows.len(), cols),
            &EmbedBandsBackward {
                dy: dy.ptr(),
                rows: rows.ptr(),
                valid: rows.valid(),
                dropout: gpu.dropout_argument(op.dropout),
                scale: op.scale,
                dz,
                add,
                room: rows.len() as u32,
                cols: cols as u32,
            },
        );
    }
}

/// Adds the loss of row i of `tail` to row `rows[i]` of `all`, for as many rows as there really are; losses `[., 2]`,
/// then log-probabilities `[., 1]`.
pub(crate) fn add_tail(gpu: &Gpu, all: [&Tensor; 2], tail: [&Tensor; 2], rows: &Ids) {
    gpu.call(
        Shape::of(rows.len().div_ceil(256), 256),
        &AddTail {
            tail_log_probs: tail[1].ptr(),
            tail_losses: tail[0].ptr(),
            rows: rows.ptr(),
            valid: rows.valid(),
            log_probs: all[1].ptr(),
            losses: all[0].ptr(),
            count: rows.len() as u32,
        },
    );
}

/// ln p of all words, band by band.
pub(super) fn log_probs(gpu: &Gpu, params: &Params, features: &[BandFeatures], bands: &Bands, y: &Buffer) {
    let [head, tails @ ..] = features else { return };
    let (rows, words) = (head.x.rows(), bands.range(0).len());
    let head_logits = pitched_logits(gpu, params, &head.x, head.vocabulary);
    for band in 0..bands.count() {
        let tail = band.checked_sub(1).map(|index| {
            let BandFeatures { x, vocabulary } = &tails[index];
            pitched_logits(gpu, params, x, *vocabulary)
        });
        let range = bands.range(band);
        gpu.call(
            Shape::of(rows, ROW_THREADS as u32),
            &BandLogProbs {
                head: head_logits.ptr(),
                head_types: params.block(head.vocabulary).rows as u32,
                class_of_tail: (words + band).saturating_sub(1) as u32,
                tail: tail.as_ref().map_or(Ptr::NULL, Buffer::ptr),
                y: y.ptr(),
                first: range.start as u32,
                count: range.len() as u32,
                types: bands.types() as u32,
            },
        );
    }
}
