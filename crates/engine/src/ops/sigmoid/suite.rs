//! Scaled sigmoid: sizes that are no multiples of eight, one value, and rows with room to spare.

use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [[1, 1], [1, 8], [7, 5], [61, 8], [131, 3]] {
        cases.push(sigmoid(size, std::convert::identity));
    }
    cases.push(sigmoid([50, 8], OpCase::with_room));
    cases.push(sigmoid([50, 8], OpCase::evaluation));
    cases.push(sigmoid([5_000, 16], OpCase::large));
    cases
}

fn sigmoid([rows, cols]: [usize; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("sigmoid", format!("[{rows}, {cols}]"));
    // Wide enough for both ends of the curve.
    adapt(case.input("x", Per::Row, [rows, cols]).fill(|_, random| 3.0 * random)).body(|s| {
        let x = s.input("x");
        let y = s.tape.sigmoid(&x, 2.0);
        s.output("y", Per::Row, &y);
    })
}
