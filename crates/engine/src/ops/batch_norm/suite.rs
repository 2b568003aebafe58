//! Batch norm, over rows that are all there and over those of packed sentences.

use super::BatchNorm;
use crate::Var;
use crate::suite::{Case, OpCase, Per, Scene, Tolerance, starts};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [[1, 5], [1, 64], [2, 67], [5, 3], [13, 64], [131, 40], [3_300, 67]] {
        cases.push(batch_norm(size, std::convert::identity));
    }
    cases.push(batch_norm([13, 67], OpCase::evaluation));
    cases.push(batch_norm([3_300, 512], OpCase::large));
    for lengths in [&[13, 1, 30, 7][..], &[9]] {
        cases.push(after_mean(lengths, Mean::Sentence, std::convert::identity));
        cases.push(after_mean(lengths, Mean::Sentence, OpCase::with_room));
        cases.push(after_mean(lengths, Mean::Running, OpCase::with_room));
    }
    cases
}

fn declare(case: OpCase, cols: usize) -> OpCase {
    let case = case.param("weight", [1, cols]).param("bias", [1, cols]);
    let case = case.param("running mean", [1, cols]).fixed();
    // A variance is not negative.
    case.param("running variance", [1, cols]).fill(|_, random| 0.5 + random.abs()).fixed()
}

fn norm(s: &mut Scene<'_>, x: &Var) -> Var {
    let norm = BatchNorm {
        weight: s.param("weight"),
        bias: s.param("bias"),
        running_mean: s.param("running mean"),
        running_var: s.param("running variance"),
    };
    s.tape.batch_norm(x, norm)
}

fn batch_norm([rows, cols]: [usize; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("batch_norm", format!("[{rows}, {cols}]")).input("x", Per::Row, [rows, cols]);
    let case = case.fill(|i, random| random + (i % 3) as f32);
    // The gradient of one of two rows is all but 0, the difference of numbers of size 1.
    let floor = if rows == 2 { 1.0 } else { 1e-4 };
    adapt(declare(case, cols).tolerance(Tolerance::new(8e-3, 3e-5).floor(floor))).body(|s| {
        let x = s.input("x");
        let y = norm(s, &x);
        s.output("y", Per::Row, &y);
    })
}

#[derive(Clone, Copy, Debug)]
enum Mean {
    Sentence,
    Running,
}

/// The norm of means, as gates use it. The rows of means know how many of them are real.
fn after_mean(lengths: &[u32], mean: Mean, adapt: fn(OpCase) -> OpCase) -> Case {
    let (starts, cols) = (starts(lengths), 40);
    let case =
        OpCase::new("batch_norm", format!("of means ({mean:?}), sentences of {lengths:?}, width {cols}"));
    let case = case.input("x", Per::Row, [starts[lengths.len()] as usize, cols]);
    // Means are rounded, and their deviations are smaller than they are.
    adapt(declare(case, cols).tolerance(Tolerance::new(2e-2, 5e-5))).body(move |s| {
        let (x, segments) = (s.input("x"), s.segments(&starts));
        let (per, means) = match mean {
            Mean::Sentence => (Per::Sentence, s.tape.segment_mean(&x, &segments)),
            Mean::Running => (Per::Row, s.tape.running_mean(&x, &segments, None)),
        };
        let y = norm(s, &means);
        s.output("y", per, &y);
    })
}
