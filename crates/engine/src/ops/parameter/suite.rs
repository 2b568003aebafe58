//! Parameters as values.

use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    [[1, 1], [67, 13], [300, 512]].map(parameter).into_iter().collect()
}

/// Used twice, so that gradients meet.
fn parameter([rows, cols]: [usize; 2]) -> Case {
    OpCase::new("parameter", format!("[{rows}, {cols}], used twice")).param("x", [rows, cols]).body(|s| {
        let (first, second) = (s.input("x"), s.input("x"));
        s.output("first", Per::Nothing, &first);
        s.output("second", Per::Nothing, &second);
    })
}
