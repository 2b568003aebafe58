//! Ops of other crates: `y = op(inputs)`, computed on the host.
//!
//! [`Tape::custom`] runs a [`CustomOp`] and records its backward pass like that of any op of this crate. A loss is
//! either a custom op with one output value, or no op at all: [`Tape::seed_from_host`] starts the walk back at any
//! value with any gradient.
//!
//! On the CPU a custom op reads the values where they are. On a GPU its inputs are copied to the host and its output
//! back, in both directions, and the host waits for the device each time: right for experiments, slow for inner loops.
//! Such a pass cannot be captured by [`Replays`](crate::Replays); trying it is an error of the device.
//!
//! # Example
//!
//! An op of one's own, the softplus `y = ln(1 + eˣ)`, a squared error as the loss, and one step of gradient descent:
//!
//! ```
//! use mae_engine::ops::custom::{CustomOp, Matrix};
//! use mae_engine::optim::{StepNumbers, sgd};
//! use mae_engine::{Device, GroupId, GroupSet, ParamsBuilder, Rng, Tape};
//!
//! struct Softplus;
//!
//! impl CustomOp for Softplus {
//!     fn shape(&self, inputs: &[[usize; 2]]) -> [usize; 2] {
//!         inputs[0]
//!     }
//!
//!     fn forward(&self, inputs: &[Matrix<'_>], output: &mut [f32]) {
//!         output.iter_mut().zip(inputs[0].values).for_each(|(y, x)| *y = x.exp().ln_1p());
//!     }
//!
//!     fn backward(&self, inputs: &[Matrix<'_>], dy: Matrix<'_>, gradients: &mut [Option<Vec<f32>>]) {
//!         if let Some(dx) = &mut gradients[0] {
//!             for ((dx, x), dy) in dx.iter_mut().zip(inputs[0].values).zip(dy.values) {
//!                 *dx = dy / (1.0 + (-x).exp());
//!             }
//!         }
//!     }
//! }
//!
//! let device = Device::cpu();
//! let mut builder = ParamsBuilder::default();
//! let weight = builder.vector("weight".into(), 3, GroupId(0));
//! let mut params = builder.finish(&device);
//! let mut gradients = params.gradients();
//! let target = [0.2, 0.5, 2.0];
//! let mut losses = Vec::new();
//! for step in 0..20 {
//!     gradients.clear();
//!     let free = GroupSet::of(&[GroupId(0)]);
//!     let mut tape = Tape::training(&params, &mut gradients, free, Rng::new(1, step));
//!     let x = tape.parameter(weight);
//!     let y = tape.custom(&[&x], Softplus);
//!     let errors: Vec<f32> = y.tensor().to_host().iter().zip(target).map(|(y, t)| y - t).collect();
//!     losses.push(errors.iter().map(|error| error * error).sum::<f32>());
//!     tape.seed_from_host(&y, &errors.iter().map(|error| 2.0 * error).collect::<Vec<_>>());
//!     let updates = tape.backward();
//!     params.apply(updates);
//!     sgd(&mut params, &gradients, GroupId(0), 0.5, &StepNumbers::new(&device));
//! }
//! assert!(losses[19] < 0.1 * losses[0]);
//! ```
//!
//! With the feature `suite`, `gradcheck` compares the gradients with finite differences:
//!
#![cfg_attr(feature = "suite", doc = "```")]
#![cfg_attr(not(feature = "suite"), doc = "```ignore")]
//! # use mae_engine::ops::custom::{CustomOp, Matrix};
//! # struct Softplus;
//! # impl CustomOp for Softplus {
//! #     fn shape(&self, inputs: &[[usize; 2]]) -> [usize; 2] {
//! #         inputs[0]
//! #     }
//! #     fn forward(&self, inputs: &[Matrix<'_>], output: &mut [f32]) {
//! #         output.iter_mut().zip(inputs[0].values).for_each(|(y, x)| *y = x.exp().ln_1p());
//! #     }
//! #     fn backward(&self, inputs: &[Matrix<'_>], dy: Matrix<'_>, gradients: &mut [Option<Vec<f32>>]) {
//! #         if let Some(dx) = &mut gradients[0] {
//! #             for ((dx, x), dy) in dx.iter_mut().zip(inputs[0].values).zip(dy.values) {
//! #                 *dx = dy / (1.0 + (-x).exp());
//! #             }
//! #         }
//! #     }
//! # }
//! use mae_engine::gradcheck::Check;
//!
//! let mut check = Check::new();
//! let x = check.param("x", [5, 3]);
//! check.run(|tape| {
//!     let x = tape.parameter(x);
//!     tape.custom(&[&x], Softplus)
//! });
//! ```

#[cfg(feature = "suite")]
pub(crate) mod suite;

use std::borrow::Cow;

use crate::device::{Backend, Buffer};
use crate::tape::Backward;
use crate::{Error, Tape, Tensor, Var};

/// A row-major matrix on the host.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Values per row.
    pub cols: usize,
    /// The values, row by row.
    pub values: &'a [f32],
}

/// A differentiable function of matrices with one output. See the [module](self) for an example.
pub trait CustomOp: Send + 'static {
    /// Shape of the output `[rows, cols]` for inputs of these shapes.
    fn shape(&self, inputs: &[[usize; 2]]) -> [usize; 2];

    /// Writes the output, which holds zeros before.
    fn forward(&self, inputs: &[Matrix<'_>], output: &mut [f32]);

    /// Writes the gradients of the inputs, given that of the output. `None` stands for an input that needs none; the
    /// others hold zeros before. Contributions of other ops to the same inputs are added by the tape.
    fn backward(
        &self,
        inputs: &[Matrix<'_>],
        output_gradient: Matrix<'_>,
        input_gradients: &mut [Option<Vec<f32>>],
    );
}

impl Tape<'_> {
    /// Runs an op of another crate on values of this pass.
    pub fn custom(&mut self, inputs: &[&Var], op: impl CustomOp) -> Var {
        let shapes: Vec<[usize; 2]> = inputs.iter().map(|input| input.shape()).collect();
        let [rows, cols] = op.shape(&shapes);
        let mut y = self.device().scratch(rows * cols);
        if refused(self.backend()) {
            return self.output([rows, cols], y, false);
        }
        let mut values = vec![0.0; rows * cols];
        let hosts: Vec<Cow<'_, [f32]>> = inputs.iter().map(|input| on_host(input.tensor())).collect();
        op.forward(&matrices(&shapes, &hosts), &mut values);
        y.write(0, &values);
        let y = self.output([rows, cols], y, inputs.iter().any(|input| input.tracked()));
        let inputs: Vec<Var> = inputs.iter().copied().cloned().collect();
        self.record(&y, move |backward, dy| {
            if !refused(backward.backend()) {
                walk_back(backward, &op, &inputs, &Tensor::new([rows, cols], dy));
            }
        });
        y
    }
}

fn walk_back(backward: &mut Backward<'_>, op: &impl CustomOp, inputs: &[Var], dy: &Tensor) {
    let shapes: Vec<[usize; 2]> = inputs.iter().map(Var::shape).collect();
    let hosts: Vec<Cow<'_, [f32]>> = inputs.iter().map(|input| on_host(input.tensor())).collect();
    let zeros = |input: &Var| input.tracked().then(|| vec![0.0; input.tensor().count()]);
    let mut gradients: Vec<Option<Vec<f32>>> = inputs.iter().map(zeros).collect();
    let dy_values = on_host(dy);
    let dy = Matrix { rows: dy.rows(), cols: dy.cols(), values: &dy_values };
    op.backward(&matrices(&shapes, &hosts), dy, &mut gradients);
    for (input, gradient) in inputs.iter().zip(gradients) {
        if let Some(gradient) = gradient {
            assert_eq!(gradient.len(), input.tensor().count(), "a gradient has the size of its input");
            backward.give(input, Buffer::from_host(backward.device(), input.tensor().dtype(), &gradient));
        }
    }
}

fn matrices<'a>(shapes: &[[usize; 2]], values: &'a [Cow<'_, [f32]>]) -> Vec<Matrix<'a>> {
    shapes.iter().zip(values).map(|(&[rows, cols], values)| Matrix { rows, cols, values }).collect()
}

fn on_host(tensor: &Tensor) -> Cow<'_, [f32]> {
    if tensor.is_on_gpu() { Cow::Owned(tensor.to_host()) } else { Cow::Borrowed(tensor.values()) }
}

/// The host cannot compute while a GPU's work is captured: that is an error of the device.
fn refused(backend: Backend<'_>) -> bool {
    match backend {
        Backend::Gpu(gpu) if gpu.is_capturing() => {
            gpu.fail(Error::Gpu("a custom op runs on the host: its pass cannot be captured".into()));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;
    use crate::{Device, GroupSet, ParamsBuilder};

    /// y = a·bᵀ of two vectors, one of which may be used for both.
    struct Outer;

    impl CustomOp for Outer {
        fn shape(&self, inputs: &[[usize; 2]]) -> [usize; 2] {
            [inputs[0][1], inputs[1][1]]
        }

        fn forward(&self, inputs: &[Matrix<'_>], output: &mut [f32]) {
            for (row, a) in output.chunks_exact_mut(inputs[1].cols).zip(inputs[0].values) {
                row.iter_mut().zip(inputs[1].values).for_each(|(y, b)| *y = a * b);
            }
        }

        fn backward(&self, inputs: &[Matrix<'_>], dy: Matrix<'_>, gradients: &mut [Option<Vec<f32>>]) {
            for (i, row) in dy.values.chunks_exact(dy.cols).enumerate() {
                for (j, dy) in row.iter().enumerate() {
                    if let Some(da) = &mut gradients[0] {
                        da[i] += dy * inputs[1].values[j];
                    }
                    if let Some(db) = &mut gradients[1] {
                        db[j] += dy * inputs[0].values[i];
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        let mut check = Check::new();
        let (a, b) = (check.param("a", [1, 5]), check.param("b", [1, 3]));
        check.run(move |tape| {
            let (a, b) = (tape.parameter(a), tape.parameter(b));
            tape.custom(&[&a, &b], Outer)
        });
        let mut check = Check::new();
        let a = check.param("a", [1, 5]);
        check.run(move |tape| {
            let a = tape.parameter(a);
            tape.custom(&[&a, &a], Outer)
        });
    }

    #[test]
    fn inputs_without_a_free_parameter_need_no_gradient() {
        let params = ParamsBuilder::default().finish(&Device::cpu());
        let mut gradients = params.gradients();
        let mut tape = Tape::training(&params, &mut gradients, GroupSet::NONE, crate::Rng::new(1, 1));
        let a = Var::constant(Tensor::from_host(params.device(), [1, 2], &[1.0, 2.0]));
        let y = tape.custom(&[&a, &a], Outer);
        assert_eq!(y.tensor().to_host(), [1.0, 2.0, 2.0, 4.0]);
        assert!(!y.tracked());
    }
}
