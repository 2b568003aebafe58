//! The GPU's side of every op: which kernels and products it is made of.

pub(crate) mod adaptive;
pub(crate) mod elementwise;

use std::sync::Arc;

use crate::cuda::Gpu;
use crate::device::Buffer;
use crate::tape::Backward;
use crate::{Tape, Var};

/// Records a node that is handed the GPU.
pub(crate) fn record(
    tape: &mut Tape<'_>,
    gpu: Arc<Gpu>,
    output: &Var,
    node: impl FnOnce(&Arc<Gpu>, &mut Backward<'_>, Buffer) + Send + 'static,
) {
    tape.record(output, move |backward, gradient| node(&gpu, backward, gradient));
}
