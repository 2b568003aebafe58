//! The GPU's implementation: one kernel each, and the numbers of a step in device memory.

use std::sync::Arc;

use super::{Adam, Nag};
use crate::cuda::kernel::{Act, kernel_struct, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::cuda::transfer::Arrival;
use crate::cuda::{Gpu, Live};
use crate::{Result, Stream};

/// Partial sums of a norm, per group. Their number decides the order of the sum, so that it is the same on every GPU: a
/// few blocks for each multiprocessor of large ones.
const NORM_PARTS: usize = 1056;
/// Threads of a block that sums.
const SUM_THREADS: usize = 256;

kernel_struct! {
    /// Constants of Adam.
    struct AdamConstants {
        beta1: f32,
        beta2: f32,
        epsilon: f32,
    }
}

kernels! {
    static FILE = "optim" at "optim.cu", constants [SUM_THREADS];

    struct AdamStep = adam {
        p: *mut f32,
        shadow: *mut Act,
        g: *const f32,
        m: *mut f32,
        v: *mut f32,
        c: AdamConstants,
        live: *const f32,
        clip: *const f32,
        failed: *const u32,
        n: u64,
    }

    struct NagStep = nag {
        p: *mut f32,
        shadow: *mut Act,
        g: *const f32,
        u: *mut f32,
        momentum: f32,
        live: *const f32,
        clip: *const f32,
        failed: *const u32,
        n: u64,
    }

    struct SgdStep = sgd {
        p: *mut f32,
        shadow: *mut Act,
        g: *const f32,
        rate: *const f32,
        failed: *const u32,
        n: u64,
    }

    struct RandomSigns = random_signs {
        g: *mut f32,
        key0: u32,
        key1: u32,
        stream: u32,
        step: u32,
        n: u64,
    }

    struct ToAct = to_act { src: *const f32, dst: *mut Act, n: u64 }

    /// Partial sums of squares.
    struct Squares = squares { g: *const f32, n: u64, partials: *mut f64 }

    struct GradientNorm = gradient_norm {
        partials: *const f64,
        count: u32,
        loss_sums: *const f64,
        norm_out: *mut f64,
        clip_limit: f32,
        clip_out: *mut f32,
        failed: *mut u32,
    }
}

/// f32 to the type of activations.
pub(crate) fn to_act(gpu: &Arc<Gpu>, from: Ptr, to: Ptr, count: usize) {
    gpu.call(Shape::over_values(count), &ToAct { src: from, dst: to, n: count as u64 });
}

/// A group's values, their bfloat16 copy and gradient.
pub(super) struct Group {
    pub(super) values: Ptr,
    pub(super) shadow: Ptr,
    pub(super) gradient: Ptr,
    pub(super) count: usize,
}

/// One step of Adam; `size` and `decay` are this step's.
pub(super) fn adam(
    adam: &Adam,
    group: &Group,
    [first, second]: [Ptr; 2],
    [size, decay]: [f32; 2],
    numbers: &GpuNumbers,
) {
    let gpu = &numbers.gpu;
    gpu.set_live(Live::StepSize, size.to_bits());
    gpu.set_live(Live::StepDecay, decay.to_bits());
    gpu.call(
        Shape::over_values(group.count),
        &AdamStep {
            p: group.values,
            shadow: group.shadow,
            g: group.gradient,
            m: first,
            v: second,
            c: AdamConstants { beta1: adam.beta1, beta2: adam.beta2, epsilon: adam.epsilon },
            live: gpu.live(Live::StepSize),
            clip: numbers.at(CLIP),
            failed: numbers.at(FAILED),
            n: group.count as u64,
        },
    );
}

/// One step of Nesterov's accelerated gradient; `rate` and `decay` are this step's.
pub(super) fn nag(nag: &Nag, group: &Group, velocity: Ptr, [rate, decay]: [f32; 2], numbers: &GpuNumbers) {
    let gpu = &numbers.gpu;
    gpu.set_live(Live::StepSize, rate.to_bits());
    gpu.set_live(Live::StepDecay, decay.to_bits());
    gpu.call(
        Shape::over_values(group.count),
        &NagStep {
            p: group.values,
            shadow: group.shadow,
            g: group.gradient,
            u: velocity,
            momentum: nag.momentum,
            live: gpu.live(Live::StepSize),
            clip: numbers.at(CLIP),
            failed: numbers.at(FAILED),
            n: group.count as u64,
        },
    );
}

/// One step of plain gradient descent.
pub(super) fn sgd(group: &Group, rate: f32, numbers: &GpuNumbers) {
    let gpu = &numbers.gpu;
    gpu.set_live(Live::SgdRate, rate.to_bits());
    gpu.call(
        Shape::over_values(group.count),
        &SgdStep {
            p: group.values,
            shadow: group.shadow,
            g: group.gradient,
            rate: gpu.live(Live::SgdRate),
            failed: numbers.at(FAILED),
            n: group.count as u64,
        },
    );
}

/// to ← to + factor·from, 32-bit floats; `never` is a word of zero.
pub(crate) fn add_scaled(gpu: &Arc<Gpu>, [to, from]: [Ptr; 2], (factor, never): (f32, Ptr), count: usize) {
    gpu.set_live(Live::SgdRate, (-factor).to_bits());
    let (shadow, rate) = (Ptr::NULL, gpu.live(Live::SgdRate));
    let step = SgdStep { p: to, shadow, g: from, rate, failed: never, n: count as u64 };
    gpu.call(Shape::over_values(count), &step);
}

/// Random signs for a group's gradient.
pub(super) fn random_signs(gpu: &Arc<Gpu>, group: &Group, stream: Stream) {
    let ([key0, key1], number) = stream.address();
    gpu.call(
        Shape::over_values(group.count),
        &RandomSigns {
            g: group.gradient,
            key0,
            key1,
            stream: number,
            step: stream.step(),
            n: group.count as u64,
        },
    );
}

/// The numbers of a step in device memory.
pub(super) struct GpuNumbers {
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
    pub(super) fn new(gpu: &Arc<Gpu>) -> Self {
        let block = Block::new(gpu, BYTES);
        block.clear();
        gpu.set_word(block.ptr().plus(CLIP), 1f32.to_bits());
        Self { gpu: gpu.clone(), block, partials: Block::new(gpu, 8 * NORM_PARTS * MOST_GROUPS) }
    }

    fn at(&self, place: usize) -> Ptr {
        self.block.ptr().plus(place)
    }

    /// Sums begin at 0 again; a failure stays.
    pub(super) fn begin(&self) {
        for word in 0..4 {
            self.gpu.set_word(self.at(LOSS + 4 * word), 0);
        }
    }

    /// Address of the two sums.
    pub(super) fn losses(&self) -> Ptr {
        self.at(LOSS)
    }

    /// Replaces the sums.
    pub(super) fn set_losses(&self, losses: [f64; 2]) {
        for (i, loss) in losses.into_iter().enumerate() {
            let bits = loss.to_bits();
            for (half, word) in [bits as u32, (bits >> 32) as u32].into_iter().enumerate() {
                self.gpu.set_word(self.at(LOSS + 8 * i + 4 * half), word);
            }
        }
    }

    /// Adds per-row losses to the sums.
    pub(super) fn add(&self, losses: &crate::Tensor) {
        crate::ops::cross_entropy::cuda::sum_losses(&self.gpu, losses, self.at(LOSS), true);
    }

    /// The norm of the gradients of `groups`. A `limit` above 0 sets the factor that keeps the norm below it; a limit
    /// without `report` leaves the reported norm alone.
    pub(super) fn norm(&self, groups: &[Group], limit: f32, report: bool) {
        assert!(groups.len() <= MOST_GROUPS);
        for (i, group) in groups.iter().enumerate() {
            let partials = self.partials.ptr().plus(8 * NORM_PARTS * i);
            let squares = Squares { g: group.gradient, n: group.count as u64, partials };
            self.gpu.call(Shape::of(NORM_PARTS, SUM_THREADS as u32), &squares);
        }
        self.gpu.call(
            Shape::of(1, SUM_THREADS as u32),
            &GradientNorm {
                partials: self.partials.ptr(),
                count: (NORM_PARTS * groups.len()) as u32,
                loss_sums: self.at(LOSS),
                norm_out: self.at(if report { NORM } else { CLIP_NORM }),
                clip_limit: limit,
                clip_out: self.at(CLIP),
                failed: self.at(FAILED),
            },
        );
    }

    /// Begins to copy `[loss, nll, norm]` to the host.
    pub(super) fn read(&self) -> Result<GpuReading> {
        Arrival::of(&self.gpu, self.at(LOSS), CLIP_NORM - LOSS).map(GpuReading)
    }
}

/// Three numbers on their way to the host.
pub(super) struct GpuReading(Arrival);

impl GpuReading {
    pub(super) fn is_ready(&self) -> bool {
        self.0.has_come()
    }

    pub(super) fn wait(&self) -> Result<[f64; 3]> {
        Ok(self.0.values()?.try_into().expect("three doubles were copied"))
    }
}
