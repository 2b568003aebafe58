//! Optimisers, norms and clipping over two groups, and a step that fails.

use super::{Adam, Moments, Nag, StepNumbers, Velocity, random_signs, sgd};
use crate::device::{Device, Numbers};
use crate::params::{Gradients, GroupId, GroupSet, ParamId, Params, ParamsBuilder};
use crate::suite::{Case, Outcome, Quantity, Tolerance, fit, gradient_of, random};
use crate::{Rng, Tape};

/// Adam or NAG updates the first group, plain gradient descent the second.
const GROUPS: [(&str, GroupId); 2] = [("first", GroupId(0)), ("second", GroupId(1))];

const ADAM: Adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.01 };
const NAG: Nag = Nag { momentum: 0.99, weight_decay: 0.01 };

#[derive(Clone, Copy, Debug)]
enum By {
    Adam,
    Nag,
}

/// Memory of the first group's optimiser.
enum Memory {
    Adam(Moments),
    Nag(Velocity),
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in [[1, 3], [1_009, 64], [300_007, 4_099]] {
        for limit in [0.0, 0.5] {
            for by in [By::Adam, By::Nag] {
                // All of it is in 32 bits in both modes.
                let tolerance = Tolerance::new(2e-6, 2e-6);
                let [first, second] = sizes;
                let what = format!("{by:?}, {first} and {second} values, clipped to {limit}, three updates");
                cases.push(Case::new("optim", what, tolerance, move |d, n| updates(d, n, by, sizes, limit)));
            }
        }
    }
    for sizes in [[1, 3], [130, 4_099], [1_009, 300_007]] {
        let what = format!("gradient descent with random signs, {} values", sizes[1]);
        cases.push(Case::new("optim", what, Tolerance::new(2e-6, 2e-6), move |d, n| signs(d, n, sizes)));
    }
    for by in [By::Adam, By::Nag] {
        let what = format!("{by:?}, nothing changes from the first gradient on that is not finite");
        cases.push(Case::new("optim", what, Tolerance::new(2e-6, 2e-6), move |d, n| failure(d, n, by)));
    }
    cases
}

struct Groups {
    numbers: Numbers,
    params: Params,
    ids: [ParamId; 2],
    gradients: Gradients,
    memory: Memory,
    step: StepNumbers,
}

impl Groups {
    fn new(device: &Device, numbers: Numbers, by: By, sizes: [usize; 2]) -> Self {
        let mut builder = ParamsBuilder::default();
        let ids = [0, 1].map(|i| builder.vector(GROUPS[i].0.into(), sizes[i], GROUPS[i].1));
        let mut params = builder.finish(device);
        for (i, (name, _)) in GROUPS.into_iter().enumerate() {
            params.set(name, &random(numbers, i as u32, sizes[i])).expect("declared above with this size");
        }
        let memory = match by {
            By::Adam => Memory::Adam(Moments::new(&params, GROUPS[0].1)),
            By::Nag => Memory::Nag(Velocity::new(&params, GROUPS[0].1)),
        };
        let gradients = params.gradients();
        Self { numbers, params, ids, gradients, memory, step: StepNumbers::new(device) }
    }

    /// Update number `t`, with random gradients that `change` makes others of. The norm of both groups is reported,
    /// that of the first clips it, as in a joint step.
    fn update(&mut self, t: u32, limit: f64, change: impl Fn(f32) -> f32) {
        let Self { numbers, params, ids, gradients, memory, step } = self;
        let device = params.device().clone();
        let both = GroupSet::of(&GROUPS.map(|(_, group)| group));
        gradients.clear();
        step.begin();
        let mut tape = Tape::training(params, gradients, both, Rng::new(1, t));
        for (i, id) in ids.iter().enumerate() {
            let var = tape.parameter(*id);
            let drawn = random(*numbers, 10 * t + i as u32, var.tensor().count());
            let values: Vec<f32> = drawn.into_iter().map(|v| fit(*numbers, change(v))).collect();
            tape.seed(&var, gradient_of(&device, &var, &values));
        }
        tape.backward();
        step.norm(params, gradients, both, 0.0);
        step.clip(params, gradients, GroupSet::of(&[GROUPS[0].1]), limit);
        match memory {
            Memory::Adam(moments) => ADAM.step(params, gradients, moments, 0.01, t.into(), step),
            Memory::Nag(velocity) => NAG.step(params, gradients, velocity, 0.01 * t as f32, step),
        }
        sgd(params, gradients, GROUPS[1].1, 0.1, step);
    }

    fn norm(&self) -> f32 {
        let numbers = self.step.read().and_then(|reading| reading.wait());
        numbers.unwrap_or_else(|error| panic!("{error}")).norm as f32
    }

    /// Parameters and what the optimiser remembers; and how many values differ in the copy that products read.
    fn read(&self, outcome: &mut Outcome) {
        for ((name, _), id) in GROUPS.into_iter().zip(self.ids) {
            let values = self.params.get(name).expect("declared above");
            let copy = Tape::evaluation(&self.params).parameter(id).tensor().to_host();
            let rounded = |v: f32| if self.params.device().is_gpu() { fit(self.numbers, v) } else { v };
            let differing = values.iter().zip(&copy).filter(|(v, copy)| rounded(**v) != **copy).count();
            outcome.push(Quantity::value(format!("{name}, wrong in the copy"), 1, vec![differing as f32]));
            outcome.push(Quantity::value(name, 1, values));
        }
        let memory = match &self.memory {
            Memory::Adam(moments) => moments.copies().map(Vec::from),
            Memory::Nag(velocity) => velocity.copy().map(|copy| vec![copy]),
        };
        let memory = memory.unwrap_or_else(|error| panic!("{error}"));
        for (name, copy) in ["first moments or velocity", "second moments"].into_iter().zip(memory) {
            let values = copy.values().unwrap_or_else(|error| panic!("{error}"));
            outcome.push(Quantity::value(name, 1, values.to_vec()));
        }
    }
}

/// Three updates; the gradients of the last are smaller than the limit.
fn updates(device: &Device, numbers: Numbers, by: By, sizes: [usize; 2], limit: f64) -> Outcome {
    let mut groups = Groups::new(device, numbers, by, sizes);
    let mut outcome = Outcome::new();
    for t in 1..=3 {
        groups.update(t, limit, |v| if t == 3 { 1e-4 * v } else { v });
        outcome.push(Quantity::value(format!("norm {t}"), 1, vec![groups.norm()]));
    }
    groups.read(&mut outcome);
    outcome
}

/// Two steps along random signs of the gradient that an update has left.
fn signs(device: &Device, numbers: Numbers, sizes: [usize; 2]) -> Outcome {
    let mut groups = Groups::new(device, numbers, By::Adam, sizes);
    groups.update(1, 0.0, |v| v);
    for t in 1..=2 {
        let Groups { params, gradients, step, .. } = &mut groups;
        random_signs(params, gradients, GROUPS[1].1, Rng::new(3, t).stream(u32::MAX));
        sgd(params, gradients, GROUPS[1].1, 0.1, step);
    }
    let mut outcome = Outcome::new();
    groups.read(&mut outcome);
    outcome
}

/// Only the first of three updates is made: the gradients of the second are not finite, and a failure stays.
fn failure(device: &Device, numbers: Numbers, by: By) -> Outcome {
    let mut groups = Groups::new(device, numbers, by, [1_009, 67]);
    groups.update(1, 0.5, |v| v);
    groups.update(2, 0.5, |v| if v > 1.7 { f32::INFINITY } else { v });
    assert!(!groups.norm().is_finite(), "the norm of infinite gradients is {}", groups.norm());
    groups.update(3, 0.5, |v| v);
    let mut outcome = Outcome::new();
    groups.read(&mut outcome);
    outcome
}
