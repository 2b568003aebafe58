//! Optimisers, norms and scaling: each one loop over the flat buffer of a group.

use rayon::prelude::*;

use crate::cpu::vectorised;
use crate::device::Buffer;
use crate::params::{Gradients, GroupId, GroupSet, Params};

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

    /// Both moments, copied to the host.
    pub fn to_host(&self) -> [Vec<f32>; 2] {
        [self.first.to_vec(), self.second.to_vec()]
    }

    /// Takes both moments from the host; `false` if the sizes differ.
    pub fn set(&mut self, first: &[f32], second: &[f32]) -> bool {
        let fits = first.len() == self.first.len() && second.len() == self.second.len();
        if fits {
            self.first.copy_from_slice(first);
            self.second.copy_from_slice(second);
        }
        fits
    }
}

impl Adam {
    /// Update number `t` (from 1): m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²;
    /// p −= rate·wd·p; p −= rate·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v + ε).
    pub fn step(&self, params: &mut Params, gradients: &Gradients, moments: &mut Moments, rate: f32, t: u64) {
        let correct = |beta: f32| 1.0 - f64::from(beta).powf(t as f64);
        let size = (f64::from(rate) * correct(self.beta2).sqrt() / correct(self.beta1)) as f32;
        let decay = rate * self.weight_decay;
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

/// Plain gradient descent: p −= rate·g.
pub fn sgd(params: &mut Params, gradients: &Gradients, group: GroupId, rate: f32) {
    let gradient = gradients.group(group);
    params.group_mut(group).par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK)).for_each(|(p, g)| {
        p.iter_mut().zip(g).for_each(|(p, g)| *p = rate.mul_add(-*g, *p));
    });
}

/// The Euclidean norm of the gradients of `groups`.
pub fn norm(params: &Params, gradients: &Gradients, groups: GroupSet) -> f64 {
    let used = groups_of(params, groups);
    let squares = used.into_iter().map(|group| {
        let partial = |chunk: &[f32]| chunk.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        // Summed in order: the result does not depend on the threads.
        gradients.group(group).par_chunks(CHUNK).map(partial).collect::<Vec<_>>().into_iter().sum::<f64>()
    });
    squares.sum::<f64>().sqrt()
}

/// Multiplies the gradients of `groups` by `factor`.
pub fn scale(params: &Params, gradients: &mut Gradients, groups: GroupSet, factor: f32) {
    for group in groups_of(params, groups) {
        gradients.group_mut(group).par_chunks_mut(CHUNK).for_each(|chunk| {
            chunk.iter_mut().for_each(|g| *g *= factor);
        });
    }
}

fn groups_of(params: &Params, groups: GroupSet) -> Vec<GroupId> {
    (0..32).map(GroupId).filter(|&group| groups.contains(group) && params.group_len(group) > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, ParamsBuilder};

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
        let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.1 };
        let (mut p, mut m, mut v) = ([1.0f64, -2.0, 0.5], [0.0f64; 3], [0.0f64; 3]);
        for t in 1..=2 {
            let g = [0.5, -1.5, 2.0f32].map(|g| g * t as f32);
            gradients.clear();
            gradients.slot(id).0.copy_from_slice(&g);
            adam.step(&mut params, &gradients, &mut moments, 0.01, t);
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
        assert!(
            (norm(&params, &gradients, GroupSet::of(&[group])) - (1.0f64 + 9.0 + 16.0).sqrt()).abs() < 1e-6
        );
        scale(&params, &mut gradients, GroupSet::of(&[group]), 0.5);
        sgd(&mut params, &gradients, group, 1.0);
        assert!((f64::from(params.get("p").unwrap()[0]) - (p[0] - 0.5)).abs() < 1e-6);
    }
}
