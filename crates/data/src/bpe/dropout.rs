//! BPE dropout (Provilkov et al. 2020): merges are skipped at random, so that a model sees words cut in many ways.
//!
//! As in subword-nmt, at each step each merge that fits is left out with probability p; of those that stay the
//! earliest learned is applied, and a word is done when none stays. The result depends on (seed, place) alone,
//! where the place is the line's number or anything else that tells lines apart: not on threads, nor on other
//! lines.

use super::apply::{Bpe, Merging, is_single, push_pieces, segment_words};
use crate::error::Result;
use crate::options::OptionFault;
use crate::sampler::Rng;

/// Longer words are cut without dropout: they are no words, and the plain algorithm takes quadratic time for them.
const LONGEST: usize = 256;

/// Probability of skipping merges, and the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    probability: f64,
    seed: u64,
}

impl Dropout {
    /// Skips each merge at each step with this probability.
    pub fn new(probability: f64, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(OptionFault::DropoutProbability(probability).into());
        }
        Ok(Self { probability, seed })
    }
}

impl Bpe {
    /// Segments the line at `place`, skipping merges at random.
    pub fn segment_line_dropping(&self, line: &str, dropout: Dropout, place: u64) -> String {
        if dropout.probability == 0.0 {
            return self.segment_line(line);
        }
        let mut random = Rng::new(dropout.seed, place);
        let mut dropped = || random.unit() < dropout.probability;
        segment_words(line, |word, out| {
            if is_single(word) || word.len() > LONGEST {
                return self.segment_word(word, out);
            }
            push_pieces(&self.encode_word_dropping(word, &mut dropped), out);
        })
    }

    /// The pieces of one word, without `@@`; `dropped` says of each merge that fits whether it is skipped.
    pub(crate) fn encode_word_dropping<'w>(
        &self,
        word: &'w str,
        dropped: &mut impl FnMut() -> bool,
    ) -> Vec<&'w str> {
        if word.len() > LONGEST {
            return self.encode_word(word);
        }
        self.encode_parts(word, |part| match is_single(part) {
            true => vec![part],
            false => self.check_pieces(Merging::new(self, part).run_dropping(&mut *dropped)),
        })
    }
}

impl<'w> Merging<'_, 'w> {
    fn run_dropping(self, mut dropped: impl FnMut() -> bool) -> Vec<&'w str> {
        let Self { bpe, word, mut ids, mut starts, .. } = self;
        loop {
            let fitting = ids.windows(2).enumerate().filter_map(|(i, pair)| {
                let &(rank, merged) = bpe.merges.get(&(pair[0], pair[1]))?;
                (!dropped()).then_some((rank, i, merged))
            });
            let fitting: Vec<_> = fitting.collect();
            let Some(&(earliest, _, merged)) = fitting.iter().min() else { break };
            // From the left; in `x x x` the second pair has lost its first `x` when its turn comes.
            let mut gone = vec![false; ids.len()];
            for &(_, i, _) in fitting.iter().filter(|&&(rank, ..)| rank == earliest) {
                if !gone[i] {
                    (ids[i], gone[i + 1]) = (merged, true);
                }
            }
            let mut stays = gone.iter().map(|gone| !gone);
            ids.retain(|_| stays.next().unwrap_or(true));
            let mut stays = gone.iter().map(|gone| !gone);
            starts.retain(|_| stays.next().unwrap_or(true));
        }
        let ends = starts[1..].iter().copied().chain([word.len()]);
        let pieces = starts.iter().zip(ends).map(|(&start, end)| &word[start..end]);
        // Version 0.1 leaves an unmerged end-of-word symbol, which spells nothing.
        pieces.filter(|piece| !piece.is_empty()).collect()
    }
}
