//! Hard concrete gates: drawn, given and without noise, one row and many, room to spare, with and without a penalty.

use super::{HardConcrete, Noise};
use crate::suite::{Case, OpCase, Per, starts};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for heads in [1, 8, 13, 40] {
        for penalty in [0.0, 0.7] {
            for lengths in [&[1][..], &[4, 0, 1, 30], &[131, 517]] {
                cases.push(gates(lengths, heads, penalty, Given::No, std::convert::identity));
            }
            cases.push(gates(&[4, 0, 1, 30], heads, penalty, Given::Yes, std::convert::identity));
            cases.push(gates(&[4, 0, 1, 30], heads, penalty, Given::No, OpCase::with_room));
        }
        cases.push(gates(&[4, 0, 1, 30], heads, 0.7, Given::No, OpCase::evaluation));
    }
    cases.push(gates(&[1_000, 2_300], 8, 0.7, Given::No, OpCase::large));
    cases
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Yes,
    No,
}

fn gates(lengths: &[u32], heads: usize, penalty: f32, given: Given, adapt: fn(OpCase) -> OpCase) -> Case {
    let starts = starts(lengths);
    let rows = starts[lengths.len()] as usize;
    let what = format!("{rows} rows, {heads} heads, penalty {penalty}, draws given: {given:?}");
    adapt(OpCase::new("hard_concrete", what).param("log_a", [1, heads])).body(move |s| {
        let segments = s.segments(&starts);
        s.tape.share_losses(&segments, 0.25, 3);
        let noise = match given {
            // Draws in the middle: gates between 0 and 1.
            Given::Yes => Noise::Given(crate::Ids::from_host(s.tape.device(), &vec![30_000; heads])),
            Given::No => Noise::Drawn,
        };
        let gate = HardConcrete { log_a: s.param("log_a"), start: 0.25, penalty };
        let weights = s.tape.hard_concrete(gate, s.rows(Per::Row, rows), &noise);
        s.output("weights", Per::Row, &weights);
    })
}
