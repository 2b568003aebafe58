//! A case: what runs on both devices, and how far the results may be apart.

use std::collections::HashMap;

use super::Choice;
use super::compare::{Outcome, Quantity, Tolerance};
use super::scene::{Declared, Per, Room, Scene};
use super::values::{fit, random};
use crate::device::{Device, Numbers};
use crate::params::{Gradients, GroupId, GroupSet, Params, ParamsBuilder};
use crate::{Rng, Tape};

/// Something that gives the same numbers on every device, within a tolerance.
pub(crate) struct Case {
    pub(crate) op: &'static str,
    /// Sizes and variation, in words.
    pub(crate) what: String,
    pub(crate) tolerance: Tolerance,
    /// True for cases that take the CPU long.
    pub(crate) large: bool,
    /// The number type it is for, if not for both.
    only: Option<Numbers>,
    body: Body,
}

type Body = Box<dyn Fn(&Device, Numbers) -> Outcome>;

impl Case {
    /// A case that is no single op.
    pub(crate) fn new(
        op: &'static str,
        what: impl Into<String>,
        tolerance: Tolerance,
        body: impl Fn(&Device, Numbers) -> Outcome + 'static,
    ) -> Self {
        Self { op, what: what.into(), tolerance, large: false, only: None, body: Box::new(body) }
    }

    /// The number type it is for, if not for both.
    pub(crate) fn only(self, only: Option<Numbers>) -> Self {
        Self { only, ..self }
    }

    /// Runs it. `numbers` says how the GPU computes: the CPU, too, must start from numbers that it can represent.
    pub(crate) fn run(&self, device: &Device, numbers: Numbers) -> Outcome {
        (self.body)(device, numbers)
    }

    /// True if the case is for this number type, and chosen.
    pub(crate) fn matches(&self, numbers: Numbers, choice: Choice<'_>) -> bool {
        self.only.is_none_or(|only| only == numbers)
            && !(choice.small && self.large)
            && format!("{} {}", self.op, self.what).contains(choice.filter)
    }
}

/// Role of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It gets a gradient, which is compared.
    Free,
    /// It gets no gradient; ops may give it new values (running statistics), which are compared.
    Fixed,
}

struct Input {
    name: &'static str,
    shape: [usize; 2],
    per: Per,
    role: Role,
    /// From the index and a random number to the value.
    fill: Box<dyn Fn(usize, f32) -> f32>,
}

const FREE: GroupId = GroupId(0);
const FIXED: GroupId = GroupId(1);

/// A case of ops on a tape, being put together: inputs first, [`OpCase::body`] last.
pub(crate) struct OpCase {
    op: &'static str,
    what: String,
    inputs: Vec<Input>,
    tolerance: Tolerance,
    training: bool,
    room: bool,
    large: bool,
    only: Option<Numbers>,
}

impl OpCase {
    pub(crate) fn new(op: &'static str, what: impl Into<String>) -> Self {
        let (tolerance, what) = (Tolerance::default(), what.into());
        let inputs = Vec::new();
        Self { op, what, inputs, tolerance, training: true, room: false, large: false, only: None }
    }

    /// An input of fixed shape: a weight.
    pub(crate) fn param(self, name: &'static str, shape: [usize; 2]) -> Self {
        self.input(name, Per::Nothing, shape)
    }

    /// An input with a row for each token or sentence.
    pub(crate) fn input(mut self, name: &'static str, per: Per, shape: [usize; 2]) -> Self {
        self.inputs.push(Input { name, shape, per, role: Role::Free, fill: Box::new(|_, random| random) });
        self
    }

    /// Values of the last input, from index and random number.
    pub(crate) fn fill(mut self, fill: impl Fn(usize, f32) -> f32 + 'static) -> Self {
        self.last().fill = Box::new(fill);
        self
    }

    /// The last input gets no gradient.
    pub(crate) fn fixed(mut self) -> Self {
        self.last().role = Role::Fixed;
        self
    }

    fn last(&mut self) -> &mut Input {
        self.inputs.last_mut().expect("an input comes first")
    }

    /// Runs in evaluation.
    pub(crate) fn evaluation(self) -> Self {
        Self { training: false, ..self }.note("evaluation")
    }

    /// Gives the GPU room for more rows and sentences than there are.
    pub(crate) fn with_room(self) -> Self {
        Self { room: true, ..self }.note("room to spare")
    }

    /// Adds to the description.
    pub(crate) fn note(self, note: &str) -> Self {
        Self { what: format!("{}, {note}", self.what), ..self }
    }

    pub(crate) fn tolerance(self, tolerance: Tolerance) -> Self {
        Self { tolerance, ..self }
    }

    /// Realistic sizes: one pass only, and none in the tests.
    pub(crate) fn large(self) -> Self {
        Self { large: true, ..self }
    }

    /// The number type it is for, if not for both.
    pub(crate) fn only(self, only: Option<Numbers>) -> Self {
        Self { only, ..self }
    }

    /// The ops.
    pub(crate) fn body(self, body: impl Fn(&mut Scene<'_>) + 'static) -> Case {
        let (op, what, tolerance) = (self.op, self.what.clone(), self.tolerance);
        let (large, only) = (self.large, self.only);
        let run = move |device: &Device, numbers| self.run(device, numbers, &body);
        Case { op, what, tolerance, large, only, body: Box::new(run) }
    }

    /// One pass, and a second whose gradients are added to those of the first and to others that inputs already have.
    fn run(&self, device: &Device, numbers: Numbers, body: &dyn Fn(&mut Scene<'_>)) -> Outcome {
        let room = match (self.room, device.is_gpu()) {
            (false, _) => Room::Exact,
            (true, false) => Room::Checked,
            (true, true) => Room::Surplus,
        };
        let (mut params, names) = self.params(device, numbers, room);
        let mut gradients = params.gradients();
        let mut outcome = Outcome::new();
        let passes = if self.training && !self.large { 2 } else { 1 };
        for pass in 0..passes {
            let (added, rng) = (pass > 0, Rng::new(5, 3 + pass));
            let tape = match self.training {
                true => Tape::training(&params, &mut gradients, GroupSet::of(&[FREE]), rng),
                false => Tape::evaluation(&params),
            };
            let mut scene = Scene::new(tape, rng, &names, numbers, room);
            body(&mut scene);
            let (quantities, updates) = scene.finish(added);
            outcome.extend(quantities.into_iter().filter(|quantity| !added || quantity.is_gradient()));
            params.apply(updates);
            self.read_inputs(&params, &gradients, added, &mut outcome);
        }
        outcome
    }

    fn params(
        &self,
        device: &Device,
        numbers: Numbers,
        room: Room,
    ) -> (Params, HashMap<&'static str, Declared>) {
        let mut builder = ParamsBuilder::default();
        let mut names = HashMap::new();
        for &Input { name, shape: [rows, cols], per, role, .. } in &self.inputs {
            let group = if role == Role::Free { FREE } else { FIXED };
            let id = builder.matrix(name.into(), [rows + per.surplus(room), cols], group);
            names.insert(name, Declared { id, per });
        }
        let mut params = builder.finish(device);
        for (i, Input { name, shape: [rows, cols], per, fill, .. }) in self.inputs.iter().enumerate() {
            let drawn = random(numbers, i as u32, (rows + per.surplus(room)) * cols);
            let values = drawn.into_iter().enumerate().map(|(j, random)| fit(numbers, fill(j, random)));
            params.set(name, &values.collect::<Vec<_>>()).expect("declared above with this size");
        }
        (params, names)
    }

    /// Gradients of free inputs, values of fixed ones.
    fn read_inputs(&self, params: &Params, gradients: &Gradients, added: bool, outcome: &mut Outcome) {
        for Input { name, shape: [_, cols], role, .. } in &self.inputs {
            match role {
                Role::Free if self.training => {
                    let gradient = gradients.get(params, name).expect("every input was declared");
                    let gradient = gradient.unwrap_or_else(|| panic!("input `{name}` got no gradient"));
                    outcome.push(Quantity::gradient(name, added, *cols, gradient));
                }
                Role::Fixed if !added => {
                    let values = params.get(name).expect("every input was declared");
                    outcome.push(Quantity::value(format!("{name} afterwards"), *cols, values));
                }
                _ => {}
            }
        }
    }
}
