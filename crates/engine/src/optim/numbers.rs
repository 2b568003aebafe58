//! Numbers of a step: summed losses, the norm of the gradient, the clipping factor.

use super::cuda::{GpuNumbers, GpuReading, Group};
use super::{cpu, gpu_group};
use crate::Result;
use crate::cuda::memory::Ptr;
use crate::device::Device;
use crate::ops::cross_entropy::LossSums;
use crate::params::{Gradients, GroupId, GroupSet, Params};

/// Numbers of a step on its device: losses, the norm of the gradient, the clipping factor, and whether something was
/// not finite.
pub struct StepNumbers(pub(super) Memory);

/// The memory that holds them.
pub(super) enum Memory {
    Host(HostNumbers),
    Gpu(GpuNumbers),
}

pub(super) struct HostNumbers {
    loss: f64,
    nll: f64,
    norm: f64,
    pub(super) clip: f32,
    pub(super) failed: bool,
}

impl StepNumbers {
    /// Nothing summed, nothing clipped, nothing failed.
    pub fn new(device: &Device) -> Self {
        let host = HostNumbers { loss: 0.0, nll: 0.0, norm: 0.0, clip: 1.0, failed: false };
        Self(device.gpu().map_or(Memory::Host(host), |gpu| Memory::Gpu(GpuNumbers::new(gpu))))
    }

    /// A step begins: the losses are 0 again. A failure stays.
    pub fn begin(&mut self) {
        match &mut self.0 {
            Memory::Host(host) => (host.loss, host.nll) = (0.0, 0.0),
            Memory::Gpu(gpu) => gpu.begin(),
        }
    }

    /// Adds the losses of a batch.
    pub fn add(&mut self, sums: &LossSums) {
        match (&mut self.0, sums.per_row()) {
            (Memory::Gpu(gpu), Some(losses)) => gpu.add(losses),
            (Memory::Host(host), _) => {
                host.loss += sums.smoothed();
                host.nll += sums.nll();
            }
            (Memory::Gpu(_), None) => unreachable!("losses of a GPU are on it"),
        }
    }

    /// The losses so far, which begin at 0 again; on the CPU.
    pub(crate) fn take_losses(&mut self) -> [f64; 2] {
        match &mut self.0 {
            Memory::Host(host) => [std::mem::take(&mut host.loss), std::mem::take(&mut host.nll)],
            Memory::Gpu(_) => unreachable!("losses of a GPU are summed there"),
        }
    }

    /// Adds losses, on the CPU.
    pub(crate) fn add_losses(&mut self, [loss, nll]: [f64; 2]) {
        if let Memory::Host(host) = &mut self.0 {
            host.loss += loss;
            host.nll += nll;
        }
    }

    /// Address of the losses in the memory of a GPU: two doubles.
    pub(crate) fn losses_on_gpu(&self) -> Option<Ptr> {
        match &self.0 {
            Memory::Host(_) => None,
            Memory::Gpu(gpu) => Some(gpu.losses()),
        }
    }

    /// The losses so far, waiting for the device.
    pub(crate) fn read_losses(&self) -> Result<[f64; 2]> {
        let [loss, nll, _] = match &self.0 {
            Memory::Host(host) => [host.loss, host.nll, 0.0],
            Memory::Gpu(gpu) => gpu.read()?.wait()?,
        };
        Ok([loss, nll])
    }

    /// Replaces the losses.
    pub(crate) fn write_losses(&mut self, losses: [f64; 2]) {
        match &mut self.0 {
            Memory::Host(host) => [host.loss, host.nll] = losses,
            Memory::Gpu(gpu) => gpu.set_losses(losses),
        }
    }

    /// The Euclidean norm of the gradients of `groups`; a `limit` above 0 clips them to it.
    pub fn norm(&mut self, params: &Params, gradients: &Gradients, groups: GroupSet, limit: f64) {
        self.measure(params, gradients, groups, limit, true);
    }

    /// Clips by the norm of `groups` without reporting it.
    pub fn clip(&mut self, params: &Params, gradients: &Gradients, groups: GroupSet, limit: f64) {
        self.measure(params, gradients, groups, limit, false);
    }

    fn measure(
        &mut self,
        params: &Params,
        gradients: &Gradients,
        groups: GroupSet,
        limit: f64,
        report: bool,
    ) {
        let used = groups_of(params, groups);
        match &mut self.0 {
            Memory::Gpu(gpu) => {
                let groups: Vec<Group> =
                    used.into_iter().map(|group| gpu_group(params, gradients, group)).collect();
                gpu.norm(&groups, limit as f32, report);
            }
            Memory::Host(host) => {
                let norm = cpu::norm(gradients, &used);
                host.clip = if limit > 0.0 { (limit / (norm + 1e-6)).min(1.0) as f32 } else { 1.0 };
                host.failed |= !(host.loss.is_finite() && norm.is_finite());
                if report {
                    host.norm = norm;
                }
            }
        }
    }

    /// Begins to read the numbers as they will be when everything asked for so far is done.
    pub fn read(&self) -> Result<Reading> {
        Ok(Reading(match &self.0 {
            Memory::Host(host) => Source::Host([host.loss, host.nll, host.norm]),
            Memory::Gpu(gpu) => Source::Gpu(gpu.read()?),
        }))
    }
}

/// Numbers on their way from the device.
pub struct Reading(Source);

enum Source {
    Host([f64; 3]),
    Gpu(GpuReading),
}

/// Losses summed over target tokens, in nats, and the norm of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossAndNorm {
    /// Smoothed loss.
    pub loss: f64,
    /// Negative log likelihood.
    pub nll: f64,
    /// Norm of the gradient, before clipping.
    pub norm: f64,
}

impl Reading {
    /// Returns true if they are here.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Source::Host(_) => true,
            Source::Gpu(reading) => reading.is_ready(),
        }
    }

    /// The numbers, waiting for the device if need be.
    pub fn wait(&self) -> Result<LossAndNorm> {
        let [loss, nll, norm] = match &self.0 {
            Source::Host(numbers) => *numbers,
            Source::Gpu(reading) => reading.wait()?,
        };
        Ok(LossAndNorm { loss, nll, norm })
    }
}

fn groups_of(params: &Params, groups: GroupSet) -> Vec<GroupId> {
    (0..32).map(GroupId).filter(|&group| groups.contains(group) && params.group_len(group) > 0).collect()
}
