//! Reverse mode: ops run at once and leave one node each; the walk back runs the nodes in reverse.
//!
//! A [`Var`] carries a gradient only if a free parameter lies upstream of it, so a step that updates the gates
//! alone computes no other weight gradient. Nodes are consumed on the walk back, which returns their buffers.

mod backward;
mod var;

use std::cell::Cell;

pub(crate) use self::backward::Backward;
pub(crate) use self::var::RealRows;
pub use self::var::Var;
use crate::cpu::gemm::Precision;
use crate::cuda::Live;
use crate::device::{Backend, Buffer, Device};
use crate::params::{Gradients, GroupSet, ParamId, Params, Slice, Updates};
use crate::rng::{Dropout, Rng, Stream};
use crate::tensor::{Segments, Tensor};

/// Weight of a batch, for losses of gates.
#[derive(Clone)]
pub(crate) struct BatchShare {
    /// The sum of the main loss is over the rows of these.
    pub(crate) rows: Segments,
    /// Factor of a row, on the host; a GPU reads its parts, [`Live::LossWeight`] and [`Live::OwnLossFactor`].
    weight: f32,
    /// Gates of the model.
    pub(crate) gates: usize,
}

impl BatchShare {
    /// The weight of the whole batch on the CPU.
    pub(crate) fn on_host(&self) -> f32 {
        self.rows.rows() as f32 * self.weight
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
    /// Number of the first node that uses a parameter block, in training passes.
    first_uses: Vec<Cell<usize>>,
    seeds: Vec<(usize, Buffer)>,
    updates: Updates,
    batch: Option<BatchShare>,
    own_loss_factor: f32,
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
            first_uses: Vec::new(),
            seeds: Vec::new(),
            updates: Updates::default(),
            batch: None,
            own_loss_factor: 1.0,
        }
    }

    /// A pass in training: dropout and sampling draw from `rng`, batch statistics are used, and the parameters of
    /// the `free` groups get gradients, added to what `gradients` holds.
    pub fn training(params: &'p Params, gradients: &'p mut Gradients, free: GroupSet, rng: Rng) -> Self {
        if let Some(gpu) = params.device().gpu() {
            gpu.set_live(Live::Step, rng.step());
            gpu.set_live(Live::OwnLossFactor, 1.0f32.to_bits());
        }
        let first_uses = vec![Cell::new(usize::MAX); params.blocks()];
        Self { gradients: Some(gradients), free, rng: Some(rng), first_uses, ..Self::evaluation(params) }
    }

    /// A pass in evaluation, no parameter free, whose walk back shows the gradients of [observed](Tape::observe) values.
    pub fn observing(params: &'p Params, gradients: &'p mut Gradients) -> Self {
        Self { gradients: Some(gradients), ..Self::evaluation(params) }
    }

    /// `var`, whose gradient is shown to `see` on the walk back, on the host and row by row. A value that nothing free
    /// lies behind gets a gradient, too. On a GPU the host waits for it.
    pub fn observe(&mut self, var: &Var, see: impl FnOnce(Vec<f32>) + Send + 'static) -> Var {
        if self.gradients.is_none() {
            return var.clone();
        }
        let observed = Var { slot: Some(self.slots), ..var.clone() };
        self.slots += 1;
        let var = var.clone();
        self.record(&observed, move |backward, gradient| {
            see(gradient.to_host());
            backward.give(&var, gradient);
        });
        observed
    }

    /// Walks back from the losses. Returns the new running statistics for [`Params::apply`].
    pub fn backward(self) -> Updates {
        self.backward_in_slices(&[], &mut |_, _| {})
    }

    /// The same. `complete` gets the gradients and the number of a slice as soon as nothing will be added to it nor to the
    /// slices before it.
    pub fn backward_in_slices(
        mut self,
        slices: &[Slice],
        complete: &mut dyn FnMut(&mut Gradients, usize),
    ) -> Updates {
        if let Some(gradients) = self.gradients.take() {
            let mut backward = Backward::new(self.params, gradients, self.free, self.slots);
            for (slot, seed) in self.seeds {
                backward.add(slot, seed);
            }
            let last_nodes: Vec<usize> =
                slices.iter().map(|slice| last_node(&self.first_uses, slice)).collect();
            let mut completed = 0;
            while let Some(node) = self.nodes.pop() {
                node(&mut backward);
                let rest = &last_nodes[completed..];
                let ready = rest.iter().take_while(|last| **last >= self.nodes.len()).count();
                if ready > 0 && !self.nodes.is_empty() {
                    backward.hand_over(slices, completed..completed + ready, complete);
                    completed += ready;
                }
            }
            backward.hand_over(slices, completed..slices.len(), complete);
        }
        self.updates
    }

    /// Lets gates with losses of their own, which are means over their rows, add them to that of the batch: each counts as
    /// the batch does, whose main loss is a sum over the rows of `targets` times `weight`. `gates`: gates of the model.
    /// Nothing to do outside training passes, which have no such losses.
    pub fn share_losses(&mut self, targets: &Segments, weight: f32, gates: usize) {
        if !self.is_training() {
            return;
        }
        if let Some(gpu) = self.device().gpu() {
            gpu.set_live(Live::LossWeight, weight.to_bits());
        }
        let weight = weight * self.own_loss_factor;
        self.batch = Some(BatchShare { rows: targets.clone(), weight, gates });
    }

    /// Multiplies the losses of gates by `factor` from now on. Before [`Tape::share_losses`].
    pub fn scale_own_losses(&mut self, factor: f32) {
        self.own_loss_factor = factor;
        if let Some(gpu) = self.device().gpu() {
            gpu.set_live(Live::OwnLossFactor, factor.to_bits());
        }
    }

    /// What gates need to know for losses of their own; `None` where there are none.
    pub(crate) fn batch_share(&self) -> Option<BatchShare> {
        self.batch.clone()
    }

    /// The device that the ops of this pass run on.
    pub fn device(&self) -> &'p Device {
        self.params.device()
    }

    /// The implementation of the ops of this pass.
    pub(crate) fn backend(&self) -> Backend<'p> {
        self.device().backend()
    }

    /// True in a training pass.
    pub fn is_training(&self) -> bool {
        self.rng.is_some()
    }

    /// Precision of the products of this pass.
    pub(crate) fn precision(&self) -> Precision {
        if self.is_training() { self.device().training_precision() } else { Precision::Full }
    }

    /// Notes that the next op to be recorded uses these parameters. True if a gradient is wanted for any of them.
    pub(crate) fn uses<const N: usize>(&self, ids: [ParamId; N]) -> bool {
        for first in ids.iter().filter_map(|id| self.first_uses.get(id.index())) {
            first.set(first.get().min(self.nodes.len()));
        }
        ids.iter().any(|id| self.free.contains(self.params.block(*id).group))
    }

    /// A buffer of activations as large as `var`, to be written.
    pub(crate) fn like(&self, var: &Var) -> Buffer {
        self.device().scratch(var.tensor().count())
    }

    pub(crate) fn gradients(&mut self) -> &mut Gradients {
        self.gradients.as_mut().expect("parameters are free in training passes only")
    }

    /// The random numbers of the next random op; `None` in evaluation. Every random op takes one, in evaluation too, so
    /// that streams are numbered by the op's place in the model.
    pub fn next_stream(&mut self) -> Option<Stream> {
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
        Var { tensor: Tensor::new(shape, buffer), slot, rows: RealRows::All }
    }

    /// Records the backward of an op with one output. `node` gets the output's gradient, to use up as it likes.
    pub(crate) fn record(
        &mut self,
        output: &Var,
        node: impl FnOnce(&mut Backward<'_>, Buffer) + Send + 'static,
    ) {
        if let Some(slot) = output.slot {
            self.nodes.push(Box::new(move |backward| {
                if let Some(gradient) = backward.take(slot) {
                    node(backward, gradient);
                }
            }));
        }
    }

    /// Records the backward of an op with two outputs; either gradient may be absent.
    pub(crate) fn record_two(
        &mut self,
        outputs: [&Var; 2],
        node: impl FnOnce(&mut Backward<'_>, Option<Buffer>, Option<Buffer>) + Send + 'static,
    ) {
        let [first, second] = outputs.map(|output| output.slot);
        if first.is_none() && second.is_none() {
            return;
        }
        self.nodes.push(Box::new(move |backward| {
            let mut take = |slot: Option<usize>| slot.and_then(|slot| backward.take(slot));
            let (first, second) = (take(first), take(second));
            if first.is_some() || second.is_some() {
                node(backward, first, second);
            }
        }));
    }

    /// Starts the walk back at `var` with this gradient, one value for each of `var`'s: what a loss does. Gradients from
    /// several places are added.
    pub fn seed_from_host(&mut self, var: &Var, gradient: &[f32]) {
        assert_eq!(gradient.len(), var.tensor.count(), "a gradient has the size of its value");
        if var.tracked() {
            self.seed(var, Buffer::from_host(self.device(), var.tensor.dtype(), gradient));
        }
    }

    /// Makes `gradient` the start of the walk back at `var`.
    pub(crate) fn seed(&mut self, var: &Var, gradient: Buffer) {
        if let Some(slot) = var.slot {
            self.seeds.push((slot, gradient));
        }
    }
}

/// Number of the node after which a slice is complete on the walk back. Blocks of unknown use wait for the last.
fn last_node(first_uses: &[Cell<usize>], slice: &Slice) -> usize {
    let uses = slice.blocks.iter().map(|&block| first_uses.get(block).map_or(usize::MAX, Cell::get));
    uses.map(|first| if first == usize::MAX { 0 } else { first }).min().unwrap_or(0)
}
