//! The tape, inputs and results of a case, as its body sees them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::compare::{Outcome, Quantity};
use super::values::{gradient_of, random};
use crate::device::{Device, Numbers};
use crate::ops::adaptive::{BandedIds, Bands};
use crate::params::{ParamId, Updates};
use crate::{Ids, Rng, Segments, Tape, Tensor, Var};

/// Unit that a matrix has a row for. In a case with room to spare, the GPU has more rows and sentences than the CPU, as
/// captured passes have; the CPU has as many as there are, in lists with the same room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Per {
    Nothing,
    Row,
    Sentence,
}

const SURPLUS_ROWS: usize = 37;
const SURPLUS_SENTENCES: usize = 3;

impl Per {
    /// Rows that are not there but have room.
    pub(crate) fn surplus(self, room: Room) -> usize {
        match (self, room) {
            (Self::Row, Room::Surplus) => SURPLUS_ROWS,
            (Self::Sentence, Room::Surplus) => SURPLUS_SENTENCES,
            _ => 0,
        }
    }
}

/// Size of the lists and matrices of a case on a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// As large as what they hold.
    Exact,
    /// Lists have room for more, but hold what there is: the CPU.
    Checked,
    /// Lists and matrices are larger than what there is: a GPU.
    Surplus,
}

/// An input of a case among the parameters.
#[derive(Clone, Copy)]
pub(crate) struct Declared {
    pub(crate) id: ParamId,
    pub(crate) per: Per,
}

/// One pass of a case on a device.
pub(crate) struct Scene<'p> {
    pub(crate) tape: Tape<'p>,
    /// The random numbers of the pass.
    pub(crate) rng: Rng,
    names: &'p HashMap<&'static str, Declared>,
    numbers: Numbers,
    room: Room,
    inputs: Vec<(Per, Var)>,
    outputs: Vec<(Per, Var)>,
    leaves: Vec<Leaf>,
    made: Outcome,
}

/// A 32-bit input that is no parameter, and its gradient once that is known.
struct Leaf {
    name: &'static str,
    cols: usize,
    gradient: Arc<Mutex<Option<Vec<f32>>>>,
}

// Streams of random numbers, clear of those of the inputs.
const LEAVES: u32 = 100;
const SEEDS: u32 = 200;
const HELD: u32 = 300;

impl<'p> Scene<'p> {
    pub(crate) fn new(
        tape: Tape<'p>,
        rng: Rng,
        names: &'p HashMap<&'static str, Declared>,
        numbers: Numbers,
        room: Room,
    ) -> Self {
        let (inputs, outputs) = (Vec::new(), Vec::new());
        Self { tape, rng, names, numbers, room, inputs, outputs, leaves: Vec::new(), made: Outcome::new() }
    }

    /// The parameter of an input.
    pub(crate) fn param(&self, name: &str) -> ParamId {
        self.names[name].id
    }

    /// An input as a value, of the type of activations.
    pub(crate) fn input(&mut self, name: &str) -> Var {
        let Declared { id, per } = self.names[name];
        let var = self.tape.parameter(id);
        self.inputs.push((per, var.clone()));
        var
    }

    /// An input of 32-bit floats on every device, as head weights are; values from index and random number. Its
    /// gradient is compared.
    pub(crate) fn floats(
        &mut self,
        name: &'static str,
        per: Per,
        [rows, cols]: [usize; 2],
        fill: fn(usize, f32) -> f32,
    ) -> Var {
        let rows = self.rows(per, rows);
        let drawn = random(self.numbers, LEAVES + self.leaves.len() as u32, rows * cols);
        let values: Vec<f32> = drawn.into_iter().enumerate().map(|(i, random)| fill(i, random)).collect();
        let mut buffer = self.tape.device().scratch_floats(values.len());
        buffer.write(0, &values);
        let var = self.tape.output([rows, cols], buffer, true);
        let gradient = Arc::new(Mutex::new(None));
        let kept = gradient.clone();
        self.tape.record(&var, move |_, gradient| {
            *kept.lock().expect("nobody panics while holding it") = Some(gradient.to_host());
        });
        self.leaves.push(Leaf { name, cols, gradient });
        self.inputs.push((per, var.clone()));
        var
    }

    /// A constant of 32-bit floats on every device.
    pub(crate) fn constant(&self, per: Per, [rows, cols]: [usize; 2], fill: impl Fn(usize) -> f32) -> Tensor {
        let rows = self.rows(per, rows);
        let values: Vec<f32> = (0..rows * cols).map(fill).collect();
        Tensor::from_host(self.tape.device(), [rows, cols], &values)
    }

    /// Number of rows in this pass, for `rows` real ones.
    pub(crate) fn rows(&self, per: Per, rows: usize) -> usize {
        rows + per.surplus(self.room)
    }

    pub(crate) fn ids(&self, ids: &[u32]) -> Ids {
        if self.room == Room::Exact {
            return Ids::from_host(self.tape.device(), ids);
        }
        let mut roomy = Ids::with_room(self.tape.device(), ids.len() + SURPLUS_ROWS);
        roomy.load(ids);
        roomy
    }

    /// With room to spare, each band has some.
    pub(crate) fn banded(&self, bands: &Bands, ids: &[u32]) -> BandedIds {
        if self.room == Room::Exact {
            return BandedIds::from_host(self.tape.device(), bands, ids);
        }
        let room: Vec<usize> = bands.counts(ids).iter().map(|count| count + SURPLUS_ROWS / 3).collect();
        let mut roomy = BandedIds::with_room(self.tape.device(), bands, ids.len() + SURPLUS_ROWS, &room);
        roomy.load(ids);
        roomy
    }

    pub(crate) fn segments(&self, starts: &[u32]) -> Segments {
        if self.room == Room::Exact {
            return Segments::from_host(self.tape.device(), starts);
        }
        let count = starts.len() - 1 + SURPLUS_SENTENCES;
        let rows = starts[starts.len() - 1] as usize + SURPLUS_ROWS;
        // As batches are rounded up in training.
        let longest = Segments::longest_of(starts).next_power_of_two().max(64);
        let mut roomy = Segments::with_room(self.tape.device(), count, rows, longest);
        roomy.load(starts);
        roomy
    }

    /// A result from which a random gradient flows back.
    pub(crate) fn output(&mut self, name: &'static str, per: Per, var: &Var) {
        self.value(name, var.tensor());
        self.outputs.push((per, var.clone()));
    }

    /// A result from which nothing flows back.
    pub(crate) fn value(&mut self, name: &'static str, tensor: &Tensor) {
        self.made.push(Quantity::value(name, tensor.cols(), tensor.to_host()));
    }

    /// Numbers that are on the host.
    pub(crate) fn numbers(&mut self, name: &'static str, values: &[f64]) {
        let values = values.iter().map(|&value| value as f32).collect();
        self.made.push(Quantity::value(name, 1, values));
    }

    /// Walks back from the outputs. `held`: inputs have a gradient already, and ops must add to it.
    pub(crate) fn finish(mut self, held: bool) -> (Outcome, Updates) {
        let device = self.tape.device().clone();
        let (outputs, inputs) = (std::mem::take(&mut self.outputs), std::mem::take(&mut self.inputs));
        for (i, (per, var)) in outputs.iter().enumerate() {
            self.seed(&device, *per, var, SEEDS + i as u32);
        }
        for (i, (per, var)) in inputs.iter().enumerate().filter(|_| held) {
            self.seed(&device, *per, var, HELD + i as u32);
        }
        let updates = self.tape.backward();
        for Leaf { name, cols, gradient } in self.leaves {
            let gradient = gradient.lock().expect("nobody panics while holding it").take();
            let gradient = gradient.unwrap_or_else(|| panic!("input `{name}` got no gradient"));
            self.made.push(Quantity::gradient(name, held, cols, gradient));
        }
        (self.made, updates)
    }

    /// Random numbers as the gradient of `var`; 0 for rows that are not there, which no loss has.
    fn seed(&mut self, device: &Device, per: Per, var: &Var, stream: u32) {
        if var.tracked() {
            let mut values = random(self.numbers, stream, var.tensor().count());
            let real = (var.rows() - per.surplus(self.room)) * var.cols();
            values[real..].fill(0.0);
            self.tape.seed(var, gradient_of(device, var, &values));
        }
    }
}
