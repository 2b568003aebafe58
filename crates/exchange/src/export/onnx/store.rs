//! The file of weights that the graphs share.

use std::io::{self, Write};

use super::super::Weights;
use crate::onnx::{Graph, Value};

/// Name of the file.
pub(super) const WEIGHTS: &str = "weights.bin";

/// Tensors begin at multiples of this, so that a runtime can map them.
const ALIGNMENT: u64 = 4096;

/// Tensors of the file, in its order.
pub(super) struct Store<'a> {
    weights: &'a Weights<'a>,
    entries: Vec<Entry>,
    end: u64,
}

struct Entry {
    name: String,
    offset: u64,
    /// Values that are no parameter of the model.
    made: Option<Vec<f32>>,
}

impl<'a> Store<'a> {
    /// An empty file.
    pub(super) fn new(weights: &'a Weights<'a>) -> Self {
        Self { weights, entries: Vec::new(), end: 0 }
    }

    /// Returns true if the model has a parameter.
    pub(super) fn has(&self, name: &str) -> bool {
        self.weights.tensors.contains_key(name)
    }

    /// Values of a parameter.
    pub(super) fn values(&self, name: &str) -> Vec<f32> {
        self.weights.values(name)
    }

    /// A parameter as a value of a graph.
    pub(super) fn parameter(&mut self, graph: &mut Graph, name: &str) -> Value {
        let shape = self.weights.tensor(name).shape().to_vec();
        let offset = self.place(name, &shape, None);
        graph.stored(name, &shape, (WEIGHTS, offset))
    }

    /// Other numbers under a name.
    pub(super) fn made(&mut self, graph: &mut Graph, name: &str, shape: &[usize], values: Vec<f32>) -> Value {
        let offset = self.place(name, shape, Some(values));
        graph.stored(name, shape, (WEIGHTS, offset))
    }

    fn place(&mut self, name: &str, shape: &[usize], made: Option<Vec<f32>>) -> u64 {
        if let Some(known) = self.entries.iter().find(|entry| entry.name == name) {
            return known.offset;
        }
        let offset = self.end.next_multiple_of(ALIGNMENT);
        self.end = offset + 4 * shape.iter().product::<usize>() as u64;
        self.entries.push(Entry { name: name.to_owned(), offset, made });
        offset
    }

    /// Writes the file, a tensor at a time.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (mut at, mut bytes) = (0, Vec::new());
        for entry in &self.entries {
            bytes.clear();
            bytes.resize((entry.offset - at) as usize, 0);
            match &entry.made {
                Some(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
                None => bytes.extend(self.values(&entry.name).iter().flat_map(|value| value.to_le_bytes())),
            }
            out.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
