//! Smooth activations.

use crate::ops::activation::Curve;
use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for curve in [Curve::Swish, Curve::Gelu] {
        for dropout in [0.0, 0.3] {
            for size in [[1, 9], [7, 5], [61, 40], [131, 19]] {
                cases.push(activation(size, curve, dropout, std::convert::identity));
            }
        }
        cases.push(activation([50, 24], curve, 0.1, OpCase::with_room));
        cases.push(activation([50, 24], curve, 0.0, OpCase::evaluation));
        cases.push(activation([515, 2048], curve, 0.1, OpCase::large));
    }
    cases
}

fn activation([rows, cols]: [usize; 2], curve: Curve, dropout: f32, adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("activation", format!("[{rows}, {cols}], {curve:?}, dropout {dropout}"));
    // Wide enough for both ends of the curve.
    adapt(case.input("x", Per::Row, [rows, cols]).fill(|_, random| 3.0 * random)).body(move |s| {
        let x = s.input("x");
        let y = s.tape.activate(&x, curve, dropout);
        s.output("y", Per::Row, &y);
    })
}
