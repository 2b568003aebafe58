//! Reverse mode: ops run at once and leave one node each; the walk back runs the nodes in reverse.
//!
//! A [`Var`] carries a gradient only if a free parameter lies upstream of it, so a step that updates the gates
//! alone computes no other weight gradient. Nodes are consumed on the walk back, which returns their buffers.

use crate::cpu::gemm::Precision;
use crate::device::{Buffer, Device};
use crate::params::{Gradients, GroupSet, ParamId, Params, Updates};
use crate::rng::{Dropout, Rng, Stream};
use crate::tensor::Tensor;

/// A value in a computation.
#[derive(Clone, Debug)]
pub struct Var {
    tensor: Tensor,
    slot: Option<usize>,
}

impl Var {
    /// A value that gradients do not flow through.
    pub fn constant(tensor: Tensor) -> Self {
        Self { tensor, slot: None }
    }

    /// The value.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The same value, cut off from what made it.
    pub fn detach(&self) -> Self {
        Self::constant(self.tensor.clone())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tensor.rows()
    }

    /// Values per row.
    pub fn cols(&self) -> usize {
        self.tensor.cols()
    }

    pub(crate) fn values(&self) -> &[f32] {
        self.tensor.values()
    }

    /// Whether a gradient is wanted for this value.
    pub(crate) fn tracked(&self) -> bool {
        self.slot.is_some()
    }
}

type Node = Box<dyn FnOnce(&mut Backward<'_>) + Send>;

/// One forward pass: runs ops, keeps what their backward needs.
pub struct Tape<'p> {
    pub(crate) params: &'p Params,
    gradients: Option<&'p mut Gradients>,
    free: GroupSet,
    rng: Option<Rng>,
    streams: u32,
    slots: usize,
    nodes: Vec<Node>,
    seeds: Vec<(usize, Tensor)>,
    updates: Updates,
}

impl<'p> Tape<'p> {
    /// A pass in evaluation: no randomness, running statistics, no gradients.
    pub fn evaluation(params: &'p Params) -> Self {
        Self {
            params,
            gradients: None,
            free: GroupSet::NONE,
            rng: None,
            streams: 0,
            slots: 0,
            nodes: Vec::new(),
            seeds: Vec::new(),
            updates: Updates::default(),
        }
    }

    /// A pass in training: dropout and sampling draw from `rng`, batch statistics are used, and the parameters of
    /// the `free` groups get gradients, added to what `gradients` holds.
    pub fn training(params: &'p Params, gradients: &'p mut Gradients, free: GroupSet, rng: Rng) -> Self {
        Self { gradients: Some(gradients), free, rng: Some(rng), ..Self::evaluation(params) }
    }

    /// Walks back from the losses. Returns the new running statistics for [`Params::apply`].
    pub fn backward(mut self) -> Updates {
        if let Some(gradients) = self.gradients.take() {
            let mut slots: Vec<Option<Buffer>> = Vec::new();
            slots.resize_with(self.slots, || None);
            let mut backward = Backward { params: self.params, gradients, free: self.free, slots };
            for (slot, seed) in self.seeds {
                backward.add(slot, &seed);
            }
            while let Some(node) = self.nodes.pop() {
                node(&mut backward);
            }
        }
        self.updates
    }

    /// The device that the ops of this pass run on.
    pub fn device(&self) -> &Device {
        self.params.device()
    }

    /// Whether this is a training pass.
    pub fn is_training(&self) -> bool {
        self.rng.is_some()
    }

    /// How exact the products of this pass are.
    pub(crate) fn precision(&self) -> Precision {
        if self.is_training() { Precision::Training } else { Precision::Full }
    }

    pub(crate) fn is_free(&self, id: ParamId) -> bool {
        self.free.contains(self.params.block(id).group)
    }

    pub(crate) fn gradients(&mut self) -> &mut Gradients {
        self.gradients.as_mut().expect("parameters are free in training passes only")
    }

    /// The random numbers of the next random op. Every random op takes one, in evaluation too, so that streams
    /// are numbered by the op's place in the model.
    pub(crate) fn next_stream(&mut self) -> Option<Stream> {
        let stream = self.streams;
        self.streams += 1;
        self.rng.map(|rng| rng.stream(stream))
    }

    /// Dropout of the next random op; `None` where nothing is dropped.
    pub(crate) fn next_dropout(&mut self, p: f32) -> Option<Dropout> {
        let stream = self.next_stream();
        stream.filter(|_| p > 0.0).map(|stream| Dropout::new(p, stream))
    }

    pub(crate) fn update(&mut self, id: ParamId, values: Buffer) {
        self.updates.0.push((id, values));
    }

    /// Wraps an op's output; it is tracked if `tracked` says that something upstream wants a gradient.
    pub(crate) fn output(&mut self, shape: [usize; 2], buffer: Buffer, tracked: bool) -> Var {
        let slot = tracked.then(|| {
            self.slots += 1;
            self.slots - 1
        });
        Var { tensor: Tensor::new(shape, buffer), slot }
    }

    /// Records the backward of an op with one output. `node` gets the output's gradient, to use up as it likes.
    pub(crate) fn record(
        &mut self,
        output: &Var,
        node: impl FnOnce(&mut Backward<'_>, Buffer) + Send + 'static,
    ) {
        if let Some(slot) = output.slot {
            self.nodes.push(Box::new(move |backward| {
                if let Some(gradient) = backward.slots[slot].take() {
                    node(backward, gradient);
                }
            }));
        }
    }

    /// Makes `gradient` the start of the walk back at `var`: what a loss does.
    pub(crate) fn seed(&mut self, var: &Var, gradient: Tensor) {
        if let Some(slot) = var.slot {
            self.seeds.push((slot, gradient));
        }
    }
}

/// What a node sees on the walk back.
pub(crate) struct Backward<'a> {
    pub(crate) params: &'a Params,
    gradients: &'a mut Gradients,
    free: GroupSet,
    slots: Vec<Option<Buffer>>,
}

impl Backward<'_> {
    pub(crate) fn device(&self) -> &Device {
        self.params.device()
    }

    pub(crate) fn is_free(&self, id: ParamId) -> bool {
        self.free.contains(self.params.block(id).group)
    }

    /// Lets `write` produce or add to the gradient of `var`. It gets the buffer and whether that already holds a
    /// contribution; if not, all of it must be written. Nothing happens where no gradient is wanted.
    pub(crate) fn input(&mut self, var: &Var, write: impl FnOnce(&mut [f32], bool)) {
        let Some(slot) = var.slot else { return };
        let held = self.slots[slot].is_some();
        let len = var.values().len();
        let device = self.params.device();
        let buffer = self.slots[slot].get_or_insert_with(|| device.scratch(len));
        write(buffer, held);
    }

    /// Hands over `gradient` as a contribution to `var`.
    pub(crate) fn give(&mut self, var: &Var, gradient: Buffer) {
        let Some(slot) = var.slot else { return };
        match &mut self.slots[slot] {
            Some(held) => crate::cpu::add(held, &gradient),
            empty => *empty = Some(gradient),
        }
    }

    /// Lets `write` produce or add to the gradient of a parameter block, if it is free.
    pub(crate) fn param(&mut self, id: ParamId, write: impl FnOnce(&mut [f32], bool)) {
        if self.is_free(id) {
            let (gradient, held) = self.gradients.slot(id);
            write(gradient, held);
        }
    }

    fn add(&mut self, slot: usize, gradient: &Tensor) {
        match &mut self.slots[slot] {
            Some(held) => crate::cpu::add(held, gradient.values()),
            empty => {
                let mut buffer = self.params.device().scratch(gradient.values().len());
                buffer.copy_from_slice(gradient.values());
                *empty = Some(buffer);
            }
        }
    }
}
