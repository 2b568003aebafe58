//! Lines that a language model continues, as token ids that leave room for new ones.

use mae_data::{EOS, Segmenter, Vocab};

use crate::continuation::Prompt;

/// Positions of a model that are kept for new tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRoom {
    /// This many, so that every prompt gets as many new tokens: of a longer prompt the end is read.
    Fixed(usize),
    /// This many (at most half of the model's positions) where a prompt leaves none at all, otherwise what it
    /// leaves.
    Rest(usize),
}

/// A line as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Tokens at the beginning for which there is no room.
    pub before: Vec<u32>,
    /// The tokens that are read.
    pub prompt: Prompt,
    /// Tokens that the dictionary does not have.
    pub unknown: usize,
    /// End marks inside the line, which are left out: a prompt is one line.
    pub ends: usize,
}

impl PromptRoom {
    /// Tokens that are read of a prompt that is too long, for a model of this many positions.
    pub fn longest(self, positions: usize) -> usize {
        match self {
            Self::Fixed(new) => positions.saturating_sub(new),
            Self::Rest(new) => positions - new.min(positions / 2),
        }
    }

    /// Encodes lines, cut by `segmenter` where there is one.
    pub fn read<S: AsRef<str>>(
        self,
        lines: &[S],
        (vocab, segmenter): (&Vocab, Option<&Segmenter>),
        positions: usize,
    ) -> Vec<Reading> {
        let most = match self {
            Self::Fixed(_) => self.longest(positions),
            Self::Rest(_) => positions.saturating_sub(1),
        };
        let reading = |(place, line): (usize, &S)| {
            let line = line.as_ref();
            let pieces = segmenter.map_or(line.to_owned(), |segmenter| segmenter.segment_line(line));
            let mut before = Vec::new();
            let unknown = vocab.encode_into(&pieces, &mut before);
            let all = before.len();
            before.retain(|&token| token != EOS);
            // Every line has one end mark, at its end.
            let ends = all - before.len() - 1;
            let first = if before.len() > most { before.len() - self.longest(positions) } else { 0 };
            let tokens = before.split_off(first);
            Reading { before, prompt: Prompt { tokens, place: place as u32, rank: 0 }, unknown, ends }
        };
        lines.iter().enumerate().map(reading).collect()
    }
}

#[cfg(test)]
mod tests {
    use mae_data::vocab::VocabOptions;

    use super::*;

    #[test]
    fn long_prompts_leave_room() {
        let vocab = Vocab::from_counts([("a", 2), ("b", 1)], VocabOptions::default());
        let read = |room: PromptRoom, line: &str| room.read(&[line], (&vocab, None), 8).remove(0);
        let parts = |reading: Reading| (reading.before.len(), reading.prompt.tokens.len());
        assert_eq!(parts(read(PromptRoom::Fixed(3), "a b a b a")), (0, 5));
        assert_eq!(parts(read(PromptRoom::Fixed(3), "a b a b a b")), (1, 5));
        assert_eq!(parts(read(PromptRoom::Rest(3), "a b a b a b a")), (0, 7));
        assert_eq!(parts(read(PromptRoom::Rest(3), "a b a b a b a b")), (3, 5));
        assert_eq!(parts(read(PromptRoom::Rest(50), "a b a b a b a b")), (4, 4));
        let odd = read(PromptRoom::Rest(3), "a </s> c");
        assert_eq!((odd.unknown, odd.ends, odd.prompt.tokens.len()), (1, 1, 2));
    }
}
