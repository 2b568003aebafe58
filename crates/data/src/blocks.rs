//! One stream of tokens cut into blocks, for language models: fairseq's `TokenBlockDataset`.
//!
//! All sentences lie end to end, each with its `EOS`. A block's targets are a piece of the stream; its input is
//! the same piece moved right by one, so that the first target of a block is predicted from the token before
//! it, which is `EOS` at the start of the stream. For evaluation a block can be given context: tokens before it
//! that are read again but not scored.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::PackedBatch;
use crate::error::{Error, Result};
use crate::options::OptionFault;
use crate::pairs::Sentences;
use crate::vocab::EOS;

/// Ends of blocks; fairseq's `sample_break_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakMode {
    /// Every block is full, wherever sentences end.
    #[default]
    None,
    /// As many whole sentences as fit; one that does not fit is a block of its own, longer than asked for.
    Complete,
    /// One sentence each, however long.
    Eos,
}

impl std::str::FromStr for BreakMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "complete" => Ok(Self::Complete),
            "eos" => Ok(Self::Eos),
            _ => Err(OptionFault::BreakMode(name.to_owned()).into()),
        }
    }
}

/// Sizes and ends of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// Tokens of a block, its context counted.
    pub tokens_per_sample: usize,
    /// Tokens before a block that are read again; below `tokens_per_sample`. 480 of 512 score 32 new tokens at
    /// a time.
    pub context_window: usize,
    /// Ends of blocks.
    pub break_mode: BreakMode,
}

/// A stream in blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    sentences: Arc<Sentences>,
    /// Start of each sentence in the stream, and the stream's length at the end.
    starts: Vec<u64>,
    blocks: Vec<Range<u64>>,
    options: BlockOptions,
}

impl Blocks {
    /// Cuts the stream of all sentences.
    pub fn new(sentences: Arc<Sentences>, options: BlockOptions) -> Result<Self> {
        let BlockOptions { tokens_per_sample, context_window, break_mode } = options;
        if tokens_per_sample <= context_window {
            let fault = OptionFault::NoRoomInBlock { tokens: tokens_per_sample, context: context_window };
            return Err(fault.into());
        }
        let mut starts = Vec::with_capacity(sentences.len() + 1);
        starts.push(0);
        for i in 0..sentences.len() {
            starts.push(starts[i] + sentences.size(i) as u64);
        }
        let fresh = (tokens_per_sample - context_window) as u64;
        let end = starts[sentences.len()];
        let blocks = match break_mode {
            BreakMode::None => {
                (0..end).step_by(fresh as usize).map(|start| start..end.min(start + fresh)).collect()
            }
            BreakMode::Eos => starts.windows(2).filter(|w| w[0] < w[1]).map(|w| w[0]..w[1]).collect(),
            BreakMode::Complete => whole_sentences(&starts, fresh),
        };
        Ok(Self { sentences, starts, blocks, options })
    }

    /// Sizes and ends of the blocks.
    pub fn options(&self) -> BlockOptions {
        self.options
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Tokens of the stream, each of which is scored in one block.
    pub fn tokens(&self) -> u64 {
        self.starts[self.sentences.len()]
    }

    /// Tokens of block `i` that are read but not scored: its first ones.
    pub fn context(&self, i: usize) -> usize {
        let block = &self.blocks[i];
        let room = self.options.tokens_per_sample.saturating_sub((block.end - block.start) as usize);
        self.options.context_window.min(room).min(block.start as usize)
    }

    /// (0, tokens) of each block, its context counted, for a [`BatchSampler`](crate::BatchSampler).
    pub fn lengths(&self) -> Vec<(u32, u32)> {
        let length =
            |(i, block): (usize, &Range<u64>)| (0, (self.context(i) as u64 + block.end - block.start) as u32);
        self.blocks.iter().enumerate().map(length).collect()
    }

    /// Packs the given blocks, in the given order, as targets without sources.
    pub fn pack(&self, ids: &[u32]) -> PackedBatch {
        let mut batch = PackedBatch { tgt_starts: vec![0], ids: ids.to_vec(), ..PackedBatch::default() };
        let mut read = Vec::new();
        for &i in ids {
            let block = &self.blocks[i as usize];
            let start = block.start - self.context(i as usize) as u64;
            // The token before the block, and the block.
            self.read(start.saturating_sub(1)..block.end, &mut read);
            if start == 0 {
                batch.prev.push(EOS);
            }
            batch.prev.extend(&read[..read.len() - 1]);
            batch.tgt.extend(&read[usize::from(start > 0)..]);
            batch.tgt_starts.push(batch.tgt.len() as u32);
        }
        batch
    }

    /// A piece of the stream.
    fn read(&self, piece: Range<u64>, into: &mut Vec<u32>) {
        into.clear();
        let first = self.starts.partition_point(|&start| start <= piece.start) - 1;
        let sentences = (first..self.sentences.len()).take_while(|&i| self.starts[i] < piece.end);
        sentences.for_each(|i| self.sentences.append_to(i, into));
        into.drain(..(piece.start - self.starts[first]) as usize);
        into.truncate((piece.end - piece.start) as usize);
    }
}

/// Greedily as many whole sentences as have `room` tokens.
fn whole_sentences(starts: &[u64], room: u64) -> Vec<Range<u64>> {
    let mut blocks = Vec::new();
    let mut begin = 0;
    for w in starts.windows(2) {
        if w[1] - begin > room && w[0] > begin {
            blocks.push(begin..w[0]);
            begin = w[0];
        }
    }
    let end = starts[starts.len() - 1];
    if end > begin {
        blocks.push(begin..end);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::MemoryDataset;

    /// Sentences of these lengths, their tokens numbered through from 10, each ending in `EOS`.
    fn stream(lengths: &[usize]) -> (Arc<Sentences>, Vec<u32>) {
        let (mut data, mut all) = (MemoryDataset::default(), Vec::new());
        for &length in lengths {
            let first = 10 + all.len() as u32;
            let sentence: Vec<u32> = (0..length as u32 - 1).map(|i| first + i).chain([EOS]).collect();
            data.push(&sentence);
            all.extend(sentence);
        }
        (Arc::new(Sentences::Memory(data)), all)
    }

    fn blocks(lengths: &[usize], options: (usize, usize, BreakMode)) -> (Blocks, Vec<u32>) {
        let (tokens_per_sample, context_window, break_mode) = options;
        let (sentences, all) = stream(lengths);
        let options = BlockOptions { tokens_per_sample, context_window, break_mode };
        (Blocks::new(sentences, options).unwrap(), all)
    }

    fn sizes(blocks: &Blocks) -> Vec<u32> {
        blocks.lengths().into_iter().map(|(_, length)| length).collect()
    }

    #[test]
    fn blocks_end_where_the_mode_says() {
        let lengths = [3, 1, 9, 2, 2, 4];
        let sizes = |mode| sizes(&blocks(&lengths, (5, 0, mode)).0);
        assert_eq!(sizes(BreakMode::None), [5, 5, 5, 5, 1]);
        assert_eq!(sizes(BreakMode::Complete), [4, 9, 4, 4]);
        assert_eq!(sizes(BreakMode::Eos), [3, 1, 9, 2, 2, 4]);
    }

    #[test]
    fn every_token_is_a_target_once_and_follows_its_predecessor() {
        for mode in [BreakMode::None, BreakMode::Complete, BreakMode::Eos] {
            for (tokens, context) in [(5, 0), (1, 0), (7, 4), (6, 5), (100, 0), (100, 90)] {
                let (blocks, all) = blocks(&[3, 1, 9, 2, 1, 1, 4, 20], (tokens, context, mode));
                assert_eq!(blocks.tokens() as usize, all.len());
                let mut scored: Vec<u32> = Vec::new();
                for i in 0..blocks.len() {
                    let batch = blocks.pack(&[i as u32]);
                    assert_eq!(batch.prev.len(), batch.tgt.len());
                    assert_eq!(batch.tgt.len() as u32, blocks.lengths()[i].1);
                    let begin = scored.len() - blocks.context(i);
                    assert_eq!(batch.tgt, all[begin..begin + batch.tgt.len()]);
                    assert_eq!(batch.prev[0], if begin == 0 { EOS } else { all[begin - 1] });
                    assert_eq!(batch.prev[1..], batch.tgt[..batch.tgt.len() - 1]);
                    scored.extend(&batch.tgt[blocks.context(i)..]);
                    if mode == BreakMode::None {
                        assert!(batch.tgt.len() <= tokens);
                    }
                }
                assert_eq!(scored, all);
            }
        }
    }

    /// 512/480: after the start, every block has all its context.
    #[test]
    fn context_is_what_came_before() {
        let (blocks, _) = blocks(&[40, 60, 28], (16, 12, BreakMode::None));
        let contexts: Vec<usize> = (0..blocks.len()).map(|i| blocks.context(i)).collect();
        assert_eq!(contexts[..5], [0, 4, 8, 12, 12]);
        assert!(sizes(&blocks)[3..].iter().all(|&size| size == 16));
    }

    #[test]
    fn several_blocks_are_packed_end_to_end() {
        let (blocks, all) = blocks(&[3, 4, 2], (4, 0, BreakMode::None));
        let batch = blocks.pack(&[2, 0]);
        assert_eq!((batch.tgt_starts.as_slice(), batch.ids.as_slice()), (&[0, 1, 5][..], &[2, 0][..]));
        assert_eq!(batch.tgt, [&all[8..9], &all[0..4]].concat());
        assert_eq!(batch.prev, [&all[7..8], &[EOS], &all[0..3]].concat());
    }

    #[test]
    fn impossible_options_are_refused() {
        let (sentences, _) = stream(&[3]);
        let options = BlockOptions { tokens_per_sample: 5, context_window: 5, break_mode: BreakMode::None };
        let error = Blocks::new(sentences, options).unwrap_err().to_string();
        assert!(error.contains("tokens_per_sample = 5"), "{error}");
        assert!("half".parse::<BreakMode>().unwrap_err().to_string().contains("`half`"));
        let (empty, _) = blocks(&[], (5, 0, BreakMode::Complete));
        assert!(empty.is_empty());
    }
}
