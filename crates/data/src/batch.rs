//! Packed batches: the ids of all sentences end to end, and the start of each. There is no padding.

use crate::blocks::Blocks;
use crate::pairs::{ParallelDataset, Sentences};
use crate::redraw::Redraw;
use crate::vocab::EOS;

/// Source of packed batches: pairs of sentences, or blocks of a text.
pub trait Corpus: Sync {
    /// Source and target tokens of each pair, or 0 and the tokens of each block, for a
    /// [`BatchSampler`](crate::BatchSampler).
    fn lengths(&self) -> Vec<(u32, u32)>;

    /// Packs the given ones, in the given order.
    fn pack(&self, ids: &[u32]) -> PackedBatch;

    /// The corpus of an epoch with its words cut anew; none if it is not one of words that can be cut.
    fn redrawn(&self, _redraw: &Redraw, _epoch: u64) -> Option<Box<dyn Corpus>> {
        None
    }
}

impl Corpus for ParallelDataset {
    fn lengths(&self) -> Vec<(u32, u32)> {
        self.lengths()
    }

    fn pack(&self, ids: &[u32]) -> PackedBatch {
        PackedBatch::from_pairs(self, ids)
    }

    fn redrawn(&self, redraw: &Redraw, epoch: u64) -> Option<Box<dyn Corpus>> {
        Some(Box::new(redraw.pairs(self, epoch)))
    }
}

impl Corpus for Blocks {
    fn lengths(&self) -> Vec<(u32, u32)> {
        self.lengths()
    }

    fn pack(&self, ids: &[u32]) -> PackedBatch {
        self.pack(ids)
    }
}

/// A batch of sentence pairs, of sources alone (then `prev` and `tgt` are empty), or of blocks for a language
/// model (then `src` is empty).
///
/// Sentence `b` has the source ids `src[src_starts[b]..src_starts[b + 1]]`, and likewise for `prev` and `tgt`,
/// which share `tgt_starts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedBatch {
    /// Source ids, each sentence ending in `EOS`.
    pub src: Vec<u32>,
    /// Starts of the sentences in `src`, and its length at the end.
    pub src_starts: Vec<u32>,
    /// The decoder's input: the target with its `EOS` moved to the front.
    pub prev: Vec<u32>,
    /// Target ids, each sentence ending in `EOS`: the tokens to predict.
    pub tgt: Vec<u32>,
    /// Starts of the sentences in `prev` and `tgt`, and their length at the end.
    pub tgt_starts: Vec<u32>,
    /// Numbers of these sentences in the dataset.
    pub ids: Vec<u32>,
}

impl PackedBatch {
    /// Packs the given sentence pairs, in the given order.
    pub fn from_pairs(data: &ParallelDataset, ids: &[u32]) -> Self {
        let mut batch = Self::from_sources(&data.src, ids);
        batch.tgt_starts.clear();
        batch.tgt_starts.push(0);
        for &id in ids {
            let start = batch.tgt.len();
            data.tgt.append_to(id as usize, &mut batch.tgt);
            let sentence = &batch.tgt[start..];
            if let [before_last @ .., _] = sentence {
                batch.prev.push(EOS);
                batch.prev.extend_from_slice(before_last);
            }
            batch.tgt_starts.push(batch.tgt.len() as u32);
        }
        batch
    }

    /// Packs sources alone, for translation.
    pub fn from_sources(sources: &Sentences, ids: &[u32]) -> Self {
        let mut batch = Self {
            src_starts: vec![0],
            tgt_starts: vec![0; ids.len() + 1],
            ids: ids.to_vec(),
            ..Self::default()
        };
        for &id in ids {
            sources.append_to(id as usize, &mut batch.src);
            batch.src_starts.push(batch.src.len() as u32);
        }
        batch
    }

    /// Number of sentences.
    pub fn sentences(&self) -> usize {
        self.ids.len()
    }

    /// Number of source tokens.
    pub fn src_tokens(&self) -> usize {
        self.src.len()
    }

    /// Number of target tokens, over which losses are averaged.
    pub fn tgt_tokens(&self) -> usize {
        self.tgt.len()
    }

    /// Source ids of the batch's sentence `b`.
    pub fn src_sentence(&self, b: usize) -> &[u32] {
        &self.src[self.src_starts[b] as usize..self.src_starts[b + 1] as usize]
    }

    /// Target ids of the batch's sentence `b`.
    pub fn tgt_sentence(&self, b: usize) -> &[u32] {
        &self.tgt[self.tgt_starts[b] as usize..self.tgt_starts[b + 1] as usize]
    }
}
