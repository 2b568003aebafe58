//! Optimisers and norms over flat buffers, and the numbers of a step.

use std::sync::Arc;

use crate::Result;
use crate::cuda::compile::Unit;
use crate::cuda::launch::{Argument, Shape};
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::transfer::Arrival;
use crate::cuda::{Gpu, Live};
use crate::optim::Adam;

use super::elementwise::flat;

fn unit() -> Unit {
    Unit::plain("optim")
}

/// Partial sums of a norm, per group.
const NORM_PARTS: usize = 1056;

/// f32 to the type of activations.
pub(crate) fn to_act(gpu: &Arc<Gpu>, from: Ptr, to: Ptr, count: usize) {
    gpu.launch(&unit(), "to_act", flat(count), &[&from, &to, &(count as u64)]);
}

/// Constants of Adam, as the kernel takes them.
#[repr(C)]
struct AdamConstants {
    beta1: f32,
    beta2: f32,
    epsilon: f32,
}

// SAFETY: `repr(C)` with the fields of the kernel's struct.
unsafe impl Argument for AdamConstants {}

/// A group's values, their bfloat16 copy and gradient.
pub(crate) struct Group {
    pub(crate) values: Ptr,
    pub(crate) shadow: Ptr,
    pub(crate) gradient: Ptr,
    pub(crate) count: usize,
}

/// One step of Adam; `size` and `decay` are this step's.
pub(crate) fn adam(
    gpu: &Arc<Gpu>,
    adam: &Adam,
    group: &Group,
    [first, second]: [Ptr; 2],
    [size, decay]: [f32; 2],
    numbers: &GpuNumbers,
) {
    gpu.set_live(Live::StepSize, size.to_bits());
    gpu.set_live(Live::StepDecay, decay.to_bits());
    let constants = AdamConstants { beta1: adam.beta1, beta2: adam.beta2, epsilon: adam.epsilon };
    gpu.launch(
        &unit(),
        "adam",
        flat(group.count),
        &[
            &group.values,
            &group.shadow,
            &group.gradient,
            &first,
            &second,
            &constants,
            &gpu.live(Live::StepSize),
            &numbers.at(CLIP),
            &numbers.at(FAILED),
            &(group.count as u64),
        ],
    );
}

/// One step of Nesterov's accelerated gradient; `rate` and `decay` are this step's.
pub(crate) fn nag(
    gpu: &Arc<Gpu>,
    momentum: f32,
    group: &Group,
    velocity: Ptr,
    [rate, decay]: [f32; 2],
    numbers: &GpuNumbers,
) {
    gpu.set_live(Live::StepSize, rate.to_bits());
    gpu.set_live(Live::StepDecay, decay.to_bits());
    gpu.launch(
        &unit(),
        "nag",
        flat(group.count),
        &[
            &group.values,
            &group.shadow,
            &group.gradient,
            &velocity,
            &momentum,
            &gpu.live(Live::StepSize),
            &numbers.at(CLIP),
            &numbers.at(FAILED),
            &(group.count as u64),
        ],
    );
}

/// One step of plain gradient descent.
pub(crate) fn sgd(gpu: &Arc<Gpu>, group: &Group, rate: f32, numbers: &GpuNumbers) {
    gpu.set_live(Live::SgdRate, rate.to_bits());
    gpu.launch(
        &unit(),
        "sgd",
        flat(group.count),
        &[
            &group.values,
            &group.shadow,
            &group.gradient,
            &gpu.live(Live::SgdRate),
            &numbers.at(FAILED),
            &(group.count as u64),
        ],
    );
}

/// The numbers of a step in device memory.
pub(crate) struct GpuNumbers {
    gpu: Arc<Gpu>,
    block: Block,
    partials: Block,
}

// Places in the block, in bytes.
const LOSS: usize = 0;
const NORM: usize = 16;
const CLIP_NORM: usize = 24;
const CLIP: usize = 32;
const FAILED: usize = 36;
const BYTES: usize = 40;

/// Groups that a norm may span.
const MOST_GROUPS: usize = 8;

impl GpuNumbers {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Self {
        let block = Block::new(gpu, BYTES);
        block.clear();
        gpu.set_word(block.ptr().plus(CLIP), 1f32.to_bits());
        Self { gpu: gpu.clone(), block, partials: Block::new(gpu, 8 * NORM_PARTS * MOST_GROUPS) }
    }

    fn at(&self, place: usize) -> Ptr {
        self.block.ptr().plus(place)
    }

    /// Sums begin at 0 again; a failure stays.
    pub(crate) fn begin(&self) {
        for word in 0..4 {
            self.gpu.set_word(self.at(LOSS + 4 * word), 0);
        }
    }

    /// Adds per-row losses to the sums.
    pub(crate) fn add(&self, losses: &crate::Tensor) {
        super::cross_entropy::sum_losses(&self.gpu, losses, self.at(LOSS), true);
    }

    /// The norm of the gradients of `groups`. A `limit` above 0 sets the factor that keeps the norm below it; a limit
    /// without `report` leaves the reported norm alone.
    pub(crate) fn norm(&self, groups: &[Group], limit: f32, report: bool) {
        assert!(groups.len() <= MOST_GROUPS);
        for (i, group) in groups.iter().enumerate() {
            let partials = self.partials.ptr().plus(8 * NORM_PARTS * i);
            let arguments: [&dyn Argument; 3] = [&group.gradient, &(group.count as u64), &partials];
            self.gpu.launch(&unit(), "squares", Shape::of(NORM_PARTS, 256), &arguments);
        }
        let norm = self.at(if report { NORM } else { CLIP_NORM });
        self.gpu.launch(
            &unit(),
            "gradient_norm",
            Shape::of(1, 256),
            &[
                &self.partials.ptr(),
                &((NORM_PARTS * groups.len()) as u32),
                &self.at(LOSS),
                &norm,
                &limit,
                &self.at(CLIP),
                &self.at(FAILED),
            ],
        );
    }

    /// Begins to copy `[loss, nll, norm]` to the host.
    pub(crate) fn read(&self) -> Result<GpuReading> {
        Arrival::of(&self.gpu, self.at(LOSS), CLIP_NORM - LOSS).map(GpuReading)
    }
}

/// Three numbers on their way to the host.
pub(crate) struct GpuReading(Arrival);

impl GpuReading {
    pub(crate) fn is_ready(&self) -> bool {
        self.0.has_come()
    }

    pub(crate) fn wait(&self) -> Result<[f64; 3]> {
        Ok(self.0.values()?.try_into().expect("three doubles were copied"))
    }
}
