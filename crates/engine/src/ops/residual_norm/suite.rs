//! Residual, dropout and layer norm.

use super::{LayerNorm, Normed};
use crate::ops::linear::Activation;
use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dropout in [0.0, 0.3] {
        for size in [[1, 33], [3, 7], [61, 512], [19, 1024], [200, 760], [11, 1500]] {
            cases.push(residual_norm(size, dropout, Used::Normed, std::convert::identity));
            cases.push(residual_norm(size, dropout, Used::Both, std::convert::identity));
            cases.push(residual(size, dropout));
        }
        for size in [[61, 512], [19, 1024], [200, 760], [11, 1500]] {
            cases.push(above_a_layer(size, dropout, Layer::Once, std::convert::identity));
        }
        cases.push(above_a_layer([61, 512], dropout, Layer::Once, OpCase::with_room));
        for used in [Layer::BeforeToo, Layer::AfterToo] {
            cases.push(above_a_layer([61, 512], dropout, used, std::convert::identity));
            cases.push(above_a_layer([61, 512], dropout, used, OpCase::with_room));
        }
        cases.push(residual_norm([50, 24], dropout, Used::Both, OpCase::with_room));
        cases.push(residual_norm([50, 1024], dropout, Used::Both, OpCase::with_room));
        cases.push(residual_norm([3_300, 512], dropout, Used::Normed, OpCase::large));
        cases.push(residual_norm([5_000, 1024], dropout, Used::Both, OpCase::large));
    }
    for size in [[1, 33], [3, 7], [61, 512], [19, 1024], [11, 1500]] {
        cases.push(layer_norm(size, 0.0));
    }
    // A mean much larger than the deviation, whose squares would cancel.
    cases.push(layer_norm([17, 512], 32.0));
    cases.push(layer_norm([17, 7], 32.0));
    cases
}

/// Post-norm continues with the normed sum, pre-norm with both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Normed,
    Both,
}

fn residual_norm([rows, cols]: [usize; 2], dropout: f32, used: Used, adapt: fn(OpCase) -> OpCase) -> Case {
    let which = if used == Used::Both { "sum and norm" } else { "norm" };
    let case =
        OpCase::new("residual_norm", format!("[{rows}, {cols}], dropout {dropout}, gradient of {which}"));
    let case = case.input("x", Per::Row, [rows, cols]).input("z", Per::Row, [rows, cols]);
    adapt(case.param("weight", [1, cols]).param("bias", [1, cols])).body(move |s| {
        let (x, z) = (s.input("x"), s.input("z"));
        let norm = LayerNorm { weight: s.param("weight"), bias: s.param("bias") };
        let Normed { sum, normed } = s.tape.residual_norm(&x, &z, dropout, norm);
        s.output("normed", Per::Row, &normed);
        match used {
            Used::Both => s.output("sum", Per::Row, &sum),
            Used::Normed => s.value("sum", sum.tensor()),
        }
    })
}

/// How often the linear layer below is used: whether something else adds to its gradient, before the norm or after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    Once,
    BeforeToo,
    AfterToo,
}

/// The norm makes the sums for the bias of the layer on its way.
fn above_a_layer([rows, cols]: [usize; 2], dropout: f32, used: Layer, adapt: fn(OpCase) -> OpCase) -> Case {
    let what = format!("[{rows}, {cols}], dropout {dropout}, above a linear layer, used {used:?}");
    let case = OpCase::new("residual_norm", what).input("x", Per::Row, [rows, cols]);
    let case =
        case.param("matrix", [cols, cols]).fill(|_, random| 0.1 * random).param("layer bias", [1, cols]);
    adapt(case.param("weight", [1, cols]).param("bias", [1, cols])).body(move |s| {
        let (x, matrix, layer_bias) = (s.input("x"), s.param("matrix"), s.param("layer bias"));
        let norm = LayerNorm { weight: s.param("weight"), bias: s.param("bias") };
        let z = s.tape.linear(&x, matrix, layer_bias, Activation::Identity, 0.0);
        // What comes first here comes last on the way back.
        let first = (used == Layer::AfterToo).then(|| s.tape.residual(&x, &z, 0.0));
        let normed = s.tape.residual_norm(&x, &z, dropout, norm).normed;
        let last = (used == Layer::BeforeToo).then(|| s.tape.residual(&x, &z, 0.0));
        s.output("normed", Per::Row, &normed);
        for sum in first.iter().chain(&last) {
            s.output("sum", Per::Row, sum);
        }
    })
}

fn residual([rows, cols]: [usize; 2], dropout: f32) -> Case {
    let case = OpCase::new("residual", format!("[{rows}, {cols}], dropout {dropout}"));
    case.input("x", Per::Row, [rows, cols]).input("z", Per::Row, [rows, cols]).body(move |s| {
        let (x, z) = (s.input("x"), s.input("z"));
        let sum = s.tape.residual(&x, &z, dropout);
        s.output("sum", Per::Row, &sum);
    })
}

fn layer_norm([rows, cols]: [usize; 2], mean: f32) -> Case {
    let case = OpCase::new("layer_norm", format!("[{rows}, {cols}], mean {mean}"));
    let case = case.input("x", Per::Row, [rows, cols]).fill(move |_, random| mean + random);
    case.param("weight", [1, cols]).param("bias", [1, cols]).body(move |s| {
        let x = s.input("x");
        let y = s.tape.layer_norm(&x, LayerNorm { weight: s.param("weight"), bias: s.param("bias") });
        s.output("y", Per::Row, &y);
    })
}
