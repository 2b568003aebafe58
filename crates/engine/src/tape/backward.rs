//! The walk back: gradients of values and parameters, as the nodes of ops write them.

use std::collections::HashMap;
use std::ops::Range;

use super::Var;
use crate::cpu::gemm::Precision;
use crate::cuda::memory::Ptr;
use crate::cuda::sums::{self, ColumnSums, KnownSums};
use crate::cuda::together::Together;
use crate::device::{Backend, Buffer, Device};
use crate::params::{Gradients, GroupSet, ParamId, Params, Slice};

/// State of the walk back, as a node sees it.
pub(crate) struct Backward<'a> {
    pub(crate) params: &'a Params,
    pub(super) gradients: &'a mut Gradients,
    pub(super) free: GroupSet,
    pub(super) slots: Vec<Option<Buffer>>,
    /// Which parts have been written, where a gradient is written in [parts](crate::Parts).
    pub(super) unfinished: HashMap<usize, Vec<bool>>,
    /// Sums over the rows of gradients, by slot, and of the gradient that was taken last.
    known_sums: HashMap<usize, KnownSums>,
    sums_of_taken: Option<KnownSums>,
    /// Sums over rows that a GPU finishes all at once at the end.
    pub(crate) sums: ColumnSums,
    /// Weight gradients that a GPU computes at once.
    pub(crate) together: Together,
}

impl<'a> Backward<'a> {
    /// Before the first node, with room for the gradients of so many values.
    pub(super) fn new(
        params: &'a Params,
        gradients: &'a mut Gradients,
        free: GroupSet,
        slots: usize,
    ) -> Self {
        Self {
            params,
            gradients,
            free,
            slots: (0..slots).map(|_| None).collect(),
            unfinished: HashMap::new(),
            known_sums: HashMap::new(),
            sums_of_taken: None,
            sums: ColumnSums::default(),
            together: Together::default(),
        }
    }

    pub(crate) fn device(&self) -> &'a Device {
        self.params.device()
    }

    /// Precision of the products of the walk back.
    pub(crate) fn precision(&self) -> Precision {
        self.device().training_precision()
    }

    /// The implementation of the ops of this pass.
    pub(crate) fn backend(&self) -> Backend<'a> {
        self.device().backend()
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

    /// The gradient at `slot`, which nothing will be added to.
    pub(super) fn take(&mut self, slot: usize) -> Option<Buffer> {
        let finished = self.unfinished.remove(&slot).is_none_or(|written| !written.contains(&false));
        assert!(finished, "some parts of a matrix were read, and others were not");
        self.sums_of_taken = self.known_sums.remove(&slot);
        self.slots[slot].take()
    }

    /// The gradient of `var` so far, if it is written in parts and some have been.
    pub(crate) fn take_unfinished(&mut self, var: &Var) -> Option<Buffer> {
        var.slot.and_then(|slot| self.slots[slot].take())
    }

    /// Keeps the gradient of `var`, of which part `index` of `count` has been written now.
    pub(crate) fn give_unfinished(&mut self, var: &Var, gradient: Buffer, index: usize, count: usize) {
        let Some(slot) = var.slot else { return };
        self.known_sums.remove(&slot);
        let written = self.unfinished.entry(slot).or_insert_with(|| vec![false; count]);
        assert!(!std::mem::replace(&mut written[index], true), "a part of a matrix was read twice");
        self.slots[slot] = Some(gradient);
    }

    /// Hands over `gradient` as a contribution to `var`.
    pub(crate) fn give(&mut self, var: &Var, gradient: Buffer) {
        if let Some(slot) = var.slot {
            self.add(slot, gradient);
        }
    }

    /// Address for the gradient of `var`, and 1 if a kernel must add to existing content; null where no gradient is
    /// wanted.
    pub(crate) fn target(&mut self, var: &Var) -> (Ptr, u32) {
        let Some(slot) = var.slot else { return (Ptr::NULL, 0) };
        self.known_sums.remove(&slot);
        let held = self.slots[slot].is_some();
        let device = self.params.device();
        let buffer =
            self.slots[slot].get_or_insert_with(|| device.scratch_of(var.tensor.dtype(), var.tensor.count()));
        (buffer.ptr(), u32::from(held))
    }

    /// Notes the sums over the rows of what was just written as all of the gradient of `var`: who reads the gradient
    /// need not make them. They are forgotten if something is added to it.
    pub(crate) fn note_sums(&mut self, var: &Var, sums: KnownSums) {
        if let Some(slot) = var.slot {
            self.known_sums.insert(slot, sums);
        }
    }

    /// The sums over the rows of the gradient that this node was given, if they are known.
    pub(crate) fn take_sums(&mut self) -> Option<KnownSums> {
        self.sums_of_taken.take()
    }

    /// Address for the gradient of a parameter block, and 1 if a kernel must add to existing content; null where the
    /// parameter is not free.
    pub(crate) fn param_target(&mut self, id: ParamId) -> (Ptr, u32) {
        if !self.is_free(id) {
            return (Ptr::NULL, 0);
        }
        let (ptr, held) = self.gradients.slot_ptr(id);
        // A parameter that is used twice: what comes now is added to what waits.
        if let (true, Some(gpu)) = (self.together.writes_to(ptr), self.params.device().gpu()) {
            self.together.run(gpu);
        }
        (ptr, u32::from(held))
    }

    /// Lets `write` produce or add to the gradient of a parameter block, if it is free.
    pub(crate) fn param(&mut self, id: ParamId, write: impl FnOnce(&mut [f32], bool)) {
        if self.is_free(id) {
            let (gradient, held) = self.gradients.slot(id);
            write(gradient, held);
        }
    }

    /// Computes what waits, and lets `complete` have these slices.
    pub(super) fn hand_over(
        &mut self,
        slices: &[Slice],
        ready: Range<usize>,
        complete: &mut dyn FnMut(&mut Gradients, usize),
    ) {
        if let Some(gpu) = self.params.device().gpu() {
            self.together.run(gpu);
            self.sums.run(gpu);
        }
        for number in ready {
            self.gradients.seal(&slices[number]);
            complete(self.gradients, number);
        }
    }

    pub(super) fn add(&mut self, slot: usize, gradient: Buffer) {
        self.known_sums.remove(&slot);
        match (&mut self.slots[slot], self.params.device().gpu()) {
            (Some(held), None) => crate::cpu::add(held, &gradient),
            (Some(held), Some(gpu)) => sums::add(gpu, held, &gradient),
            (empty, _) => *empty = Some(gradient),
        }
    }
}
