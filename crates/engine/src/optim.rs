//! Optimisers and norms: each one loop over the flat buffer of a group; and the numbers of a step.
//!
//! A step whose loss or gradient norm is not a number changes nothing: [`StepNumbers`] notes the failure, and the
//! optimisers look there first. So a GPU can be asked for the next step before anybody has seen the loss of this one.

mod nag;

pub use nag::{Nag, Velocity};
use rayon::prelude::*;

use crate::cpu::vectorised;
use crate::cuda::ops::optim::{self as gpu_ops, GpuNumbers, GpuReading, Group};
use crate::device::{Buffer, Device};
use crate::ops::cross_entropy::LossSums;
use crate::params::{Gradients, GroupId, GroupSet, Params};
use crate::{HostCopy, Result};

/// Values that one task takes.
const CHUNK: usize = 1 << 14;

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

/// Adam's running moments of one group.
pub struct Moments {
    group: GroupId,
    first: Buffer,
    second: Buffer,
}

impl Moments {
    /// Zero moments for `group`.
    pub fn new(params: &Params, group: GroupId) -> Self {
        let zeros = || params.device().zeros(params.group_len(group));
        Self { group, first: zeros(), second: zeros() }
    }

    /// The group they belong to.
    pub fn group(&self) -> GroupId {
        self.group
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
        let decay = rate * self.weight_decay;
        let (clip, failed) = match &numbers.0 {
            Place::Gpu(numbers) => {
                let group = gpu_group(params, gradients, moments.group);
                let gpu =
                    params.device().gpu().expect("the step's numbers are on a GPU, and so is the model");
                let pointers = [moments.first.ptr(), moments.second.ptr()];
                return gpu_ops::adam(gpu, self, &group, pointers, [size, decay], numbers);
            }
            Place::Host(numbers) => (numbers.clip, numbers.failed),
        };
        if failed {
            return;
        }
        let Self { beta1, beta2, epsilon, .. } = *self;
        let gradient = gradients.group(moments.group);
        params
            .group_mut(moments.group)
            .par_chunks_mut(CHUNK)
            .zip(gradient.par_chunks(CHUNK))
            .zip(moments.first.par_chunks_mut(CHUNK))
            .zip(moments.second.par_chunks_mut(CHUNK))
            .for_each(|(((p, g), m), v)| {
                vectorised(
                    #[inline(always)]
                    || {
                        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                            let g = clip * g;
                            *m = beta1.mul_add(*m, (1.0 - beta1) * g);
                            *v = beta2.mul_add(*v, (1.0 - beta2) * g * g);
                            let decayed = decay.mul_add(-*p, *p);
                            *p = size.mul_add(-*m / (v.sqrt() + epsilon), decayed);
                        }
                    },
                );
            });
    }
}

/// Plain gradient descent: p −= rate·g. The clipping factor is not for it.
pub fn sgd(params: &mut Params, gradients: &Gradients, group: GroupId, rate: f32, numbers: &StepNumbers) {
    match &numbers.0 {
        Place::Gpu(numbers) if params.group_len(group) > 0 => {
            let gpu = params.device().gpu().expect("the step's numbers are on a GPU, and so is the model");
            gpu_ops::sgd(gpu, &gpu_group(params, gradients, group), rate, numbers);
        }
        Place::Host(numbers) if !numbers.failed => {
            let gradient = gradients.group(group);
            params.group_mut(group).par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK)).for_each(
                |(p, g)| {
                    p.iter_mut().zip(g).for_each(|(p, g)| *p = rate.mul_add(-*g, *p));
                },
            );
        }
        _ => {}
    }
}

fn gpu_group(params: &Params, gradients: &Gradients, group: GroupId) -> Group {
    let (values, shadow) = params.group_ptrs(group);
    Group { values, shadow, gradient: gradients.group_ptr(group), count: params.group_len(group) }
}

/// The numbers of a step as its device works them out: losses, the gradient's norm, the clipping factor, and whether
/// something was not finite.
pub struct StepNumbers(Place);

enum Place {
    Host(HostNumbers),
    Gpu(GpuNumbers),
}

struct HostNumbers {
    loss: f64,
    nll: f64,
    norm: f64,
    clip: f32,
    failed: bool,
}

impl StepNumbers {
    /// Nothing summed, nothing clipped, nothing failed.
    pub fn new(device: &Device) -> Self {
        let host = HostNumbers { loss: 0.0, nll: 0.0, norm: 0.0, clip: 1.0, failed: false };
        Self(device.gpu().map_or(Place::Host(host), |gpu| Place::Gpu(GpuNumbers::new(gpu))))
    }

    /// A step begins: the losses are 0 again. A failure stays.
    pub fn begin(&mut self) {
        match &mut self.0 {
            Place::Host(host) => (host.loss, host.nll) = (0.0, 0.0),
            Place::Gpu(gpu) => gpu.begin(),
        }
    }

    /// Adds the losses of a batch.
    pub fn add(&mut self, sums: &LossSums) {
        match (&mut self.0, sums.per_row()) {
            (Place::Gpu(gpu), Some(losses)) => gpu.add(losses),
            (Place::Host(host), _) => {
                host.loss += sums.smoothed();
                host.nll += sums.nll();
            }
            (Place::Gpu(_), None) => unreachable!("losses of a GPU are on it"),
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
            Place::Gpu(gpu) => {
                let groups: Vec<Group> =
                    used.into_iter().map(|group| gpu_group(params, gradients, group)).collect();
                gpu.norm(&groups, limit as f32, report);
            }
            Place::Host(host) => {
                let norm = norm(gradients, &used);
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
            Place::Host(host) => Source::Host([host.loss, host.nll, host.norm]),
            Place::Gpu(gpu) => Source::Gpu(gpu.read()?),
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
pub struct Numbers {
    /// Smoothed loss.
    pub loss: f64,
    /// Negative log likelihood.
    pub nll: f64,
    /// Norm of the gradient, before clipping.
    pub norm: f64,
}

impl Reading {
    /// Whether they are here.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Source::Host(_) => true,
            Source::Gpu(reading) => reading.is_ready(),
        }
    }

    /// The numbers, waiting for the device if need be.
    pub fn wait(&self) -> Result<Numbers> {
        let [loss, nll, norm] = match &self.0 {
            Source::Host(numbers) => *numbers,
            Source::Gpu(reading) => reading.wait()?,
        };
        Ok(Numbers { loss, nll, norm })
    }
}

fn norm(gradients: &Gradients, groups: &[GroupId]) -> f64 {
    let squares = groups.iter().map(|&group| {
        let partial = |chunk: &[f32]| chunk.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        // Summed in order: the result does not depend on the threads.
        gradients.group(group).par_chunks(CHUNK).map(partial).collect::<Vec<_>>().into_iter().sum::<f64>()
    });
    squares.sum::<f64>().sqrt()
}

fn groups_of(params: &Params, groups: GroupSet) -> Vec<GroupId> {
    (0..32).map(GroupId).filter(|&group| groups.contains(group) && params.group_len(group) > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamsBuilder;

    /// Two updates worked out by hand in f64.
    #[test]
    fn adam_follows_fairseq() {
        let group = GroupId(0);
        let mut builder = ParamsBuilder::default();
        let id = builder.vector("p".into(), 3, group);
        let mut params = builder.finish(&Device::cpu());
        params.set("p", &[1.0, -2.0, 0.5]).unwrap();
        let mut gradients = params.gradients();
        let mut moments = Moments::new(&params, group);
        let mut numbers = StepNumbers::new(&Device::cpu());
        let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.1 };
        let (mut p, mut m, mut v) = ([1.0f64, -2.0, 0.5], [0.0f64; 3], [0.0f64; 3]);
        for t in 1..=2 {
            let g = [0.5, -1.5, 2.0f32].map(|g| g * t as f32);
            gradients.clear();
            gradients.slot(id).0.copy_from_slice(&g);
            adam.step(&mut params, &gradients, &mut moments, 0.01, t, &numbers);
            for i in 0..3 {
                let g = f64::from(g[i]);
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.98 * v[i] + 0.02 * g * g;
                p[i] -= 0.01 * 0.1 * p[i];
                let size = 0.01 * (1.0 - 0.98f64.powi(t as i32)).sqrt() / (1.0 - 0.9f64.powi(t as i32));
                p[i] -= size * m[i] / (v[i].sqrt() + 1e-8);
            }
        }
        for (got, want) in params.get("p").unwrap().iter().zip(p) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{got} for {want}");
        }
        let groups = GroupSet::of(&[group]);
        numbers.norm(&params, &gradients, groups, 0.0);
        let length = (1.0f64 + 9.0 + 16.0).sqrt();
        assert!((numbers.read().unwrap().wait().unwrap().norm - length).abs() < 1e-6);
        sgd(&mut params, &gradients, group, 0.5, &numbers);
        assert!((f64::from(params.get("p").unwrap()[0]) - (p[0] - 0.5)).abs() < 1e-6);
    }

    #[test]
    fn a_step_that_is_not_finite_changes_nothing() {
        let group = GroupId(0);
        let mut builder = ParamsBuilder::default();
        let id = builder.vector("p".into(), 2, group);
        let mut params = builder.finish(&Device::cpu());
        let mut gradients = params.gradients();
        gradients.slot(id).0.copy_from_slice(&[1.0, f32::NAN]);
        let mut moments = Moments::new(&params, group);
        let mut numbers = StepNumbers::new(&Device::cpu());
        numbers.norm(&params, &gradients, GroupSet::of(&[group]), 1.0);
        let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.0 };
        adam.step(&mut params, &gradients, &mut moments, 0.1, 1, &numbers);
        sgd(&mut params, &gradients, group, 1.0, &numbers);
        assert_eq!(params.get("p").unwrap(), [0.0, 0.0]);
    }
}
