//! Linear layers: `Y = dropout(act(X·Wᵀ + b))`, X `[N, I]`, W `[O, I]`, b `[O]`, Y `[N, O]`.

use crate::cpu::gemm::{Into, Mat, Precision, gemm};
use crate::cpu::{for_rows, for_rows_summing, math};
use crate::ops::RowFactors;
use crate::rng::Dropout;
use crate::{ParamId, Tape, Var};

/// What follows the affine map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// max(0, z).
    Relu,
    /// tanh z.
    Tanh,
}

impl Tape<'_> {
    /// `dropout(act(X·Wᵀ + b))`: X `[N, I]`, W `[O, I]`, b of O values.
    pub fn linear(&mut self, x: &Var, weight: ParamId, bias: ParamId, act: Activation, dropout: f32) -> Var {
        let block = self.params.block(weight);
        let (rows, inner, cols) = (x.rows(), block.cols, block.rows);
        assert_eq!(x.cols(), inner, "linear: the input has {} columns, the weight {inner}", x.cols());
        let dropout = self.next_dropout(dropout);
        if let Some(gpu) = self.gpu() {
            return crate::cuda::ops::linear::linear(self, &gpu, x, [weight, bias], act, dropout);
        }
        let mut y = self.device().scratch(rows * cols);
        let w = Mat::new(self.params.values(weight), inner);
        let x_mat = Mat::new(x.values(), inner);
        gemm([rows, cols, inner], x_mat, w.t(), &mut y, Into::Overwrite, self.precision());
        forward_tail(&mut y, self.params.values(bias), act, dropout);

        let tracked = x.tracked() || self.is_free(weight) || self.is_free(bias);
        let y = self.output([rows, cols], y, tracked);
        let (input, output) = (x.clone(), y.tensor().clone());
        self.record(&y, move |backward, mut dz| {
            let sums = backward_tail(&mut dz, output.values(), cols, act, dropout);
            drop(output);
            backward.param(bias, |db, held| {
                db.iter_mut().zip(&sums).for_each(|(d, s)| *d = if held { *d + s } else { *s });
            });
            backward.param(weight, |dw, held| {
                gemm(
                    [cols, inner, rows],
                    Mat::new(&dz, cols).t(),
                    Mat::new(input.values(), inner),
                    dw,
                    into(held),
                    Precision::Training,
                );
            });
            let w = Mat::new(backward.params.values(weight), inner);
            backward.input(&input, |dx, held| {
                gemm([rows, inner, cols], Mat::new(&dz, cols), w, dx, into(held), Precision::Training);
            });
        });
        y
    }
}

/// A product's target: add to what is held, or overwrite.
pub(crate) fn into(held: bool) -> Into {
    if held { Into::Add } else { Into::Overwrite }
}

/// Y = dropout(act(Z + b)), in place.
fn forward_tail(z: &mut [f32], bias: &[f32], act: Activation, dropout: Option<Dropout>) {
    let cols = bias.len();
    for_rows(
        z,
        cols,
        #[inline(always)]
        |first, rows| {
            let mut factors = RowFactors::new(if dropout.is_some() { cols } else { 0 });
            for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
                match act {
                    Activation::Identity => row.iter_mut().zip(bias).for_each(|(v, b)| *v += b),
                    Activation::Relu => row.iter_mut().zip(bias).for_each(|(v, b)| *v = (*v + b).max(0.0)),
                    Activation::Tanh => row.iter_mut().zip(bias).for_each(|(v, b)| *v = math::tanh(*v + b)),
                }
                if let Some(dropout) = &dropout {
                    row.iter_mut().zip(factors.of(dropout, first + i)).for_each(|(v, f)| *v *= f);
                }
            }
        },
    );
}

/// Turns dY into dZ in place, the activation's slope being read off Y; gives the sums of the columns of dZ.
fn backward_tail(
    dy: &mut [f32],
    y: &[f32],
    cols: usize,
    act: Activation,
    dropout: Option<Dropout>,
) -> Vec<f32> {
    // With dropout Y is scaled; kept values times `back` are the activations themselves.
    let (scale, back) = dropout.map_or((1.0, 1.0), |d| (d.scale, 1.0 / d.scale));
    for_rows_summing(
        dy,
        cols,
        cols,
        #[inline(always)]
        |first, rows, sums| {
            let mut factors = RowFactors::new(cols);
            for (i, d) in rows.chunks_exact_mut(cols).enumerate() {
                let y = &y[(first + i) * cols..][..cols];
                match (act, &dropout) {
                    (Activation::Identity, None) => {}
                    // A dropped unit has Y = 0, as one that is off.
                    (Activation::Relu, _) => {
                        d.iter_mut().zip(y).for_each(|(d, y)| *d = if *y > 0.0 { *d * scale } else { 0.0 });
                    }
                    (Activation::Tanh, None) => {
                        d.iter_mut().zip(y).for_each(|(d, y)| *d *= y.mul_add(-y, 1.0))
                    }
                    // The mask cannot be read off Y, where a kept value may be 0 as well.
                    (Activation::Identity | Activation::Tanh, Some(dropout)) => {
                        for ((d, y), f) in d.iter_mut().zip(y).zip(factors.of(dropout, first + i)) {
                            let value = y * back;
                            let slope =
                                if act == Activation::Tanh { value.mul_add(-value, 1.0) } else { 1.0 };
                            *d *= f * slope;
                        }
                    }
                }
                sums.iter_mut().zip(d.iter()).for_each(|(s, d)| *s += d);
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Check;

    #[test]
    fn gradients_match_finite_differences() {
        for act in [Activation::Identity, Activation::Relu, Activation::Tanh] {
            for dropout in [0.0, 0.3] {
                for [rows, inner, cols] in [[7, 5, 11], [1, 3, 2], [67, 17, 13]] {
                    let mut check = Check::new();
                    let weight = check.param("weight", [cols, inner]);
                    // ReLU has a kink at 0: half of the units far above it, half far below.
                    let bias = match act {
                        Activation::Relu => {
                            check.shifted("bias", [1, cols], |i| if i % 2 == 0 { 40.0 } else { -40.0 })
                        }
                        _ => check.param("bias", [1, cols]),
                    };
                    let x = check.param("x", [rows, inner]);
                    check.run(move |tape| {
                        let x = tape.parameter(x);
                        tape.linear(&x, weight, bias, act, dropout)
                    });
                }
            }
        }
    }
}
