//! A gate's network and the expert picked by it, without a gradient.

use std::sync::Arc;

use super::batch_norm;
use super::mixture::picking;
use super::pool::{self, Pooled};
use crate::cuda::Gpu;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::{Dtype, Ptr};
use crate::cuda::product::{Epilogue, Factor, Product};
use crate::device::Buffer;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::mixture::{GateNetwork, HeadMix, Pick};
use crate::ops::pool::Pooling;
use crate::rng::{Dropout, Stream};
use crate::tape::RealRows;
use crate::{Tape, Tensor, Var};

/// Hidden units and experts that the kernels can take.
const MOST_HIDDEN: usize = 1024;
const MOST_EXPERTS: usize = 32;

/// Whether [`pick_by_gate`] can do it.
pub(crate) fn fits(tape: &Tape<'_>, network: &GateNetwork) -> bool {
    let [hidden, experts] = [network.fc1[0], network.fc2[0]].map(|id| tape.params.block(id).rows);
    hidden <= MOST_HIDDEN && experts <= MOST_EXPERTS
}

/// A gate's pooling, norm, network and pick; `streams`: of the dropout and of the pick.
pub(crate) fn pick_by_gate(
    tape: &mut Tape<'_>,
    gpu: &Arc<Gpu>,
    (x, pooling): (&Var, Pooling<'_>),
    (norm, network): (BatchNorm, &GateNetwork),
    experts: &Tensor,
    pick: &Pick,
    streams: (Option<Dropout>, Option<Stream>),
) -> HeadMix {
    let (count, heads, hidden) = (experts.rows(), experts.cols(), tape.params.block(network.fc1[0]).rows);
    let input = Input::of(tape, gpu, (x, pooling), norm, hidden);
    let rows = input.rows.rows();
    let gates = tape.device().scratch_floats(rows * count);
    let weights = tape.device().scratch_floats(rows * heads);
    let (picking, _held) = picking(gpu, pick, streams.1);
    let dropout = gpu.dropout_argument(streams.0);
    let sizes = [hidden, rows, count, heads].map(|n| n as u32);
    let [b1, b2] = [network.fc1[1], network.fc2[1]].map(|id| tape.params.master(id));
    // Both kernels take the same after their inputs.
    let launch = |unit: Unit, kernel, shape, inputs: &[&dyn Argument], w2: Ptr| {
        let outputs = [gates.ptr(), weights.ptr()];
        let rest: [&dyn Argument; 12] = [
            &b1,
            &dropout,
            &w2,
            &b2,
            &sizes[0],
            &experts.ptr(),
            &picking,
            &outputs[0],
            &outputs[1],
            &sizes[1],
            &sizes[2],
            &sizes[3],
        ];
        gpu.launch(&unit, kernel, shape, &[inputs, &rest].concat());
    };
    if let Some(norm) = &input.norm {
        let width = input.rows.cols();
        let [w1, w2] = [network.fc1[0], network.fc2[0]].map(|id| tape.params.weights(id));
        let unit = Unit { file: "gate", macros: vec![("GATE_WIDTH", width as u32)] };
        let shape = network_shape(gpu, rows, width, count);
        launch(unit, "gate_network", shape, &[&input.rows.ptr(), norm, &w1], w2);
    } else {
        let x = batch_norm::batch_norm(tape, gpu, &input.rows, norm);
        let z = first_layer(tape, gpu, &x, network);
        let unit = Unit { file: "gate", macros: vec![("GATE_RUNS", hidden.div_ceil(256) as u32)] };
        let w2 = tape.params.master(network.fc2[0]);
        launch(unit, "gate_pick", Shape::of(rows.div_ceil(8), 256), &[&z.ptr()], w2);
    }
    let weights = Var::constant(Tensor::new([rows, heads], weights));
    HeadMix { weights, gates: Tensor::new([rows, count], gates) }
}

/// Whether `gate_network` can take these sizes.
fn on_tensor_cores(gpu: &Gpu, width: usize, hidden: usize) -> bool {
    gpu.act() == Dtype::Bf16
        && width.is_power_of_two()
        && (64..=1024).contains(&width)
        && hidden.is_multiple_of(32)
}

/// The launch of `gate_network`, as it says.
fn network_shape(gpu: &Gpu, rows: usize, width: usize, count: usize) -> Shape {
    let cluster = if gpu.has_clusters() { 2 } else { 1 };
    let block_rows = 32 * cluster;
    let (table, inputs, logits) = (4 * 1024, 2 * block_rows * (width + 32), 1024 * count.next_multiple_of(8));
    let room = if cluster > 1 { inputs + logits } else { inputs.max(logits) };
    Shape::of(cluster * rows.div_ceil(block_rows), 256).shared(table + room)
}

/// What a gate's network reads.
struct Input {
    rows: Var,
    /// How `gate_network` is to norm the rows; `None` where it cannot.
    norm: Option<Norm>,
    /// The statistics that `norm` points to.
    _pooled: Option<Pooled>,
}

/// `Norm` of the kernels.
#[repr(C)]
struct Norm {
    valid: Ptr,
    mean: Ptr,
    variance: Ptr,
    gamma: Ptr,
    beta: Ptr,
}

// SAFETY: `repr(C)` with the fields of the kernels' struct.
unsafe impl Argument for Norm {}

impl Input {
    fn of(
        tape: &mut Tape<'_>,
        gpu: &Arc<Gpu>,
        (x, pooling): (&Var, Pooling<'_>),
        norm: BatchNorm,
        hidden: usize,
    ) -> Self {
        let fits = on_tensor_cores(gpu, x.cols(), hidden);
        let pooled = match fits && tape.is_training() {
            true => pool::with_statistics(tape, gpu, x, pooling, norm),
            false => None,
        };
        let rows = pooled.as_ref().map_or_else(|| tape.pool(x, pooling), |pooled| pooled.rows.clone());
        let master = |id| tape.params.master(id);
        let statistics = match &pooled {
            Some(pooled) => Some([pooled.mean.ptr(), pooled.variance.ptr()]),
            None if tape.is_training() => None,
            None => Some([norm.running_mean, norm.running_var].map(master)),
        };
        let norm = statistics.filter(|_| fits).map(|[mean, variance]| {
            let valid = match rows.real_rows() {
                RealRows::Sentences(segments) => segments.valid_sentences(),
                RealRows::Rows(segments) => segments.valid_rows(),
                RealRows::All => Ptr::NULL,
            };
            Norm { valid, mean, variance, gamma: master(norm.weight), beta: master(norm.bias) }
        });
        Self { rows, norm, _pooled: pooled }
    }
}

/// z = W₁·x.
fn first_layer(tape: &Tape<'_>, gpu: &Arc<Gpu>, x: &Var, network: &GateNetwork) -> Buffer {
    let block = tape.params.block(network.fc1[0]);
    let (hidden, width) = (block.rows, block.cols);
    let z = tape.device().scratch(x.rows() * hidden);
    gpu.product(&Product {
        size: [x.rows(), hidden, width],
        a: Factor::new(x.ptr(), width),
        b: Factor::new(tape.params.weights(network.fc1[0]), width).t(),
        c: z.ptr(),
        c_cols: hidden,
        out: gpu.act(),
        add: false,
        epilogue: Epilogue::Nothing,
        bias: Ptr::NULL,
    });
    z
}
