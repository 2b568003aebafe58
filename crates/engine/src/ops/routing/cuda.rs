//! The GPU's implementation: a thread for each row. Rows that use a head are counted block by block.

use std::sync::Arc;

use super::{Balance, Op, Routing};
use crate::Var;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::{Shape, ValidRows};
use crate::cuda::memory::Ptr;
use crate::cuda::{Gpu, Live};
use crate::device::Buffer;
use crate::tape::Backward;

const THREADS: u32 = 128;

kernels! {
    static FILE = "routing" at "routing.cu", constants [THREADS];

    struct Forward = route_forward {
        logits: *const Act,
        shares: *mut f32,
        weights: *mut f32,
        used: *mut f32,
        valid: *const u32,
        n: u32,
        heads: u32,
        shared: u32,
        active: u32,
    }

    struct BackwardCall = route_backward {
        dw: *const f32,
        shares: *const f32,
        weights: *const f32,
        used: *const f32,
        parts: u32,
        valid: *const u32,
        batch_rows: *const u32,
        loss_weight: *const f32,
        factor: *const f32,
        balance: f32,
        d_logits: *mut Act,
        add: u32,
        n: u32,
        heads: u32,
        shared: u32,
    }
}

/// Blocks of a launch over `rows` rows, and parts of the counts.
pub(super) fn parts(rows: usize) -> usize {
    rows.div_ceil(THREADS as usize)
}

fn shape(rows: usize) -> Shape {
    Shape::of(parts(rows), THREADS)
}

pub(super) fn forward(
    gpu: &Arc<Gpu>,
    logits: &Var,
    routing: Routing,
    [shares, weights]: [&Buffer; 2],
    balance: Option<&Balance>,
) {
    let [rows, cols] = logits.shape();
    let valid = balance.map(|balance| ValidRows::of(gpu, &balance.rows, rows));
    let call = Forward {
        logits: logits.ptr(),
        shares: shares.ptr(),
        weights: weights.ptr(),
        used: balance.map_or(Ptr::NULL, |balance| balance.used.ptr()),
        valid: valid.as_ref().map_or(Ptr::NULL, |valid| valid.at),
        n: rows as u32,
        heads: (cols - 2) as u32,
        shared: routing.shared as u32,
        active: routing.active as u32,
    };
    gpu.call(shape(rows), &call);
}

pub(super) fn backward(gpu: &Arc<Gpu>, backward: &mut Backward<'_>, op: &Op, dw: &Buffer) {
    let (d_logits, add) = backward.target(&op.logits);
    if d_logits == Ptr::NULL {
        return;
    }
    let rows = op.logits.rows();
    let balance = op.balance.as_ref();
    let valid = balance.map(|balance| ValidRows::of(gpu, &balance.rows, rows));
    let call = BackwardCall {
        dw: dw.ptr(),
        shares: op.shares.ptr(),
        weights: op.weights.ptr(),
        used: balance.map_or(Ptr::NULL, |balance| balance.used.ptr()),
        parts: parts(rows) as u32,
        valid: valid.as_ref().map_or(Ptr::NULL, |valid| valid.at),
        batch_rows: balance.map_or(Ptr::NULL, |balance| balance.batch.rows.valid_rows()),
        loss_weight: gpu.live(Live::LossWeight),
        factor: gpu.live(Live::OwnLossFactor),
        balance: balance.map_or(0.0, |balance| op.routing.balance / balance.batch.gates as f32),
        d_logits,
        add,
        n: rows as u32,
        heads: op.heads as u32,
        shared: op.routing.shared as u32,
    };
    gpu.call(shape(rows).shared(4 * op.routed()), &call);
}
