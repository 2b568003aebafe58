//! Means over sentences, running means.

use crate::suite::{Case, OpCase, Per, starts};

/// One row; empty sentences; sentences that one block, a stretch of a block, or several windows take.
const LENGTHS: [&[u32]; 4] = [&[1], &[4, 0, 1, 6, 0], &[17, 16, 1, 33], &[130, 0, 299, 1, 77]];

/// None; some that are summed again at each place, and longer ones.
const WINDOWS: [Option<usize>; 5] = [None, Some(1), Some(3), Some(6), Some(100)];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for lengths in LENGTHS {
        for cols in [5, 64] {
            cases.push(segment_mean(lengths, cols, std::convert::identity));
            for window in WINDOWS {
                cases.push(running_mean(lengths, cols, window, std::convert::identity));
            }
        }
    }
    cases.push(segment_mean(&[13, 0, 30, 1], 40, OpCase::with_room));
    cases.push(running_mean(&[13, 0, 30, 1], 40, None, OpCase::with_room));
    cases.push(running_mean(&[13, 0, 30, 1], 40, Some(3), OpCase::with_room));
    cases.push(running_mean(&[13, 0, 30, 1], 40, Some(7), OpCase::with_room));
    cases.push(segment_mean(&[4_096, 300, 1], 512, OpCase::large));
    cases.push(running_mean(&[4_096, 300, 1], 512, None, OpCase::large));
    cases.push(running_mean(&[4_096, 300, 1], 512, Some(100), OpCase::large));
    cases.push(running_mean(&[512; 8], 1024, Some(100), OpCase::large));
    cases
}

fn segment_mean(lengths: &[u32], cols: usize, adapt: fn(OpCase) -> OpCase) -> Case {
    let starts = starts(lengths);
    let case = OpCase::new("segment_mean", format!("sentences of {lengths:?}, width {cols}"));
    let rows = starts[lengths.len()] as usize;
    adapt(case.input("x", Per::Row, [rows, cols])).body(move |s| {
        let (x, segments) = (s.input("x"), s.segments(&starts));
        let y = s.tape.segment_mean(&x, &segments);
        s.output("y", Per::Sentence, &y);
    })
}

fn running_mean(lengths: &[u32], cols: usize, window: Option<usize>, adapt: fn(OpCase) -> OpCase) -> Case {
    let starts = starts(lengths);
    let window_text = window.map_or("no window".into(), |window| format!("window {window}"));
    let case = OpCase::new("running_mean", format!("sentences of {lengths:?}, width {cols}, {window_text}"));
    let rows = starts[lengths.len()] as usize;
    adapt(case.input("x", Per::Row, [rows, cols])).body(move |s| {
        let (x, segments) = (s.input("x"), s.segments(&starts));
        let y = s.tape.running_mean(&x, &segments, window);
        s.output("y", Per::Row, &y);
    })
}
