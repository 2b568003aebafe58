//! Optimisers and norms: each one loop over the flat buffer of a group; and the numbers of a step.
//!
//! A step whose loss or gradient norm is not a number changes nothing: [`StepNumbers`] notes the failure, and the
//! optimisers look there first. So a GPU can be asked for the next step before anybody has seen the loss of this one.
//!
//! | file | what is in it |
//! |---|---|
//! | `adam`, `nag` | the optimisers and their memory |
//! | `numbers` | losses, norm and clipping factor of a step |
//! | `mod` | gradient descent without memory; random signs of a gradient |
//! | `cpu`, `cuda`, `optim.cu` | the implementations |
//! | `suite` | cases of the kernel suite |

mod adam;
mod cpu;
pub(crate) mod cuda;
mod nag;
mod numbers;
#[cfg(feature = "suite")]
pub(crate) mod suite;

pub use adam::{Adam, Moments};
pub use nag::{Nag, Velocity};
use numbers::Memory;
pub use numbers::{LossAndNorm, Reading, StepNumbers};

use crate::Stream;
use crate::params::{Gradients, GroupId, Params};

/// Plain gradient descent: p −= rate·g. It does not clip.
pub fn sgd(params: &mut Params, gradients: &Gradients, group: GroupId, rate: f32, numbers: &StepNumbers) {
    match &numbers.0 {
        Memory::Host(numbers) if numbers.failed => {}
        Memory::Host(_) => cpu::sgd(params.group_mut(group), gradients.group(group), rate),
        Memory::Gpu(_) if params.group_len(group) == 0 => {}
        Memory::Gpu(numbers) => cuda::sgd(&gpu_group(params, gradients, group), rate, numbers),
    }
}

/// Multiplies each component of a group's gradient by a random sign: a control that keeps the sizes of steps and loses
/// their directions. The signs are a function of `stream` and the places of the components.
pub fn random_signs(params: &Params, gradients: &mut Gradients, group: GroupId, stream: Stream) {
    match params.device().gpu() {
        None => cpu::random_signs(gradients.group_mut(group), stream),
        Some(_) if params.group_len(group) == 0 => {}
        Some(gpu) => cuda::random_signs(gpu, &gpu_group(params, gradients, group), stream),
    }
}

/// Addresses of a group's values and gradient.
fn gpu_group(params: &Params, gradients: &Gradients, group: GroupId) -> cuda::Group {
    let (values, shadow) = params.group_ptrs(group);
    cuda::Group { values, shadow, gradient: gradients.group_ptr(group), count: params.group_len(group) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, GroupSet, ParamsBuilder};

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
    fn random_signs_keep_sizes_and_lose_directions() {
        let group = GroupId(0);
        let mut builder = ParamsBuilder::default();
        let id = builder.vector("p".into(), 10_007, group);
        let params = builder.finish(&Device::cpu());
        let signed = |step: u32| {
            let mut gradients = params.gradients();
            gradients.slot(id).0.fill(0.5);
            random_signs(&params, &mut gradients, group, crate::Rng::new(7, step).stream(3));
            gradients.get(&params, "p").unwrap().unwrap()
        };
        let (first, second) = (signed(1), signed(2));
        assert!(first.iter().all(|g| g.abs() == 0.5));
        assert_eq!(first, signed(1));
        let share = |values: Vec<bool>| values.iter().filter(|v| **v).count() as f64 / values.len() as f64;
        let negative = share(first.iter().map(|g| *g < 0.0).collect());
        let agree = share(first.iter().zip(&second).map(|(a, b)| a == b).collect());
        assert!((negative - 0.5).abs() < 0.02 && (agree - 0.5).abs() < 0.02, "{negative} {agree}");
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
