//! The loss, and logits.

use crate::ops::cross_entropy::CrossEntropy;
use crate::ops::embed::suite::tokens;
use crate::suite::{Case, OpCase, Per};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // A row of logits that is kept in shared memory and one that is not, aligned and not.
    for types in [11, 128, 6_632, 6_637, 33_000, 50_003] {
        cases.push(cross_entropy([5, 7, types], 0.1, std::convert::identity));
    }
    for types in [11, 131, 6_637] {
        cases.push(biased([67, 13, types], std::convert::identity));
    }
    cases.push(biased([50, 24, 131], OpCase::with_room));
    cases.push(biased([515, 512, 20_002], OpCase::large));
    cases.push(cross_entropy([67, 13, 131], 0.0, std::convert::identity));
    cases.push(cross_entropy([1, 3, 11], 0.1, std::convert::identity));
    cases.push(cross_entropy([67, 13, 131], 0.1, OpCase::evaluation));
    cases.push(cross_entropy([50, 24, 128], 0.1, OpCase::with_room));
    cases.push(cross_entropy([50, 24, 131], 0.0, OpCase::with_room));
    cases.push(cross_entropy([515, 512, 6_632], 0.1, OpCase::large));
    cases.push(cross_entropy([129, 64, 33_000], 0.1, OpCase::large));
    cases.push(cross_entropy([515, 512, 20_002], 0.0, OpCase::large));
    cases.extend([[1, 3, 11], [7, 5, 131], [67, 64, 1_000]].map(logits));
    cases
}

/// Features and vocabulary whose logits have a deviation of 1.5.
fn declare(case: OpCase, [rows, width, types]: [usize; 3]) -> OpCase {
    let factor = 1.5 / (width as f32).sqrt();
    let case = case.input("features", Per::Row, [rows, width]);
    case.param("vocabulary", [types, width]).fill(move |_, random| factor * random)
}

fn cross_entropy(size: [usize; 3], smoothing: f32, adapt: fn(OpCase) -> OpCase) -> Case {
    let [rows, width, types] = size;
    let case =
        OpCase::new("cross_entropy", format!("{rows} rows of {width}, {types} types, smoothing {smoothing}"));
    let targets = tokens(rows, types, 2);
    adapt(declare(case, size)).body(move |s| {
        let (x, targets) = (s.input("features"), s.ids(&targets));
        let loss = CrossEntropy {
            vocabulary: s.param("vocabulary"),
            bias: None,
            targets: &targets,
            smoothing,
            weight: 0.25,
        };
        let sums = s.tape.cross_entropy(&x, loss);
        s.numbers("loss and nll", &sums.both());
        s.value("log-probabilities", &sums.log_probs);
    })
}

fn biased(size: [usize; 3], adapt: fn(OpCase) -> OpCase) -> Case {
    let [rows, width, types] = size;
    let case = OpCase::new("cross_entropy", format!("{rows} rows of {width}, {types} types, a bias"));
    let targets = tokens(rows, types, 2);
    adapt(declare(case, size).param("bias", [1, types])).body(move |s| {
        let (x, targets) = (s.input("features"), s.ids(&targets));
        let (vocabulary, bias) = (s.param("vocabulary"), Some(s.param("bias")));
        let loss = CrossEntropy { vocabulary, bias, targets: &targets, smoothing: 0.1, weight: 0.25 };
        let sums = s.tape.cross_entropy(&x, loss);
        s.numbers("loss and nll", &sums.both());
        s.value("log-probabilities", &sums.log_probs);
        let logits = s.tape.logits(&x, vocabulary, bias);
        s.value("logits", &logits);
    })
}

fn logits(size: [usize; 3]) -> Case {
    let [rows, width, types] = size;
    let case = OpCase::new("logits", format!("{rows} rows of {width}, {types} types"));
    declare(case, size).evaluation().body(|s| {
        let x = s.input("features");
        let logits = s.tape.logits(&x, s.param("vocabulary"), None);
        s.value("logits", &logits);
    })
}
