//! How the lines of a matrix lie.

use super::{Int8Matrix, LANES, STRIPS};

/// The order of the lines of a panel's strips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One strip after the other.
    Strips,
    /// Line by line, in the order in which a product reads them: a processor that looks ahead by itself follows one
    /// stream farther than four.
    Lines,
}

impl Layout {
    /// Lines from the first one of a strip of so many to that of the next strip, and from a line of a strip to its next.
    pub(super) fn steps(self, lines: usize) -> [usize; 2] {
        match self {
            Self::Strips => [lines, 1],
            Self::Lines => [1, STRIPS],
        }
    }
}

impl Int8Matrix {
    /// Place of a line of a strip.
    pub(super) fn line(&self, strip: usize, line: usize) -> usize {
        let [apart, step] = self.layout.steps(self.strip_lines());
        strip / STRIPS * STRIPS * self.strip_lines() + strip % STRIPS * apart + line * step
    }

    /// Places of the lines of a row's strip, and the row's lane.
    pub(super) fn place(&self, row: usize) -> (impl Iterator<Item = usize> + use<>, usize) {
        let step = self.layout.steps(self.strip_lines())[1];
        let first = self.line(row / LANES, 0);
        ((first..).step_by(step).take(self.strip_lines()), row % LANES)
    }
}
