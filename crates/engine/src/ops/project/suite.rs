//! Projections without a bias, and dropout before them.

use super::Orientation;
use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in [Orientation::Straight, Orientation::Transposed] {
        for dropout in [0.0, 0.3] {
            for size in [[1, 3, 19], [67, 17, 13], [130, 64, 40]] {
                cases.push(project(size, way, dropout, std::convert::identity));
            }
        }
        cases.push(project([50, 24, 40], way, 0.3, OpCase::with_room));
        cases.push(project([50, 24, 40], way, 0.3, OpCase::evaluation));
        cases.push(project([4_099, 1024, 256], way, 0.1, OpCase::large));
    }
    cases
}

fn project(
    [rows, inner, cols]: [usize; 3],
    way: Orientation,
    dropout: f32,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let what = format!("[{rows}, {inner}]·[{inner}, {cols}], {way:?}, dropout {dropout}");
    let shape = if way == Orientation::Straight { [cols, inner] } else { [inner, cols] };
    let case = OpCase::new("project", what).input("x", Per::Row, [rows, inner]);
    let case = case.param("weight", shape).fill(move |_, random| random / (inner as f32).sqrt());
    adapt(case).body(move |s| {
        let x = s.input("x");
        let x = s.tape.dropout(&x, dropout);
        let y = s.tape.project(&x, s.param("weight"), way, dropout);
        s.output("y", Per::Row, &y);
    })
}
