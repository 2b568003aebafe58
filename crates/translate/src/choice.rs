//! Continuations that need more than the best ones of one model: ensembles, forced prefixes, temperatures, no repetitions,
//! groups of beams, sampling. The device keeps the rows of log-probabilities and gives candidates back.

use std::collections::HashMap;

use mae_data::{EOS, PAD, UNK};
use mae_engine::ops::chances::{Chances, Draw, Place, Rule};
use mae_engine::ops::decode::{Candidate, Continuations, Symbols};

use crate::error::Result;
use crate::hypothesis::Live;
use crate::options::Choice;
use crate::sampling::number_for;
use crate::sentence::Sentence;

pub(crate) const SYMBOLS: Symbols = Symbols { pad: PAD, end: EOS, unknown: UNK };

/// Continuations that were asked for.
pub(crate) struct Asked {
    /// First row of each sentence in the lane, and among the rows that were asked about.
    first: Vec<[usize; 2]>,
    /// The best continuations of sentences, or of each of their hypotheses.
    best: Option<Continuations>,
    drawn: Option<Continuations>,
}

/// What a sentence needs of its rows.
enum Need {
    /// The best continuations of all its hypotheses together.
    Best,
    /// The best continuations of each hypothesis.
    BestOfEach { groups: usize, strength: f32 },
    /// Draws: the hypothesis that each continues.
    Draws(Vec<usize>),
}

/// The rows of a sentence, whose first hypothesis is row `first` of the lane.
pub(crate) fn places(sentence: &Sentence, first: usize) -> impl Iterator<Item = Place> + '_ {
    let temperature = sentence.options.temperature;
    (0..sentence.live.len()).map(move |i| Place { row: (first + i) as u32, temperature })
}

/// Asks for the continuations of sentences, each with its first row in the lane. `chances` has all their rows, in order.
pub(crate) fn ask(mut chances: Chances, sentences: &[(&Sentence, usize)]) -> Result<Asked> {
    let rules =
        sentences.iter().flat_map(|(sentence, _)| sentence.live.iter().map(|live| rule(live, sentence)));
    chances.constrain(&rules.collect::<Vec<_>>(), SYMBOLS);
    let (mut first, mut groups, mut draws, mut count) = (Vec::new(), Vec::new(), Vec::new(), 1);
    let (mut scores, mut row) = (Vec::new(), 0);
    for &(sentence, in_lane) in sentences {
        let rows = row..row + sentence.live.len();
        match need(sentence) {
            Need::Best => groups.push(rows.clone()),
            Need::BestOfEach { .. } => groups.extend(rows.clone().map(|row| row..row + 1)),
            Need::Draws(parents) => draws.extend(parents.iter().enumerate().map(|(i, parent)| {
                let Choice::Sample(sampling) = sentence.options.choice else { unreachable!("it draws") };
                let uniform = number_for(sentence.options.seed, sentence.line, sentence.step, i);
                Draw { row: (row + parent) as u32, uniform, bounds: sampling.bounds() }
            })),
        }
        first.push([in_lane, row]);
        count = count.max(2 * sentence.options.beam);
        scores.extend(sentence.live.iter().map(|live| live.cumulative));
        row = rows.end;
    }
    let best = (!groups.is_empty()).then(|| chances.best(&scores, &groups, count)).transpose()?;
    let drawn = (!draws.is_empty()).then(|| chances.draw(&scores, &draws)).transpose()?;
    Ok(Asked { first, best, drawn })
}

impl Asked {
    /// The candidates of each of the sentences, in the order in which they count. Waits for the device.
    pub(crate) fn collect(self, sentences: &[&Sentence]) -> Result<Vec<Vec<Candidate>>> {
        let ranked = |found: Option<Continuations>| found.map(Continuations::ranked).transpose();
        let mut best = ranked(self.best)?.unwrap_or_default().into_iter();
        let mut drawn = ranked(self.drawn)?.unwrap_or_default().into_iter();
        let mut all = Vec::with_capacity(sentences.len());
        for (sentence, [in_lane, row]) in sentences.iter().zip(self.first) {
            let mut candidates = match need(sentence) {
                Need::Best => best.next().unwrap_or_default(),
                Need::BestOfEach { groups, strength } => {
                    let each: Vec<_> = best.by_ref().take(sentence.live.len()).collect();
                    by_groups(sentence, &each, groups, strength)
                }
                Need::Draws(parents) => drawn.by_ref().take(parents.len()).flatten().collect(),
            };
            candidates.iter_mut().for_each(|candidate| candidate.row += in_lane as u32 - row as u32);
            all.push(candidates);
        }
        Ok(all)
    }
}

fn need(sentence: &Sentence) -> Need {
    match sentence.options.choice {
        Choice::Diverse { groups, strength } if sentence.step >= sentence.forced() => {
            Need::BestOfEach { groups, strength }
        }
        Choice::Best | Choice::Diverse { .. } => Need::Best,
        // At the first free choice there is one hypothesis, which the whole beam comes from.
        Choice::Sample(_) if sentence.step == sentence.forced() => {
            Need::Draws(vec![0; sentence.options.beam])
        }
        Choice::Sample(_) => Need::Draws((0..sentence.live.len()).collect()),
    }
}

/// What may follow a hypothesis.
fn rule(live: &Live, sentence: &Sentence) -> Rule {
    let (step, options) = (sentence.step, &sentence.options);
    let only = if step >= sentence.max_len { Some(EOS) } else { sentence.prefix.get(step).copied() };
    let n = options.no_repeat_ngram_size;
    let forbidden = match n > 0 && only.is_none() {
        true => repeating(&sentence.history.tokens(live), n).collect(),
        false => Vec::new(),
    };
    Rule { unknown_penalty: options.unkpen, only, too_short: step < options.min_len, forbidden }
}

/// The tokens that would repeat a sequence of `n` tokens.
fn repeating(tokens: &[u32], n: usize) -> impl Iterator<Item = u32> {
    // Where nothing can be repeated yet, there are no windows to look at.
    let context = if n > 0 { tokens.len().checked_sub(n - 1) } else { None };
    let (known, context) = context.map_or((&[][..], &[][..]), |at| (tokens, &tokens[at..]));
    known.windows(n.max(1)).filter(move |seen| seen[..n - 1] == *context).map(move |seen| seen[n - 1])
}

/// fairseq's `DiverseBeamSearch`: hypothesis i is in group i modulo `groups`; candidates of the groups take turns. A token
/// costs a group `strength` for every time that the groups before it have it among their candidates.
///
/// `each` has the 2·beam best continuations of each hypothesis. Costs only lower a score, and the groups before have fewer
/// different tokens than these lists are longer than a group's share, so nothing better is missing in them.
fn by_groups(sentence: &Sentence, each: &[Vec<Candidate>], groups: usize, strength: f32) -> Vec<Candidate> {
    let first = sentence.step == sentence.forced();
    let share = 2 * sentence.options.beam / groups;
    let mut taken: HashMap<u32, f32> = HashMap::new();
    let mut found: Vec<Vec<Candidate>> = Vec::with_capacity(groups);
    for group in 0..groups {
        // The first choice has one hypothesis for all groups.
        let members = each.iter().enumerate().filter(|(i, _)| first || i % groups == group);
        let cost = |token: u32| strength * taken.get(&token).copied().unwrap_or(0.0);
        let costly = |candidate: &Candidate| Candidate {
            score: candidate.score - cost(candidate.token),
            ..*candidate
        };
        let mut candidates: Vec<Candidate> = members.flat_map(|(_, list)| list).map(costly).collect();
        candidates.sort_by(Candidate::order);
        candidates.truncate(share);
        candidates.iter().for_each(|candidate| *taken.entry(candidate.token).or_default() += 1.0);
        found.push(candidates);
    }
    let in_turn = |rank: usize| found.iter().filter_map(move |candidates| candidates.get(rank).copied());
    (0..share).flat_map(in_turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeats(tokens: &[u32], n: usize) -> Vec<u32> {
        repeating(tokens, n).collect()
    }

    #[test]
    fn tokens_that_complete_a_known_sequence_repeat_it() {
        let tokens = [7, 8, 9, 7, 8];
        assert!(repeats(&tokens, 0).is_empty());
        assert_eq!(repeats(&tokens, 1), tokens);
        assert_eq!(repeats(&tokens, 2), [9]);
        assert_eq!(repeats(&tokens, 3), [9]);
        assert!(repeats(&tokens, 4).is_empty());
        assert_eq!(repeats(&[5, 5, 5], 3), [5]);
        for n in 0..5 {
            assert!(repeats(&[], n).is_empty());
            assert!(n == 1 || repeats(&[5], n).is_empty());
        }
    }
}
