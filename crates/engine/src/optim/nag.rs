//! Nesterov's accelerated gradient, as fairseq writes it.

use std::ops::Range;

use super::numbers::{Memory, StepNumbers};
use super::{cpu, cuda, gpu_group};
use crate::device::Buffer;
use crate::params::{Gradients, GroupId, Params};
use crate::{HostCopy, Result};

/// fairseq's NAG: gradient descent with Nesterov's momentum, corrected for changes of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nag {
    /// μ.
    pub momentum: f32,
    /// Decay: p −= rate·decay·p before the step.
    pub weight_decay: f32,
}

/// NAG's memory of one group: the velocity divided by the rate it was made with.
pub struct Velocity {
    group: GroupId,
    /// Values of the group that it belongs to.
    range: Range<usize>,
    values: Buffer,
}

impl Velocity {
    /// At rest.
    pub fn new(params: &Params, group: GroupId) -> Self {
        let length = params.group_len(group);
        Self { group, range: 0..length, values: params.device().zeros(length) }
    }

    /// The group it belongs to.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Keeps that of a part of the group: other values stay as they are in [`Nag::step`]. For CPUs.
    pub fn keep(&mut self, range: Range<usize>) {
        self.values.keep(range.clone());
        self.range = range;
    }

    /// Its values as they are now.
    pub fn copy(&self) -> Result<HostCopy> {
        HostCopy::of(&self.values)
    }

    /// Takes values from the host; `false` if the sizes differ.
    pub fn set(&mut self, values: &[f32]) -> bool {
        let fits = values.len() == self.values.count();
        if fits {
            self.values.write(0, values);
        }
        fits
    }
}

impl Nag {
    /// One update. fairseq keeps v and corrects it by r, the rate divided by the one before: p += μ²·r·v − (1+μ)·rate·g;
    /// v ← μ·r·v − rate·g. With u = v/rate that is p += rate·(μ²·u − (1+μ)·g); u ← μ·u − g, and the rate before is not
    /// needed. g is times the clipping factor of `numbers`.
    pub fn step(
        &self,
        params: &mut Params,
        gradients: &Gradients,
        velocity: &mut Velocity,
        rate: f32,
        numbers: &StepNumbers,
    ) {
        let (decay, group) = (rate * self.weight_decay, velocity.group);
        let (range, values) = (velocity.range.clone(), &mut velocity.values);
        match &numbers.0 {
            Memory::Host(numbers) if numbers.failed => {}
            Memory::Host(numbers) => {
                let (p, g) = (params.group_mut(group), gradients.group(group));
                let (p, g) = (&mut p[range.clone()], &g[range]);
                cpu::nag(self, p, g, values, [rate, decay, numbers.clip]);
            }
            Memory::Gpu(_) if params.group_len(group) == 0 => {}
            Memory::Gpu(numbers) => {
                let group = gpu_group(params, gradients, group);
                cuda::nag(self, &group, values.ptr(), [rate, decay], numbers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, GroupSet, ParamsBuilder};

    /// fairseq's own formula, with its correction for changing rates, worked out in f64.
    #[test]
    fn nag_follows_fairseq() {
        let group = GroupId(0);
        let mut builder = ParamsBuilder::default();
        let id = builder.vector("p".into(), 2, group);
        let mut params = builder.finish(&Device::cpu());
        params.set("p", &[1.0, -2.0]).unwrap();
        let mut gradients = params.gradients();
        let mut velocity = Velocity::new(&params, group);
        let mut numbers = StepNumbers::new(&Device::cpu());
        let nag = Nag { momentum: 0.99, weight_decay: 0.01 };
        let (mut p, mut v, mut before) = ([1.0f64, -2.0], [0.0f64; 2], None);
        for (t, rate) in [0.1f64, 0.3, 0.25, 0.01].into_iter().enumerate() {
            let g = [0.5, -1.5].map(|g| g * (t as f64 - 1.5));
            gradients.clear();
            gradients.slot(id).0.copy_from_slice(&g.map(|g| g as f32));
            numbers.norm(&params, &gradients, GroupSet::of(&[group]), 0.6);
            nag.step(&mut params, &gradients, &mut velocity, rate as f32, &numbers);
            let clip = (0.6 / (g[0].hypot(g[1]) + 1e-6)).min(1.0);
            let correct = rate / before.replace(rate).unwrap_or(rate);
            for i in 0..2 {
                p[i] *= 1.0 - rate * 0.01;
                p[i] += 0.99 * 0.99 * correct * v[i] - 1.99 * rate * clip * g[i];
                v[i] = 0.99 * correct * v[i] - rate * clip * g[i];
            }
        }
        for (got, want) in params.get("p").unwrap().iter().zip(p) {
            assert!((f64::from(*got) - want).abs() < 1e-5, "{got} for {want}");
        }
    }
}
