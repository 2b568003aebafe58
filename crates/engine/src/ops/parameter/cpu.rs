//! The CPU's implementation.

use crate::ParamId;
use crate::params::Params;
use crate::tape::Backward;

pub(super) fn forward(params: &Params, id: ParamId, y: &mut [f32]) {
    y.copy_from_slice(&params.matrix(id).values());
}

pub(super) fn backward(backward: &mut Backward<'_>, id: ParamId, dy: &[f32]) {
    backward.param(id, |gradient, held| {
        if held {
            crate::cpu::add(gradient, dy);
        } else {
            gradient.copy_from_slice(dy);
        }
    });
}
