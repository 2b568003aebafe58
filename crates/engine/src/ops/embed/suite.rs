//! Token embeddings.

use crate::ops::decode::{Lineage, Room};
use crate::ops::embed::{Embedding, Positions, sinusoids};
use crate::suite::{Case, OpCase, Per, starts};
use crate::{Device, Rng};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dropout in [0.0, 0.4] {
        let sizes = |types, width| Sizes { types, width, offset: 0, dropout };
        cases.push(embed(sizes(11, 7), &[1], Spread::Even, std::convert::identity));
        cases.push(embed(sizes(5, 6), &[2, 0, 3], Spread::Even, std::convert::identity));
        cases.push(embed(sizes(131, 40), &[64, 1, 0, 17], Spread::Even, std::convert::identity));
        cases.push(embed(sizes(997, 24), &[300, 1, 699], Spread::OneFrequent, std::convert::identity));
        cases.push(embed(sizes(131, 40), &[30, 0, 1, 17], Spread::Even, OpCase::with_room));
        // Far more types than tokens; more tokens than a block notes at a time.
        cases.push(embed(sizes(40_000, 16), &[100, 57], Spread::OneFrequent, std::convert::identity));
        cases.push(embed(sizes(300, 16), &[9_000, 1], Spread::OneFrequent, OpCase::large));
        cases.push(embed(sizes(6_632, 512), &[100; 33], Spread::OneFrequent, OpCase::large));
        cases.push(embed(sizes(20_000, 1024), &[512; 8], Spread::Even, OpCase::large));
    }
    // Search: one token each, after five steps.
    let sizes = Sizes { types: 131, width: 40, offset: 5, dropout: 0.4 };
    cases.push(embed(sizes, &[1; 17], Spread::Even, OpCase::evaluation));
    cases.push(stored(sizes, 17));
    cases
}

#[derive(Clone, Copy)]
struct Sizes {
    types: usize,
    width: usize,
    offset: usize,
    dropout: f32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    Even,
    /// Three of five tokens are the same.
    OneFrequent,
}

/// Ids of `count` tokens.
pub(crate) fn tokens(count: usize, types: usize, stream: u32) -> Vec<u32> {
    let mut bits = vec![0; count];
    Rng::new(13, 0).stream(stream).bits16(0, &mut bits);
    bits.iter().map(|&bits| u32::from(bits) % types as u32).collect()
}

/// A search that has taken so many steps; the last hypothesis began after the others.
pub(crate) fn steps(device: &Device, count: usize, rows: usize) -> Option<Lineage> {
    let mut lineage = Lineage::new(device, Room { rows, steps: count + 1 });
    lineage.begin(rows - 1);
    (0..count).for_each(|_| lineage.count_step());
    lineage.begin(1);
    lineage.load();
    (count > 0).then_some(lineage)
}

/// In search, with positions that are a parameter.
fn stored(sizes: Sizes, hypotheses: usize) -> Case {
    let Sizes { types, width, offset, dropout } = sizes;
    let (starts, ids) = (starts(&vec![1; hypotheses]), tokens(hypotheses, types, 0));
    let what =
        format!("{hypotheses} tokens of {types} types, width {width}, offset {offset}, stored positions");
    let case = OpCase::new("embed", what).param("table", [types, width]);
    case.param("positions", [offset + 1, width]).evaluation().body(move |s| {
        let positions = Positions::Stored(s.param("positions"));
        let e = Embedding { table: s.param("table"), positions, scale: 1.0, dropout };
        let (ids, segments) = (s.ids(&ids), s.segments(&starts));
        let before = steps(s.tape.device(), offset, ids.len());
        let y = s.tape.embed(e, &ids, &segments, before.as_ref());
        s.output("y", Per::Row, &y);
    })
}

fn embed(sizes: Sizes, lengths: &[u32], spread: Spread, adapt: fn(OpCase) -> OpCase) -> Case {
    let Sizes { types, width, offset, dropout } = sizes;
    let (starts, longest) = (starts(lengths), lengths.iter().copied().max().unwrap_or(0) as usize);
    let mut ids = tokens(starts[lengths.len()] as usize, types, 0);
    if spread == Spread::OneFrequent {
        ids.iter_mut().enumerate().filter(|(i, _)| i % 5 < 3).for_each(|(_, id)| *id = 3);
    }
    let what = format!(
        "{} tokens of {types} types ({spread:?}), {} sentences, width {width}, offset {offset}, dropout {dropout}",
        ids.len(),
        lengths.len()
    );
    adapt(OpCase::new("embed", what).param("table", [types, width])).body(move |s| {
        let positions = sinusoids(s.tape.device(), offset + longest, width);
        let scale = (width as f32).sqrt();
        let positions = Positions::Fixed(&positions);
        let e = Embedding { table: s.param("table"), positions, scale, dropout };
        let (ids, segments) = (s.ids(&ids), s.segments(&starts));
        let before = steps(s.tape.device(), offset, ids.len());
        let y = s.tape.embed(e, &ids, &segments, before.as_ref());
        s.output("y", Per::Row, &y);
    })
}
