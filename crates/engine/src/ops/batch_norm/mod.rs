//! Batch norm over rows: `y = (x − mean)/√(variance + ε)·γ + β` per column, x `[N, D]`.
//!
//! In training the statistics are the batch's (biased variance), and the running ones move towards them
//! (unbiased variance, momentum 0.1), as in PyTorch. In evaluation, and for a batch of one row, which has
//! no variance, the running statistics are used.
//!
//! The op only reads the running statistics. Their moves are part of what [`Tape::backward`] returns, and
//! [`Params::apply`](crate::Params::apply) carries them out, on every device.

mod cpu;
pub(super) mod cuda;
#[cfg(feature = "suite")]
pub(crate) mod suite;

pub(crate) use cpu::Running;

use crate::device::{Backend, Buffer};
use crate::{ParamId, Tape, Var};

/// Default of PyTorch.
pub const EPSILON: f32 = 1e-5;
/// Default of PyTorch: running = 0.9·running + 0.1·batch.
pub const MOMENTUM: f32 = 0.1;

/// Moves running statistics by what a batch adds to the part of them that stays: `running ← 0.9·running + moves`.
pub(crate) fn move_towards(running: &mut [f32], moves: &[f32]) {
    for (running, added) in running.iter_mut().zip(moves) {
        let value = (1.0 - MOMENTUM) * *running + added;
        // A batch whose numbers are not finite must not spoil them.
        *running = if value.is_finite() { value } else { *running };
    }
}

/// γ, β and the running statistics, D values each.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// γ.
    pub weight: ParamId,
    /// β.
    pub bias: ParamId,
    /// Running mean; not trained.
    pub running_mean: ParamId,
    /// Running variance; not trained.
    pub running_var: ParamId,
}

/// The op with its input and what the backward pass needs.
struct Op {
    x: Var,
    norm: BatchNorm,
    /// Whose statistics normalise.
    source: Source,
    /// Per column.
    mean: Buffer,
    /// 1/√(variance + ε) per column.
    scale: Buffer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Those of the batch, which depend on x.
    Batch,
    /// The running ones.
    Running,
}

impl Tape<'_> {
    /// Batch norm over the rows of x `[N, D]`.
    pub fn batch_norm(&mut self, x: &Var, norm: BatchNorm) -> Var {
        let (params, [rows, cols]) = (self.params, x.shape());
        for id in [norm.weight, norm.bias, norm.running_mean, norm.running_var] {
            let block = params.block(id);
            assert_eq!(block.rows * block.cols, cols, "batch_norm: a parameter is not as wide as x");
        }
        let floats = |_| self.device().scratch_floats(cols);
        let [mean, scale] = [0; 2].map(floats);
        let source = if self.is_training() && rows > 1 { Source::Batch } else { Source::Running };
        let mut moved = (source == Source::Batch).then(|| [0; 2].map(floats));
        let mut op = Op { x: x.clone(), norm, source, mean, scale };
        let mut y = self.like(x);
        match self.backend() {
            Backend::Cpu => cpu::forward(params, &mut op, moved.as_mut(), &mut y),
            Backend::Gpu(gpu) => cuda::forward(gpu, params, &op, moved.as_ref(), &y),
        }
        for (id, values) in [norm.running_mean, norm.running_var].into_iter().zip(moved.into_iter().flatten())
        {
            self.update(id, values);
        }
        let tracked = self.uses([norm.weight, norm.bias]) || x.tracked();
        let y = self.output([rows, cols], y, tracked);
        self.record(&y, move |backward, dy| match backward.backend() {
            Backend::Cpu => cpu::backward(backward, &op, &dy),
            Backend::Gpu(gpu) => cuda::backward(gpu, backward, &op, &dy),
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::params::{GroupId, GroupSet, ParamsBuilder};
    use crate::{Device, Rng, Tensor};

    #[test]
    fn gradients_match_finite_differences() {
        for [rows, cols] in [[5, 3], [13, 67], [2, 4]] {
            let mut check = Check::new();
            let x = check.param("x", [rows, cols]);
            let (weight, bias) = (check.param("weight", [1, cols]), check.param("bias", [1, cols]));
            check.run(move |tape| {
                let x = tape.parameter(x);
                // Batch statistics: the running ones are not read, any block of the right size will do.
                tape.batch_norm(&x, BatchNorm { weight, bias, running_mean: weight, running_var: bias })
            });
        }
    }

    #[test]
    fn running_statistics_move_and_serve_single_rows() {
        let device = Device::cpu();
        let mut builder = ParamsBuilder::default();
        let mut vector = |name: &str| builder.vector(name.into(), 1, GroupId(0));
        let norm = BatchNorm {
            weight: vector("weight"),
            bias: vector("bias"),
            running_mean: vector("mean"),
            running_var: vector("var"),
        };
        let mut params = builder.finish(&device);
        params.set("weight", &[2.0]).unwrap();
        params.set("bias", &[0.5]).unwrap();
        params.set("mean", &[1.0]).unwrap();
        params.set("var", &[4.0]).unwrap();
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::NONE, Rng::new(1, 1));
        let one = Var::constant(Tensor::from_host(&device, [1, 1], &[3.0]));
        let y = tape.batch_norm(&one, norm).tensor().to_host()[0];
        assert!((y - 2.5).abs() < 1e-4, "(3-1)/2·2+0.5 = 2.5, got {y}");
        let two = Var::constant(Tensor::from_host(&device, [2, 1], &[0.0, 6.0]));
        tape.batch_norm(&two, norm);
        let updates = tape.backward();
        params.apply(updates);
        assert!((params.get("mean").unwrap()[0] - 1.2).abs() < 1e-6);
        assert!((params.get("var").unwrap()[0] - (3.6 + 1.8)).abs() < 1e-5);
    }
}
