//! Parameters as values: `Y = P`, `[rows, cols]`.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

use crate::device::Backend;
use crate::{ParamId, Tape, Var};

impl Tape<'_> {
    /// A whole parameter block as a value `[rows, cols]`.
    pub fn parameter(&mut self, id: ParamId) -> Var {
        let (params, block) = (self.params, self.params.block(id));
        let shape = [block.rows, block.cols];
        let mut y = self.device().scratch(shape[0] * shape[1]);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, id, &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, id, &y),
        }
        let y = self.output(shape, y, self.uses([id]));
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, id, &dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, id, &dy),
        });
        y
    }
}
