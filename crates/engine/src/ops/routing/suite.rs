//! Head weights of MoH: few and many heads, one row, one active head, all active, rows with room to spare, and the balance
//! loss. Logits are rounded for both devices alike, so both choose the same heads.

use super::Routing;
use crate::suite::{Case, OpCase, Per, starts};

/// Heads, shared ones, active ones among the others.
const SIZES: [[usize; 3]; 6] = [[2, 1, 1], [8, 2, 4], [8, 1, 7], [5, 2, 2], [13, 3, 1], [40, 7, 11]];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in SIZES {
        for balance in [0.0, 0.7] {
            for lengths in [&[1][..], &[4, 0, 1, 30], &[131, 17]] {
                cases.push(route(lengths, size, balance, std::convert::identity));
            }
            cases.push(route(&[4, 0, 1, 30], size, balance, OpCase::with_room));
        }
        cases.push(route(&[4, 0, 1, 30], size, 0.7, OpCase::evaluation));
    }
    cases.push(route(&[1_000, 2_300], [8, 2, 4], 0.7, OpCase::large));
    cases
}

fn route(
    lengths: &[u32],
    [heads, shared, active]: [usize; 3],
    balance: f32,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let starts = starts(lengths);
    let rows = starts[lengths.len()] as usize;
    let what =
        format!("{rows} rows, {heads} heads, {shared} shared, {active} active, balance loss {balance}");
    let case = OpCase::new("route_heads", what);
    adapt(case.input("logits", Per::Row, [rows, heads + 2])).body(move |s| {
        let (logits, segments) = (s.input("logits"), s.segments(&starts));
        s.tape.share_losses(&segments, 0.25, 3);
        let routing = Routing { shared, active, balance };
        let weights = s.tape.route_heads(&logits, routing, Some(&segments));
        s.output("weights", Per::Row, &weights);
    })
}
