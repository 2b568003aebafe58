//! Matrices of equal width side by side: one product makes them, several ops read one each.

use crate::device::Buffer;
use crate::tape::Backward;
use crate::{ParamId, Tape, Tensor, Var};

/// Matrices `[N, C]` side by side in one `[N, P·C]`.
#[derive(Clone, Debug)]
pub struct Parts {
    whole: Var,
    count: usize,
}

/// One of several matrices side by side. In a training pass one op reads it, and the others are read, too.
#[derive(Clone, Debug)]
pub struct Part {
    whole: Var,
    index: usize,
    count: usize,
}

impl Parts {
    /// All of them, `[N, P·C]`.
    pub fn whole(&self) -> &Tensor {
        self.whole.tensor()
    }

    /// One of them.
    pub fn part(&self, index: usize) -> Part {
        assert!(index < self.count, "part {index} of {}", self.count);
        Part { whole: self.whole.clone(), index, count: self.count }
    }
}

impl Part {
    /// The matrix that it is a part of.
    pub(crate) fn whole(&self) -> &Var {
        &self.whole
    }

    /// C.
    pub(crate) fn cols(&self) -> usize {
        self.whole.cols() / self.count
    }

    /// Its first column in the whole.
    pub(crate) fn first_column(&self) -> usize {
        self.index * self.cols()
    }
}

impl Tape<'_> {
    /// `X·Wᵀ + b` as in [`Tape::linear`], `[N, O]`, for ops that read O / `count` columns each.
    pub fn linear_parts(&mut self, x: &Var, weight: ParamId, bias: ParamId, count: usize) -> Parts {
        let whole = self.linear(x, weight, bias, crate::ops::linear::Activation::Identity, 0.0);
        assert!(count > 0 && whole.cols().is_multiple_of(count), "{count} parts of {} columns", whole.cols());
        Parts { whole, count }
    }
}

impl Backward<'_> {
    /// Room for the gradients of all parts, in which an op writes every value of its own.
    pub(crate) fn take_parts(&mut self, part: &Part) -> Buffer {
        self.take_unfinished(&part.whole)
            .unwrap_or_else(|| self.device().scratch(part.whole.tensor().count()))
    }

    /// Hands the room back with the gradient of `part` in it.
    pub(crate) fn give_part(&mut self, part: &Part, gradients: Buffer) {
        self.give_unfinished(&part.whole, gradients, part.index, part.count);
    }
}
