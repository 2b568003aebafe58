//! Devices: the CPU, or a GPU.

mod buffer;
mod halves;

use std::sync::Arc;

pub(crate) use self::buffer::Buffer;
use self::buffer::{GpuBuffer, HostBuffer, Pool};
pub(crate) use self::halves::to_bf16;
use crate::cpu::gemm::{self, Precision};
use crate::cuda::memory::{Block, Dtype};
use crate::cuda::profile::OpTime;
use crate::cuda::{Gpu, Live};
use crate::usage::Usage;
use crate::{ComputeType, Error, Result, Rng};

/// A place that holds tensors and runs ops. Cheap to clone; clones share their buffers.
#[derive(Clone)]
pub struct Device(Kind, ComputeType, Precision);

#[derive(Clone)]
enum Kind {
    Cpu(Arc<Pool>),
    Gpu(Arc<Gpu>),
}

/// Chooses between the two implementations of an op.
#[derive(Clone, Copy)]
pub(crate) enum Backend<'a> {
    /// `ops/<op>/cpu.rs`.
    Cpu,
    /// `ops/<op>/cuda.rs`, on this GPU.
    Gpu(&'a Arc<Gpu>),
}

/// Number types of a GPU, and of training on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// Activations and factors of products in bfloat16, sums and master weights in f32. On a CPU, factors of products in
    /// training passes only.
    #[default]
    Bf16,
    /// Everything in f32, without the tensor cores' TF32: slower, for checks. What a CPU has if nothing is said.
    F32,
}

impl Device {
    /// The CPU; ops use the threads of the current rayon pool.
    pub fn cpu() -> Self {
        Self(Kind::Cpu(Arc::default()), ComputeType::Auto, Precision::Training)
    }

    /// The CPU, with products of training passes in this number type. The error says that the processor has no
    /// instructions for it. Evaluation computes in f32 in any case.
    pub fn cpu_with(numbers: Numbers) -> Result<Self> {
        let precision = match numbers {
            Numbers::F32 => Precision::Training,
            Numbers::Bf16 if gemm::has_bf16() => Precision::Bf16,
            Numbers::Bf16 => return Err(Error::NoBf16(gemm::instructions())),
        };
        Ok(Self(Kind::Cpu(Arc::default()), ComputeType::Auto, precision))
    }

    /// GPU number `ordinal`. The error says in one sentence why it cannot be used.
    pub fn cuda(ordinal: usize, numbers: Numbers) -> Result<Self> {
        let act = match numbers {
            Numbers::Bf16 => Dtype::Bf16,
            Numbers::F32 => Dtype::F32,
        };
        Gpu::open(ordinal, act).map(|gpu| Self(Kind::Gpu(gpu), ComputeType::Auto, Precision::Training))
    }

    /// The same device for models whose large matrices are held in this number type. GPUs have types of their own
    /// ([`Numbers`]): there, anything but [`ComputeType::Auto`] is an error.
    pub fn holding(&self, compute: ComputeType) -> Result<Self> {
        if self.is_gpu() && compute != ComputeType::Auto {
            return Err(Error::ComputeType(compute));
        }
        Ok(Self(self.0.clone(), compute, self.2))
    }

    /// Precision of products of training passes on a CPU.
    pub(crate) fn training_precision(&self) -> Precision {
        self.2
    }

    /// The number type in which models on this device hold large matrices.
    pub fn compute_type(&self) -> ComputeType {
        self.1
    }

    /// Description of the device in words.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Cpu(_) => {
                let threads = match rayon::current_num_threads() {
                    1 => "1 thread".to_owned(),
                    threads => format!("{threads} threads"),
                };
                let numbers = if self.2 == Precision::Bf16 { ", training in bf16" } else { "" };
                format!("CPU, {threads}, products with {}{numbers}", gemm::instructions())
            }
            Kind::Gpu(gpu) => gpu.describe(),
        }
    }

    /// True for a GPU.
    pub fn is_gpu(&self) -> bool {
        self.gpu().is_some()
    }

    /// The first error of the device since it was opened. A GPU works asynchronously: an error shows when
    /// the host checks, and nothing is done after it.
    pub fn check(&self) -> Result<()> {
        self.gpu().map_or(Ok(()), |gpu| gpu.check())
    }

    /// Waits until all work of the device is done.
    pub fn wait(&self) -> Result<()> {
        let Some(gpu) = self.gpu() else { return Ok(()) };
        gpu.wait();
        gpu.check()
    }

    /// Loads the numbers that differ from one training pass to the next, and that a captured pass reads from device
    /// memory: the step of `rng`, the factor of the loss and that of losses of gates. Before [`Replays::run`](crate::Replays::run); a pass that
    /// runs op by op loads them itself. Nothing to do on the CPU.
    pub fn load_numbers(&self, rng: Rng, loss_weight: f32, own_loss_factor: f32) {
        if let Some(gpu) = self.gpu() {
            gpu.set_live(Live::Step, rng.step());
            gpu.set_live(Live::LossWeight, loss_weight.to_bits());
            gpu.set_live(Live::OwnLossFactor, own_loss_factor.to_bits());
        }
    }

    /// Bytes of memory that this device holds for parameters and ops, in use or free to be used again. On the CPU
    /// without what products need besides.
    pub fn memory_held(&self) -> usize {
        self.usage(|usage| usage.held)
    }

    /// The most bytes of it that were in use at once since the device was opened or the peak was reset.
    pub fn memory_peak(&self) -> usize {
        self.usage(|usage| usage.peak)
    }

    /// Resets [`Device::memory_peak`] to what is in use now.
    pub fn reset_memory_peak(&self) {
        self.usage(Usage::reset_peak);
    }

    fn usage<R>(&self, look: impl FnOnce(&mut Usage) -> R) -> R {
        match &self.0 {
            Kind::Cpu(pool) => look(&mut pool.stock().usage),
            Kind::Gpu(gpu) => look(&mut gpu.memory_usage()),
        }
    }

    /// Gives the host's memory that nobody uses back to the system. A GPU's own comes back by itself when there is none left.
    pub fn trim(&self) {
        match &self.0 {
            Kind::Cpu(pool) => pool.stock().trim(0),
            Kind::Gpu(gpu) => gpu.trim(),
        }
    }

    /// Gives buffers of a CPU of at least so many values back to the system, if nobody uses them.
    pub fn trim_large(&self, values: usize) {
        if let Kind::Cpu(pool) = &self.0 {
            pool.stock().trim(values);
        }
    }

    /// Compiles every kernel for a GPU, using all cores, unless the cache on disk has them; returns their number. Without
    /// this, kernels are compiled when they are first used. Nothing to do on the CPU.
    pub fn compile_kernels(&self) -> Result<usize> {
        self.gpu().map_or(Ok(0), |gpu| gpu.compile_all())
    }

    /// Runs `work` on a GPU op by op and gives the time of each kernel and product, the longest first; no times on the
    /// CPU.
    pub fn profile<R>(&self, work: impl FnOnce() -> R) -> (R, Vec<OpTime>) {
        match self.gpu() {
            None => (work(), Vec::new()),
            Some(gpu) => gpu.profile(work),
        }
    }

    /// The code that computes an op on this device.
    pub(crate) fn backend(&self) -> Backend<'_> {
        match &self.0 {
            Kind::Cpu(_) => Backend::Cpu,
            Kind::Gpu(gpu) => Backend::Gpu(gpu),
        }
    }

    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match &self.0 {
            Kind::Cpu(_) => None,
            Kind::Gpu(gpu) => Some(gpu),
        }
    }

    /// A buffer of `len` activations whose content is left over from earlier use: the caller writes all of it.
    pub(crate) fn scratch(&self, len: usize) -> Buffer {
        self.scratch_of(self.act(), len)
    }

    /// The same, of 32-bit floats on every device.
    pub(crate) fn scratch_floats(&self, len: usize) -> Buffer {
        self.scratch_of(Dtype::F32, len)
    }

    /// The same, of this type.
    pub(crate) fn scratch_of(&self, dtype: Dtype, len: usize) -> Buffer {
        match &self.0 {
            Kind::Cpu(pool) => Buffer::Host(HostBuffer::new(pool, dtype, len)),
            Kind::Gpu(gpu) => {
                Buffer::Gpu(GpuBuffer { block: Block::new(gpu, len * dtype.size()), len, dtype })
            }
        }
    }

    /// Type of activations.
    fn act(&self) -> Dtype {
        self.gpu().map_or(Dtype::F32, |gpu| gpu.act())
    }

    /// A buffer of `len` 32-bit zeros.
    pub(crate) fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.scratch_floats(len);
        match &mut buffer {
            Buffer::Host(host) => host.clear(),
            Buffer::Gpu(gpu) => gpu.block.clear(),
        }
        buffer
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::halves::from_bf16;
    use super::*;
    use crate::cpu::LINE;

    #[test]
    fn buffers_are_reused_when_they_fit() {
        let device = Device::cpu();
        let first = device.scratch(1000);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(device.scratch(980).as_ptr(), address);
        assert_ne!(device.scratch(10).as_ptr(), address);
        assert!(device.zeros(1000).iter().all(|&v| v == 0.0));
    }

    #[test]
    fn numbers_of_16_bits_take_half_the_memory() {
        let device = Device::cpu();
        let mut buffer = device.scratch_of(Dtype::Bf16, 4097);
        assert_eq!((buffer.count(), buffer.dtype()), (4097, Dtype::Bf16));
        assert!(device.memory_held() < 4 * 2500, "{}", device.memory_held());
        buffer.write(4094, &[1.5, -2.0, 1.0 / 3.0]);
        let third = from_bf16(to_bf16(1.0 / 3.0));
        assert_eq!(buffer.range_to_host(4094..4097), [1.5, -2.0, third]);
        let mut larger = device.scratch_of(Dtype::Bf16, 5000);
        larger.copy(&buffer);
        assert_eq!(larger.range_to_host(4095..4097), [-2.0, third]);
        // The memory is anybody's afterwards.
        let address = buffer.halves().as_ptr().cast::<f32>();
        drop(buffer);
        assert_eq!(device.scratch(2049).as_ptr(), address);
    }

    #[test]
    fn large_buffers_that_nobody_uses_are_given_back() {
        let device = Device::cpu();
        let used = device.scratch(1 << 20);
        drop((device.scratch(1000), device.scratch(2 << 20)));
        let before = device.memory_held();
        device.trim_large(1 << 19);
        assert!(before - device.memory_held() >= 4 * (2 << 20));
        let (kept, held) = (device.scratch(1000), device.memory_held());
        assert!(held >= 4 * ((1 << 20) + 1000), "the small one and the one in use are still there");
        drop((used, kept));
        assert_eq!(device.memory_held(), held);
    }

    #[test]
    fn ever_new_sizes_share_buffers() {
        let device = Device::cpu();
        (1000..100_000).step_by(7).for_each(|len| drop(device.scratch(len)));
        let rising = device.memory_held();
        (1000..100_000).rev().step_by(7).for_each(|len| drop(device.scratch(len)));
        assert_eq!(device.memory_held(), rising);
        // Falling sizes share one buffer per doubling.
        device.trim();
        (1000..100_000).rev().step_by(7).for_each(|len| drop(device.scratch(len)));
        assert!(device.memory_held() < 4 * 2 * 110_000, "{}", device.memory_held());
    }

    /// Bytes of a buffer: it has room to begin at a line of the cache.
    fn bytes(len: usize) -> usize {
        4 * len + LINE
    }

    #[test]
    fn values_begin_at_lines_of_the_cache() {
        let device = Device::cpu();
        let all = [0, 1, 16, 1000, 100_000].map(|len| device.zeros(len));
        assert!(all.iter().all(|values| values.as_ptr().align_offset(LINE) == 0));
        assert!([0, 1, 16, 1000, 100_000].iter().zip(&all).all(|(len, values)| values.len() == *len));
    }

    #[test]
    fn memory_is_counted_while_it_is_held() {
        let device = Device::cpu();
        let (kept, freed) = (device.zeros(1024), device.zeros(4096));
        drop(freed);
        assert_eq!(device.memory_held(), bytes(1024) + bytes(4096));
        device.trim();
        assert_eq!((device.memory_held(), kept.count()), (bytes(1024), 1024));
    }

    #[test]
    fn the_peak_is_of_what_is_in_use_at_once() {
        let device = Device::cpu();
        drop(device.zeros(1024));
        let _kept = device.zeros(2048);
        assert_eq!(device.memory_peak(), bytes(2048));
        drop(device.zeros(1024));
        assert_eq!(device.memory_peak(), bytes(1024) + bytes(2048));
        device.reset_memory_peak();
        assert_eq!(device.memory_peak(), bytes(2048));
    }
}
