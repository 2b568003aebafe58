//! Linear layers.

use crate::ops::linear::Activation;
use crate::suite::{Case, OpCase, Per, Tolerance};

pub(crate) fn cases() -> Vec<Case> {
    use Activation::{Identity, Relu, Tanh};
    let mut cases = Vec::new();
    for act in [Identity, Relu, Tanh] {
        for dropout in [0.0, 0.3] {
            for size in [[1, 3, 19], [7, 5, 11], [67, 17, 13], [130, 64, 40]] {
                cases.push(linear(size, act, dropout, std::convert::identity));
            }
        }
    }
    cases.push(linear([50, 24, 40], Identity, 0.0, OpCase::with_room));
    cases.push(linear([50, 24, 40], Relu, 0.1, OpCase::with_room));
    cases.push(linear([515, 512, 1536], Identity, 0.0, OpCase::large));
    cases.push(linear([515, 512, 2048], Relu, 0.1, OpCase::large));
    cases.push(linear([515, 2048, 512], Identity, 0.0, OpCase::large));
    cases.push(linear([7_001, 64, 1024], Identity, 0.0, OpCase::large));
    for [rows, width] in [[7, 5], [67, 16], [130, 64]] {
        cases.push(together([rows, width], std::convert::identity));
    }
    cases.push(together([515, 512], OpCase::large));
    cases
}

/// Layers of one shape, whose weight gradients are computed at once; the first is used twice.
fn together([rows, width]: [usize; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let what = format!("four maps [{rows}, {width}]·[{width}, {width}], one of them twice");
    let scale = move |_, random: f32| random / (width as f32).sqrt();
    let case = OpCase::new("linear", what).input("x", Per::Row, [rows, width]);
    let case = MAPS.iter().fold(case, |case, [weight, bias]| {
        case.param(weight, [width, width]).fill(scale).param(bias, [1, width])
    });
    adapt(case).body(move |s| {
        let mut y = s.input("x");
        for [weight, bias] in MAPS.iter().chain(&MAPS[..1]) {
            y = s.tape.linear(&y, s.param(weight), s.param(bias), Activation::Identity, 0.0);
        }
        s.output("y", Per::Row, &y);
    })
}

/// Names of the weight and the bias of each.
const MAPS: [[&str; 2]; 4] =
    [["weight", "bias"], ["weight 2", "bias 2"], ["weight 3", "bias 3"], ["weight 4", "bias 4"]];

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
