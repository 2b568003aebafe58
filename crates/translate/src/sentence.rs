//! The search for one sentence's translation: hypotheses that end and that live on.

use std::sync::Arc;

use mae_data::EOS;
use mae_engine::ops::decode::{Candidate, LiveRow, Next};

use crate::hypothesis::{History, Hypothesis, Live};
use crate::options::SearchOptions;
use crate::running::Ticket;

/// The search for one sentence's translation.
pub(crate) struct Sentence {
    /// Name in the running batch.
    pub(crate) ticket: Ticket,
    /// Number in the input, which random choices depend on.
    pub(crate) line: u32,
    /// Options of the search.
    pub(crate) options: Arc<SearchOptions>,
    /// Tokens before the end mark at most.
    pub(crate) max_len: usize,
    /// Tokens that the translation begins with.
    pub(crate) prefix: Vec<u32>,
    /// Types that the translation may have, in order; `None`: all.
    pub(crate) types: Option<Arc<[u32]>>,
    /// Steps taken: tokens of each live hypothesis.
    pub(crate) step: usize,
    /// Best first; none when the search is over.
    pub(crate) live: Vec<Live>,
    /// Tokens of all hypotheses.
    pub(crate) history: History,
    /// In the order they were found.
    finished: Vec<Hypothesis>,
}

impl Sentence {
    pub(crate) fn new(ticket: Ticket, line: u32, options: Arc<SearchOptions>, max_len: usize) -> Self {
        Self {
            ticket,
            line,
            options,
            max_len,
            prefix: Vec::new(),
            types: None,
            step: 0,
            live: vec![History::start()],
            history: History::default(),
            finished: Vec::new(),
        }
    }

    /// Steps whose token is not chosen.
    pub(crate) fn forced(&self) -> usize {
        self.prefix.len().min(self.max_len)
    }

    /// Returns true if the best continuations of all hypotheses are enough, which a device finds itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.options.is_plain() && self.prefix.is_empty()
    }

    /// The hypotheses as the device sees them.
    pub(crate) fn rows(&self) -> impl Iterator<Item = LiveRow> + '_ {
        let next = match self.step {
            step if step >= self.max_len => Next::End,
            step if step < self.options.min_len => Next::Words,
            _ => Next::Any,
        };
        let unknown_penalty = self.options.unkpen;
        self.live.iter().map(move |live| LiveRow { score: live.cumulative, unknown_penalty, next })
    }

    /// Takes a step: finishes hypotheses and chooses who lives on, whose rows are added to `parents`.
    /// `first_row` is the row of the first live hypothesis.
    pub(crate) fn advance(&mut self, candidates: &[Candidate], first_row: usize, parents: &mut Vec<u32>) {
        let beam = self.options.beam;
        let room = beam - self.finished.len();
        let before = std::mem::take(&mut self.live);
        let parent = |candidate: &Candidate| before[candidate.row as usize - first_row];
        let ends = |candidate: &&Candidate| candidate.token == EOS;
        for end in candidates.iter().take(beam).filter(ends).take(room) {
            let closed = self.history.extend(parent(end), end);
            self.finished.push(self.history.finish(&closed, &self.options));
        }
        if self.finished.len() < beam {
            for candidate in candidates.iter().filter(|candidate| candidate.token != EOS).take(beam) {
                self.live.push(self.history.extend(parent(candidate), candidate));
                parents.push(candidate.row);
            }
        }
        self.step += 1;
    }

    /// The best finished hypotheses; of equal ones the earlier found.
    pub(crate) fn ranked(mut self) -> Vec<Hypothesis> {
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(self.options.nbest);
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAM: usize = 2;

    /// A sentence after one step, with two live hypotheses in rows 7 and 8.
    fn sentence() -> Sentence {
        let options = SearchOptions { beam: BEAM, nbest: BEAM, ..SearchOptions::default() };
        let mut sentence = Sentence::new(Ticket(0), 0, options.into(), 9);
        take(&mut sentence, &[(-1.0, 3, 10), (-2.0, 3, 11)], 3);
        sentence
    }

    /// Takes a step with candidates (score, row, token); gives the parents.
    fn take(sentence: &mut Sentence, candidates: &[(f32, u32, u32)], first_row: usize) -> Vec<u32> {
        let candidates: Vec<Candidate> =
            candidates.iter().map(|&(score, row, token)| Candidate { score, row, token }).collect();
        let mut parents = Vec::new();
        sentence.advance(&candidates, first_row, &mut parents);
        parents
    }

    #[test]
    fn ends_count_only_among_the_first_of_the_beam() {
        let mut sentence = sentence();
        let parents = take(&mut sentence, &[(-1.5, 8, EOS), (-2.0, 8, 4), (-2.5, 7, EOS), (-3.0, 7, 5)], 7);
        assert_eq!(parents, [8, 7]);
        assert_eq!(sentence.live.iter().map(|live| live.last).collect::<Vec<_>>(), [4, 5]);
        let found = sentence.ranked();
        assert_eq!(found.len(), 1, "the end at rank 3 is forgotten");
        assert_eq!((&found[0].tokens[..], found[0].score), (&[11, EOS][..], -0.75));
    }

    #[test]
    fn a_full_beam_of_ends_stops_the_sentence() {
        let mut sentence = sentence();
        let one_end = [(-2.0, 7, 4), (-2.5, 7, EOS), (-3.0, 8, 5), (-3.5, 8, 6)];
        assert_eq!(take(&mut sentence, &one_end, 7), [7, 8]);
        let two_ends = [(-2.25, 1, EOS), (-4.0, 2, EOS), (-5.0, 1, 4), (-6.0, 1, 5)];
        assert!(take(&mut sentence, &two_ends, 1).is_empty(), "nobody lives on");
        assert!(sentence.live.is_empty());
        let found = sentence.ranked();
        assert_eq!(found.len(), BEAM, "no more than the beam are kept, the first found first");
        assert_eq!(found[0].tokens, [10, 4, EOS]);
        assert_eq!(found[1].tokens, [10, EOS]);
        assert_eq!(found[0].positional, [-1.0, -1.0, -0.25]);
    }
}
