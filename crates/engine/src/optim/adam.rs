//! Adam, as fairseq writes it.

use std::ops::Range;

use super::numbers::{Memory, StepNumbers};
use super::{cpu, cuda, gpu_group};
use crate::device::Buffer;
use crate::params::{Gradients, GroupId, Params};
use crate::{HostCopy, Result};

/// Adam's constants, as fairseq v0.9 uses them: decoupled decay, ε outside the bias correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// β₁.
    pub beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// ε.
    pub epsilon: f32,
    /// Decay: p −= rate·decay·p before the step.
    pub weight_decay: f32,
}

/// Adam's running moments of one group, or of a part of it.
pub struct Moments {
    group: GroupId,
    /// Values of the group that they belong to.
    range: Range<usize>,
    first: Buffer,
    second: Buffer,
}

impl Moments {
    /// Zero moments for `group`.
    pub fn new(params: &Params, group: GroupId) -> Self {
        let zeros = || params.device().zeros(params.group_len(group));
        Self { group, range: 0..params.group_len(group), first: zeros(), second: zeros() }
    }

    /// The group they belong to.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Keeps those of a part of the group: other values stay as they are in [`Adam::step`]. For CPUs.
    pub fn keep(&mut self, range: Range<usize>) {
        [&mut self.first, &mut self.second].into_iter().for_each(|moments| moments.keep(range.clone()));
        self.range = range;
    }

    /// Both moments as they are now.
    pub fn copies(&self) -> Result<[HostCopy; 2]> {
        Ok([HostCopy::of(&self.first)?, HostCopy::of(&self.second)?])
    }

    /// Takes both moments from the host; `false` if the sizes differ.
    pub fn set(&mut self, first: &[f32], second: &[f32]) -> bool {
        let fits = first.len() == self.first.count() && second.len() == self.second.count();
        if fits {
            self.first.write(0, first);
            self.second.write(0, second);
        }
        fits
    }
}

impl Adam {
    /// Update number `t` (from 1): m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²;
    /// p −= rate·wd·p; p −= rate·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v + ε), g times the clipping factor of `numbers`.
    pub fn step(
        &self,
        params: &mut Params,
        gradients: &Gradients,
        moments: &mut Moments,
        rate: f32,
        t: u64,
        numbers: &StepNumbers,
    ) {
        let correct = |beta: f32| 1.0 - f64::from(beta).powf(t as f64);
        let size = (f64::from(rate) * correct(self.beta2).sqrt() / correct(self.beta1)) as f32;
        let (decay, group) = (rate * self.weight_decay, moments.group);
        let Moments { first, second, range, .. } = moments;
        match &numbers.0 {
            Memory::Host(numbers) if numbers.failed => {}
            Memory::Host(numbers) => {
                let (p, g) = (params.group_mut(group), gradients.group(group));
                let (p, g) = (&mut p[range.clone()], &g[range.clone()]);
                cpu::adam(self, p, g, [first, second], [size, decay, numbers.clip]);
            }
            Memory::Gpu(numbers) => {
                let group = gpu_group(params, gradients, group);
                cuda::adam(self, &group, [first.ptr(), second.ptr()], [size, decay], numbers);
            }
        }
    }
}
