//! The GPU's implementation.

use std::ops::Range;
use std::sync::Arc;

use super::{Bounds, Draw, Place, Rule};
use crate::cuda::Gpu;
use crate::cuda::kernel::{Act, kernels};
use crate::cuda::launch::Shape;
use crate::cuda::memory::{Block, Ptr};
use crate::ops::decode::Symbols;
use crate::ops::decode::cuda::{BEST_ROW, BEST_THREADS, Ranked, best_of_groups};
use crate::{Result, Tensor};

/// No token: any may follow.
const ANY: u32 = u32::MAX;
/// Bits that hold a token in the order of a draw; two are found at a time.
const TOKEN_BITS: u32 = 24;

kernels! {
    static FILE = "chances" at "chances.cu", constants [BEST_THREADS, ANY, TOKEN_BITS], headers &[BEST_ROW];

    /// Log-probabilities of one more model.
    struct AddLogProbs = add_log_probs {
        logits: *const Act,
        rows: *const u32,
        temperatures: *const f32,
        chances: *mut f32,
        types: u32,
        models: u32,
        share: f32,
    }

    /// Rules of rows.
    struct Constrain = constrain {
        chances: *mut f32,
        penalties: *const f32,
        only: *const u32,
        too_short: *const u32,
        starts: *const u32,
        forbidden: *const u32,
        types: u32,
        pad: u32,
        end: u32,
        unknown: u32,
    }

    /// Best continuations of each row.
    struct BestChances = best_chances {
        chances: *const f32,
        types: u32,
        scores: *const f32,
        count: u32,
        best_scores: *mut f32,
        best_tokens: *mut u32,
    }

    /// Draws.
    struct DrawTokens = draw {
        chances: *const f32,
        types: u32,
        scores: *const f32,
        rows: *const u32,
        numbers: *const f32,
        most: *const u32,
        shares: *const f32,
        drawn_scores: *mut f32,
        drawn_rows: *mut u32,
        drawn_tokens: *mut u32,
    }
}

/// Log-probabilities in device memory, `[rows, types]`.
pub(super) struct OnGpu {
    values: Block,
    rows: usize,
    types: usize,
}

/// Lists of 32-bit words in one block of device memory.
struct Lists {
    block: Block,
    starts: Vec<usize>,
}

impl Lists {
    fn new(gpu: &Arc<Gpu>, lists: &[Vec<u32>]) -> Self {
        let words = lists.concat();
        let block = Block::new(gpu, 4 * words.len().max(1));
        block.write(0, &words);
        let starts = lists.iter().scan(0, |next, list| Some(std::mem::replace(next, *next + list.len())));
        Self { starts: starts.collect(), block }
    }

    fn at(&self, list: usize) -> Ptr {
        self.block.ptr().plus(4 * self.starts[list])
    }
}

fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

impl OnGpu {
    pub(super) fn new(gpu: &Arc<Gpu>, rows: usize, types: usize) -> Self {
        assert!(types < 1 << TOKEN_BITS, "a vocabulary of {types} types");
        Self { values: Block::new(gpu, 4 * rows * types), rows, types }
    }

    fn shape(&self, blocks: usize) -> Shape {
        Shape::of(blocks, if self.types < 16_384 { BEST_THREADS / 2 } else { BEST_THREADS })
    }

    /// One more model, after `before` others; `share` is taken off what it leaves.
    pub(super) fn add(&self, logits: &Tensor, places: &[Place], before: usize, share: f32) {
        let rows = places.iter().map(|place| place.row).collect();
        let temperatures = bits(places.iter().map(|place| place.temperature));
        let lists = Lists::new(self.values.gpu(), &[rows, temperatures]);
        self.values.gpu().call(
            self.shape(self.rows),
            &AddLogProbs {
                logits: logits.ptr(),
                rows: lists.at(0),
                temperatures: lists.at(1),
                chances: self.values.ptr(),
                types: self.types as u32,
                models: before as u32,
                share,
            },
        );
    }

    pub(super) fn constrain(&self, rules: &[Rule], symbols: Symbols) {
        let penalties = bits(rules.iter().map(|rule| rule.unknown_penalty));
        let only = rules.iter().map(|rule| rule.only.unwrap_or(ANY)).collect();
        let too_short = rules.iter().map(|rule| u32::from(rule.too_short)).collect();
        let mut starts = vec![0];
        starts.extend(rules.iter().scan(0, |end, rule| {
            *end += rule.forbidden.len() as u32;
            Some(*end)
        }));
        let forbidden = rules.iter().flat_map(|rule| rule.forbidden.iter().copied()).collect();
        let lists = Lists::new(self.values.gpu(), &[penalties, only, too_short, starts, forbidden]);
        self.values.gpu().call(
            self.shape(self.rows),
            &Constrain {
                chances: self.values.ptr(),
                penalties: lists.at(0),
                only: lists.at(1),
                too_short: lists.at(2),
                starts: lists.at(3),
                forbidden: lists.at(4),
                types: self.types as u32,
                pad: symbols.pad,
                end: symbols.end,
                unknown: symbols.unknown,
            },
        );
    }

    pub(super) fn best(&self, scores: &[f32], groups: &[Range<usize>], count: usize) -> Result<Ranked> {
        let gpu = self.values.gpu();
        let bounds = groups.iter().flat_map(|group| [group.start as u32, group.end as u32]).collect();
        let lists = Lists::new(gpu, &[bits(scores.iter().copied()), bounds]);
        let of_rows = Block::new(gpu, 4 * 2 * self.rows * count);
        let (best_scores, best_tokens) = (of_rows.ptr(), of_rows.ptr().plus(4 * self.rows * count));
        gpu.call(
            self.shape(self.rows),
            &BestChances {
                chances: self.values.ptr(),
                types: self.types as u32,
                scores: lists.at(0),
                count: count as u32,
                best_scores,
                best_tokens,
            },
        );
        best_of_groups(gpu, (best_scores, best_tokens), lists.at(1), groups.len(), count)
    }

    pub(super) fn draw(&self, scores: &[f32], draws: &[Draw]) -> Result<Ranked> {
        let gpu = self.values.gpu();
        let of = |bounds: Bounds| (bounds.most.map_or(0, |most| most as u32), bounds.share.unwrap_or(2.0));
        let lists = Lists::new(
            gpu,
            &[
                bits(scores.iter().copied()),
                draws.iter().map(|draw| draw.row).collect(),
                bits(draws.iter().map(|draw| draw.uniform)),
                draws.iter().map(|draw| of(draw.bounds).0).collect(),
                bits(draws.iter().map(|draw| of(draw.bounds).1)),
            ],
        );
        Ranked::arriving(gpu, draws.len(), 1, |[drawn_scores, drawn_rows, drawn_tokens]| {
            gpu.call(
                Shape::of(draws.len(), BEST_THREADS),
                &DrawTokens {
                    chances: self.values.ptr(),
                    types: self.types as u32,
                    scores: lists.at(0),
                    rows: lists.at(1),
                    numbers: lists.at(2),
                    most: lists.at(3),
                    shares: lists.at(4),
                    drawn_scores,
                    drawn_rows,
                    drawn_tokens,
                },
            );
        })
    }
}
