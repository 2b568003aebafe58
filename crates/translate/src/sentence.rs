//! The search for one sentence's translation: hypotheses that end and that live on.

use mae_data::EOS;
use mae_engine::ops::decode::Candidate;

use crate::hypothesis::{Hypothesis, Live};
use crate::options::SearchOptions;

/// The search for one sentence's translation.
pub(crate) struct Sentence {
    /// Place in the batch.
    pub(crate) place: usize,
    /// Number in the input, which random choices depend on.
    pub(crate) line: u32,
    /// Tokens before the end mark at most.
    pub(crate) max_len: usize,
    /// Tokens that the translation begins with.
    pub(crate) prefix: Vec<u32>,
    /// Best first; none when the search is over.
    pub(crate) live: Vec<Live>,
    /// In the order they were found.
    finished: Vec<Hypothesis>,
}

impl Sentence {
    pub(crate) fn new(place: usize, line: u32, max_len: usize, prefix: &[u32]) -> Self {
        let (live, finished) = (vec![Live::default()], Vec::new());
        Self { place, line, max_len, prefix: prefix.to_vec(), live, finished }
    }

    /// Steps whose token is not chosen.
    pub(crate) fn forced(&self) -> usize {
        self.prefix.len().min(self.max_len)
    }

    /// Takes a step: finishes hypotheses and chooses who lives on, whose rows are added to `parents`.
    /// `first_row` is the row of the first live hypothesis.
    pub(crate) fn advance(
        &mut self,
        candidates: &[Candidate],
        first_row: usize,
        options: &SearchOptions,
        parents: &mut Vec<u32>,
    ) {
        let extended = |candidate: &Candidate| self.live[candidate.row as usize - first_row].with(candidate);
        let ends = |candidate: &&Candidate| candidate.token == EOS;
        let room = options.beam - self.finished.len();
        let ending = candidates.iter().take(options.beam).filter(ends).take(room);
        let finished: Vec<Hypothesis> = ending.map(|end| extended(end).finish(options)).collect();
        let mut live = Vec::new();
        if finished.len() < room {
            let living = candidates.iter().filter(|candidate| candidate.token != EOS).take(options.beam);
            for candidate in living {
                live.push(extended(candidate));
                parents.push(candidate.row);
            }
        }
        self.live = live;
        self.finished.extend(finished);
    }

    /// The best finished hypotheses; of equal ones the earlier found.
    pub(crate) fn ranked(&mut self, count: usize) -> Vec<Hypothesis> {
        let mut all = std::mem::take(&mut self.finished);
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAM: usize = 2;

    /// A sentence after one step, with two live hypotheses in rows 7 and 8.
    fn sentence() -> Sentence {
        let mut sentence = Sentence::new(0, 0, 9, &[]);
        take(&mut sentence, &[(-1.0, 3, 10), (-2.0, 3, 11)], 3);
        sentence
    }

    /// Takes a step with candidates (score, row, token); gives the parents.
    fn take(sentence: &mut Sentence, candidates: &[(f32, u32, u32)], first_row: usize) -> Vec<u32> {
        let candidates: Vec<Candidate> =
            candidates.iter().map(|&(score, row, token)| Candidate { score, row, token }).collect();
        let options = SearchOptions { beam: BEAM, ..SearchOptions::default() };
        let mut parents = Vec::new();
        sentence.advance(&candidates, first_row, &options, &mut parents);
        parents
    }

    #[test]
    fn ends_count_only_among_the_first_of_the_beam() {
        let mut sentence = sentence();
        let parents = take(&mut sentence, &[(-1.5, 8, EOS), (-2.0, 8, 4), (-2.5, 7, EOS), (-3.0, 7, 5)], 7);
        assert_eq!(parents, [8, 7]);
        assert_eq!(sentence.live.iter().map(Live::last).collect::<Vec<_>>(), [4, 5]);
        let found = sentence.ranked(BEAM);
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
        let found = sentence.ranked(BEAM);
        assert_eq!(found.len(), BEAM, "no more than the beam are kept, the first found first");
        assert_eq!(found[0].tokens, [10, 4, EOS]);
        assert_eq!(found[1].tokens, [10, EOS]);
        assert_eq!(found[0].positional, [-1.0, -1.0, -0.25]);
    }
}
