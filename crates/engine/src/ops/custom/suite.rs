//! Ops that are computed on the host, between ops of the device.

use super::{CustomOp, Matrix};
use crate::suite::{Case, OpCase, Per};

/// y = x·z, value by value.
struct Times;

impl CustomOp for Times {
    fn shape(&self, inputs: &[[usize; 2]]) -> [usize; 2] {
        inputs[0]
    }

    fn forward(&self, inputs: &[Matrix<'_>], output: &mut [f32]) {
        let pairs = inputs[0].values.iter().zip(inputs[1].values);
        output.iter_mut().zip(pairs).for_each(|(y, (x, z))| *y = x * z);
    }

    fn backward(&self, inputs: &[Matrix<'_>], dy: Matrix<'_>, gradients: &mut [Option<Vec<f32>>]) {
        for (own, other) in [(0, 1), (1, 0)] {
            if let Some(gradient) = &mut gradients[own] {
                let pairs = dy.values.iter().zip(inputs[other].values);
                gradient.iter_mut().zip(pairs).for_each(|(d, (dy, value))| *d = dy * value);
            }
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    [[1, 5], [13, 67]].map(custom).into_iter().collect()
}

fn custom([rows, cols]: [usize; 2]) -> Case {
    let case = OpCase::new("custom", format!("a product on the host, [{rows}, {cols}]"));
    case.input("x", Per::Row, [rows, cols]).input("z", Per::Row, [rows, cols]).body(|s| {
        let (x, z) = (s.input("x"), s.input("z"));
        let y = s.tape.custom(&[&x, &z], Times);
        // An op of the device reads it.
        let sum = s.tape.residual(&y, &x, 0.0);
        s.output("sum", Per::Row, &sum);
    })
}
