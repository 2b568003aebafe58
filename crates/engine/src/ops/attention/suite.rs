//! Packed attention with head weights.

use crate::ops::attention::{Attention, HeadWeights, Inputs};
use crate::suite::{Case, OpCase, Per, Scene, Tolerance, starts};
use crate::{Numbers, Var};

/// No sentence longer than a tile, one of exactly a tile, one without rows.
const SHORT: &[u32] = &[13, 1, 0, 64, 7];
/// Several tiles, the last one full, with one row, and with some.
const LONG: &[u32] = &[65, 1, 0, 128, 200];
/// A batch of long sentences, for which blocks are larger, with a short one in it.
const VERY_LONG: &[u32] = &[200, 130, 1, 400, 320];

/// Kinds of head weights. Tracked weights get a gradient, where heads of weight 0 have one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    One,
    PerSentence,
    PerRow,
    ConstantPerSentence,
    ConstantPerRow,
}

#[derive(Clone, Copy)]
struct Kind {
    heads: usize,
    /// Width of a head.
    width: usize,
    causal: bool,
    dropout: f32,
    weights: Weights,
    /// In which number type it is run, if not in both.
    only: Option<Numbers>,
}

/// In the versions of `Unit::every_file`, so that nothing is compiled for one case alone.
pub(crate) fn cases() -> Vec<Case> {
    use Weights::{ConstantPerRow, ConstantPerSentence, One, PerRow, PerSentence};
    let mut cases = Vec::new();
    for (only, width) in [(Numbers::Bf16, 64), (Numbers::F32, 16)] {
        for weights in [One, PerSentence, PerRow, ConstantPerSentence, ConstantPerRow] {
            for (causal, dropout) in [(false, 0.0), (false, 0.3), (true, 0.0), (true, 0.3)] {
                let kind = Kind { heads: 3, width, causal, dropout, weights, only: Some(only) };
                cases.extend(all_shapes(kind));
            }
        }
    }
    let kind =
        |width, causal, dropout, weights, only| Kind { heads: 2, width, causal, dropout, weights, only };
    let bf16 = Some(Numbers::Bf16);
    for kind in [
        kind(5, true, 0.3, PerRow, None),
        kind(32, false, 0.3, PerSentence, bf16),
        kind(128, true, 0.0, One, bf16),
    ] {
        cases.extend([&[1; 3], SHORT, LONG].map(|lengths| packed(kind, lengths, std::convert::identity)));
    }
    let eight = |causal, weights| Kind { heads: 8, ..kind(64, causal, 0.1, weights, None) };
    cases.push(packed(eight(false, PerSentence), &[23, 31, 1, 64, 17, 40], OpCase::large));
    cases.push(packed(eight(true, PerRow), &[300, 2, 177, 64, 1], OpCase::large));
    let with_short: Vec<u32> = [4_096].into_iter().chain([1; 40]).collect();
    cases.push(packed(kind(64, true, 0.0, One, bf16), &with_short, OpCase::large));
    cases.push(packed(kind(16, true, 0.0, One, Some(Numbers::F32)), &with_short, OpCase::large));
    cases.push(packed(kind(128, true, 0.0, One, bf16), &[200, 1], OpCase::large));
    // Four heads, so that whole tiles have none but weights of 0.
    let kind = |width, causal, dropout, weights, only| Kind {
        heads: 4,
        ..kind(width, causal, dropout, weights, only)
    };
    for (only, wide, narrow) in [(Numbers::Bf16, 128, 64), (Numbers::F32, 16, 16)] {
        let only = Some(only);
        let causal = |weights| kind(wide, true, 0.3, weights, only);
        let both_ways = |weights| kind(narrow, false, 0.3, weights, only);
        for kind in [
            kind(narrow, true, 0.3, PerRow, only),
            kind(narrow, true, 0.3, ConstantPerRow, only),
            kind(narrow, true, 0.0, One, only),
            kind(wide, false, 0.0, PerSentence, only),
            kind(wide, false, 0.0, ConstantPerSentence, only),
        ] {
            cases.push(packed(kind, VERY_LONG, std::convert::identity));
        }
        for kind in [
            causal(One),
            causal(PerRow),
            causal(ConstantPerRow),
            both_ways(PerSentence),
            both_ways(ConstantPerSentence),
        ] {
            cases.push(packed(kind, VERY_LONG, std::convert::identity));
            cases.push(packed(kind, VERY_LONG, OpCase::with_room));
        }
        cases.push(packed(causal(PerRow), VERY_LONG, weights_alone));
        cases.push(apart(both_ways(PerSentence), [VERY_LONG, &[64, 300, 5, 0, 100]], std::convert::identity));
        let empty: [&[u32]; 2] = [&[200, 0, 400, 130], &[64, 5, 300, 0]];
        cases.push(apart(both_ways(PerSentence), empty, std::convert::identity));
        cases.push(packed(causal(One), &[4_096], OpCase::large));
    }
    // Short sentences and some longer ones, so many that they are divided among the backward kernels.
    let lengths: Vec<u32> = [65, 200, 0, 1, 33, 64].into_iter().chain([18; 110]).collect();
    let others: Vec<u32> = [3, 70, 5, 64, 0, 128].into_iter().chain([21; 110]).collect();
    for (only, width) in [(Numbers::Bf16, 64), (Numbers::F32, 16)] {
        for weights in [One, PerSentence, PerRow, ConstantPerSentence, ConstantPerRow] {
            let kind = |causal| Kind { heads: 64, width, causal, dropout: 0.3, weights, only: Some(only) };
            for adapt in [OpCase::large, |case| OpCase::large(case).with_room()] {
                cases.push(packed(kind(true), &lengths, adapt));
                cases.push(apart(kind(false), [&lengths, &others], adapt));
            }
        }
    }
    // Heads too narrow for Hopper's products.
    for weights in [PerRow, ConstantPerRow] {
        cases.push(packed(kind(32, true, 0.3, weights, bf16), VERY_LONG, std::convert::identity));
    }
    cases
}

/// Short and long sentences, packed and apart, with room to spare.
fn all_shapes(kind: Kind) -> Vec<Case> {
    let mut cases: Vec<Case> =
        [SHORT, LONG].map(|lengths| packed(kind, lengths, std::convert::identity)).into();
    cases.push(packed(kind, &[5, 0, 23, 1], OpCase::with_room));
    if matches!(kind.weights, Weights::PerSentence | Weights::PerRow) {
        cases.extend([SHORT, LONG].map(|lengths| packed(kind, lengths, weights_alone)));
    }
    if !kind.causal {
        for adapt in [std::convert::identity, OpCase::with_room] {
            cases.push(shared(kind, [SHORT, &[64, 5, 3, 17, 0]], adapt));
        }
        cases.push(apart(kind, [SHORT, &[64, 5, 3, 17, 0]], std::convert::identity));
        cases.push(apart(kind, [LONG, &[3, 70, 5, 0, 190]], std::convert::identity));
        cases.push(apart(kind, [&[5, 0, 23, 1], &[9, 2, 70, 0]], OpCase::with_room));
    }
    cases
}

/// A step of the gates.
fn weights_alone(case: OpCase) -> OpCase {
    case.fixed().note("gradient of the weights alone")
}

/// Weights of 0 here and there, and for every third of the first 200, so that whole tiles have none but 0 for a head.
fn weight(i: usize, random: f32) -> f32 {
    if i % 4 == 3 || (i < 200 && i % 3 == 1) { 0.0 } else { random }
}

impl Kind {
    fn describe(&self) -> String {
        let Self { heads, width, causal, dropout, weights, .. } = self;
        let causal = if *causal { "causal, " } else { "" };
        format!("{heads} heads of {width}, {causal}dropout {dropout}, weights {weights:?}")
    }

    fn case(&self, what: String) -> OpCase {
        // Probabilities are rounded for the product with values, and their gradients for those with queries and keys.
        OpCase::new("attention", what).tolerance(Tolerance::new(1e-2, 5e-5)).only(self.only)
    }

    fn head_weights(&self, s: &mut Scene<'_>, queries: &[u32]) -> HeadWeights {
        let (sentences, rows) = (queries.len() - 1, queries[queries.len() - 1] as usize);
        let constant = |s: &Scene<'_>, per, count: usize| {
            Var::constant(s.constant(per, [count, self.heads], |i| weight(i, 0.5 + (i % 7) as f32 / 7.0)))
        };
        match self.weights {
            Weights::One => HeadWeights::One,
            Weights::ConstantPerSentence => HeadWeights::PerSentence(constant(s, Per::Sentence, sentences)),
            Weights::ConstantPerRow => HeadWeights::PerRow(constant(s, Per::Row, rows)),
            Weights::PerSentence => {
                HeadWeights::PerSentence(s.floats("weights", Per::Sentence, [sentences, self.heads], weight))
            }
            Weights::PerRow => HeadWeights::PerRow(s.floats("weights", Per::Row, [rows, self.heads], weight)),
        }
    }

    fn attend(&self, s: &mut Scene<'_>, out: &'static str, inputs: &Inputs, queries: &[u32], keys: &[u32]) {
        let Self { heads, causal, dropout, .. } = *self;
        let weights = self.head_weights(s, queries);
        let (queries, keys) = (s.segments(queries), s.segments(keys));
        let value = s.tape.attention(inputs, Attention { heads, causal, dropout, queries, keys, weights });
        s.output(out, Per::Row, &value);
    }
}

fn packed(kind: Kind, lengths: &[u32], adapt: fn(OpCase) -> OpCase) -> Case {
    let starts = starts(lengths);
    let case = kind.case(format!("sentences of {lengths:?}, {}", kind.describe()));
    let rows = starts[lengths.len()] as usize;
    adapt(case.input("qkv", Per::Row, [rows, 3 * kind.heads * kind.width])).body(move |s| {
        let inputs = Inputs::Packed(s.input("qkv"));
        kind.attend(s, "out", &inputs, &starts, &starts);
    })
}

/// Queries and keys of different lengths, some of either without the other.
fn apart(kind: Kind, lengths: [&[u32]; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let [queries, keys] = lengths.map(starts);
    let case = kind.case(format!("{:?} queries, {:?} keys, {}", lengths[0], lengths[1], kind.describe()));
    let [q_rows, k_rows] = [&queries, &keys].map(|starts| starts[starts.len() - 1] as usize);
    let width = kind.heads * kind.width;
    let case = case.input("q", Per::Row, [q_rows, width]).input("kv", Per::Row, [k_rows, 2 * width]);
    adapt(case).body(move |s| {
        let inputs = Inputs::Apart(s.input("q"), s.input("kv"));
        kind.attend(s, "out", &inputs, &queries, &keys);
    })
}

/// Two attentions whose keys and values one product makes.
fn shared(kind: Kind, lengths: [&[u32]; 2], adapt: fn(OpCase) -> OpCase) -> Case {
    let [queries, keys] = lengths.map(starts);
    let what = format!("two attentions, {:?} queries, {:?} keys", lengths[0], lengths[1]);
    let case = kind.case(format!("{what}, {}", kind.describe()));
    let [q_rows, k_rows] = [&queries, &keys].map(|starts| starts[starts.len() - 1] as usize);
    let width = kind.heads * kind.width;
    let case = case
        .input("q", Per::Row, [q_rows, width])
        .input("memory", Per::Row, [k_rows, 24])
        .param("weight", [4 * width, 24])
        .fill(|_, random| 0.2 * random)
        .param("bias", [4 * width, 1]);
    adapt(case).body(move |s| {
        let (memory, weight, bias) = (s.input("memory"), s.param("weight"), s.param("bias"));
        let parts = s.tape.linear_parts(&memory, weight, bias, 2);
        let first = Inputs::Shared(s.input("q"), parts.part(0));
        kind.attend(s, "first", &first, &queries, &keys);
        let second = Inputs::Shared(s.input("q"), parts.part(1));
        kind.attend(s, "second", &second, &queries, &keys);
    })
}
