//! Linear layers, projections without a bias, and parameters as values.

use super::Per;
use super::Tolerance;
use super::{Case, OpCase};
use crate::ops::linear::Activation;
use crate::ops::project::Orientation;

pub(super) fn cases() -> Vec<Case> {
    use Activation::{Identity, Relu, Tanh};
    let mut cases = vec![parameter([1, 1]), parameter([67, 13]), parameter([300, 512])];
    for act in [Identity, Relu, Tanh] {
        for dropout in [0.0, 0.3] {
            for size in [[1, 3, 19], [7, 5, 11], [67, 17, 13], [130, 64, 40]] {
                cases.push(linear(size, act, dropout, std::convert::identity));
            }
        }
    }
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
    cases.push(linear([50, 24, 40], Identity, 0.0, OpCase::with_room));
    cases.push(linear([50, 24, 40], Relu, 0.1, OpCase::with_room));
    cases.push(linear([515, 512, 1536], Identity, 0.0, OpCase::large));
    cases.push(linear([515, 512, 2048], Relu, 0.1, OpCase::large));
    cases.push(linear([515, 2048, 512], Identity, 0.0, OpCase::large));
    cases.push(linear([7_001, 64, 1024], Identity, 0.0, OpCase::large));
    cases
}

/// Used twice, so that gradients meet.
fn parameter([rows, cols]: [usize; 2]) -> Case {
    OpCase::new("parameter", format!("[{rows}, {cols}], used twice")).param("x", [rows, cols]).body(|s| {
        let (first, second) = (s.input("x"), s.input("x"));
        s.output("first", Per::Nothing, &first);
        s.output("second", Per::Nothing, &second);
    })
}

fn linear(
    [rows, inner, cols]: [usize; 3],
    act: Activation,
    dropout: f32,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let what = format!("[{rows}, {inner}]·[{inner}, {cols}], {act:?}, dropout {dropout}");
    let case = OpCase::new("linear", what).tolerance(match act {
        // The slope 1 − y² is made of a rounded y.
        Activation::Tanh => Tolerance::new(1.5e-2, 3e-5),
        _ => Tolerance::default(),
    });
    // ReLU has a kink, and rounding must not decide on which side a sum lies. Products of ±1 have whole sums, which a
    // bias of ±½ keeps away from 0.
    let fill = move |size: f32| {
        move |_, random: f32| if act == Activation::Relu { size.copysign(random) } else { size * random }
    };
    let (weight, bias) =
        if act == Activation::Relu { (1.0, 0.5) } else { (1.0 / (inner as f32).sqrt(), 1.0) };
    let case = case.input("x", Per::Row, [rows, inner]).fill(fill(1.0));
    let case =
        case.param("weight", [cols, inner]).fill(fill(weight)).param("bias", [1, cols]).fill(fill(bias));
    adapt(case).body(move |s| {
        let x = s.input("x");
        let y = s.tape.linear(&x, s.param("weight"), s.param("bias"), act, dropout);
        s.output("y", Per::Row, &y);
    })
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
