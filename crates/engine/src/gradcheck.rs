//! Finite differences against the backward pass, for the tests of every op.
//!
//! All inputs of the op under test are parameters; its output `[N, C]` is reduced to one number by the smooth
//! non-linear tail L = Σ r·y + ½ Σ q·y² with fixed random r and q, so that the incoming gradient is not constant.
//! Every entry of every input is moved by ±ε and the central difference compared with the gradient.

use crate::params::{GroupId, GroupSet, ParamId, Params, ParamsBuilder};
use crate::rng::Rng;
use crate::{Device, Tape, Var};

/// Step of the central difference. Large enough to stand clear of f32 rounding, small enough for the cubic term.
const STEP: f32 = 1e-2;
/// Allowed error, as a share of the input's largest gradient entry.
const TOLERANCE: f64 = 4e-3;

const GROUP: GroupId = GroupId(0);

/// Collects the inputs of an op, then compares gradients.
pub struct Check {
    builder: ParamsBuilder,
    names: Vec<&'static str>,
    shifts: Vec<fn(usize) -> f32>,
}

impl Default for Check {
    fn default() -> Self {
        Self::new()
    }
}

impl Check {
    /// No inputs yet.
    pub fn new() -> Self {
        Self { builder: ParamsBuilder::default(), names: Vec::new(), shifts: Vec::new() }
    }

    /// An input filled with fixed pseudo-random numbers of about unit size.
    pub fn param(&mut self, name: &'static str, shape: [usize; 2]) -> ParamId {
        self.shifted(name, shape, |_| 0.0)
    }

    /// The same, entry i moved by `shift(i)`: keeps an op away from kinks, where differences mean nothing.
    pub fn shifted(&mut self, name: &'static str, shape: [usize; 2], shift: fn(usize) -> f32) -> ParamId {
        self.names.push(name);
        self.shifts.push(shift);
        self.builder.matrix(name.into(), shape, GROUP)
    }

    /// Compares; panics with the name and index of the worst entry.
    pub fn run(self, op: impl Fn(&mut Tape<'_>) -> Var) {
        let mut params = self.builder.finish(&Device::cpu());
        for (i, (name, shift)) in self.names.iter().zip(&self.shifts).enumerate() {
            let count = params.get(name).expect("declared above").len();
            let stream = Rng::new(11, 0).stream(i as u32);
            let values: Vec<f32> = (0..count).map(|j| shift(j) + stream.normal(j as u32, 0)).collect();
            params.set(name, &values).expect("sizes agree");
        }
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::of(&[GROUP]), RNG);
        let y = op(&mut tape);
        let device = params.device().clone();
        let values = y.values();
        let seed: Vec<f32> =
            values.iter().enumerate().map(|(i, &v)| linear_term(i) + square_term(i) * v).collect();
        let mut gradient = device.scratch_floats(seed.len());
        gradient.write(0, &seed);
        tape.seed(&y, gradient);
        tape.backward();
        for name in &self.names {
            let Some(gradient) = gradients.get(&params, name).expect("declared above") else {
                panic!("gradcheck: input `{name}` got no gradient");
            };
            compare(name, &mut params, &gradient, &op);
        }
    }
}

const RNG: Rng = Rng::new(5, 3);

fn compare(name: &str, params: &mut Params, gradient: &[f32], op: &impl Fn(&mut Tape<'_>) -> Var) {
    let original = params.get(name).expect("declared by the caller");
    let largest = gradient.iter().fold(0.1f32, |m, g| m.max(g.abs()));
    for i in 0..original.len() {
        let mut at = |delta: f32| {
            let mut moved = original.clone();
            moved[i] += delta;
            params.set(name, &moved).expect("sizes agree");
            loss(params, op)
        };
        // Fourth-order central difference.
        let numeric =
            (8.0 * (at(STEP) - at(-STEP)) - (at(2.0 * STEP) - at(-2.0 * STEP))) / (12.0 * f64::from(STEP));
        let error = (numeric - f64::from(gradient[i])).abs() / f64::from(largest);
        assert!(error < TOLERANCE, "gradcheck: d{name}[{i}] is {}, differences give {numeric}", gradient[i]);
    }
    params.set(name, &original).expect("sizes agree");
}

fn loss(params: &Params, op: &impl Fn(&mut Tape<'_>) -> Var) -> f64 {
    let mut gradients = params.gradients();
    let y = op(&mut Tape::training(params, &mut gradients, GroupSet::NONE, RNG));
    y.values().iter().enumerate().fold(0.0, |sum, (i, &v)| {
        sum + f64::from(linear_term(i)) * f64::from(v)
            + 0.5 * f64::from(square_term(i)) * f64::from(v) * f64::from(v)
    })
}

fn linear_term(i: usize) -> f32 {
    RNG.stream(1000).normal(i as u32, 0)
}

fn square_term(i: usize) -> f32 {
    RNG.stream(1001).normal(i as u32, 0)
}
